// Tables: columns with sorting, rows kept by key, cards on a phone. Rows change in place; their
// order and number change only when that cannot hit a click, a selection or a focus.

import { h, patch, replace, setAttribute, setText } from './dom.js';
import { createSelection } from './selection.js';

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} id
 * @property {string} label
 * @property {(cell: HTMLTableCellElement, row: Row) => void} show Called again when the row changes.
 * @property {string} [sort] Its name for the API, if it sorts.
 * @property {boolean} [isNumber] Aligned to the end.
 * @property {'wide' | 'phone'} [on] Only there.
 */

/**
 * @template Row
 * @param {object} options
 * @param {string} options.caption
 * @param {Column<Row>[]} options.columns
 * @param {(row: Row) => string} options.keyOf
 * @param {(sort: string) => void} [options.onSort]
 * @param {(row: Row) => string} [options.nameOf] With it rows can be selected; the name for screen readers.
 * @param {(selected: Set<string>) => void} [options.onSelect]
 */
export function createTable({ caption, columns, keyOf, onSort, nameOf, onSelect }) {
  /** @type {Map<string, Row>} */
  let rows = new Map();
  const selection = createSelection();
  const { selected } = selection;
  const all = h('input', { type: 'checkbox', 'aria-label': 'Select all on this page', onchange: selectAll });
  const headers = columns.map(header);
  const head = h('tr', { role: 'row' }, nameOf && h('th', { class: 'select', role: 'columnheader' }, all), ...headers);
  const body = h('tbody', { role: 'rowgroup' });
  const element = h(
    'table',
    { class: 'rows', role: 'table' },
    h('caption', { class: 'unseen' }, caption),
    h('thead', { role: 'rowgroup' }, head),
    body,
  );

  /** @param {Column<Row>} column */
  function header(column) {
    const cell = h('th', { scope: 'col', role: 'columnheader', class: cellClass(column) });
    const { sort } = column;
    if (sort === undefined || !onSort) return replace(cell, column.label), cell;
    cell.dataset.sort = sort;
    cell.append(h('button', { class: 'sort', type: 'button', onclick: () => onSort(sort) }, column.label));
    return cell;
  }

  /** @param {Column<Row>} column */
  function cellClass({ id, isNumber, on }) {
    return [`c-${id}`, isNumber && 'number', on && `only-${on}`].filter(Boolean).join(' ');
  }

  /** @param {Row} row */
  function create(row) {
    const cells = columns.map((column) => h('td', { class: cellClass(column), role: 'cell', 'data-label': column.label }));
    const key = keyOf(row);
    const box = nameOf && h('input', { type: 'checkbox', 'aria-label': `Select ${nameOf(row)}`, onclick: (/** @type {MouseEvent} */ event) => select(key, event.shiftKey) });
    return h('tr', { role: 'row' }, box && h('td', { class: 'select', role: 'cell' }, box), ...cells);
  }

  /**
   * @param {HTMLTableRowElement} element
   * @param {Row} row
   */
  function update(element, row) {
    const cells = [...element.cells].slice(nameOf ? 1 : 0);
    columns.forEach((column, at) => column.show(cells[at], row));
    showSelected(element, selected.has(keyOf(row)));
  }

  /**
   * @param {HTMLTableRowElement} element
   * @param {boolean} isSelected
   */
  function showSelected(element, isSelected) {
    if (!nameOf) return;
    setAttribute(element, 'aria-selected', String(isSelected));
    const box = element.querySelector('input');
    if (box) box.checked = isSelected;
  }

  /**
   * @param {string} key
   * @param {boolean} isRange
   */
  function select(key, isRange) {
    selection.choose(key, [...rows.keys()], isRange);
    selectionChanged();
  }

  function selectAll() {
    selection.chooseAll([...rows.keys()]);
    selectionChanged();
  }

  function selectionChanged() {
    for (const element of body.rows) showSelected(element, selected.has(/** @type {any} */ (element).itemKey));
    all.checked = selected.size > 0 && selected.size === rows.size;
    all.indeterminate = selected.size > 0 && selected.size < rows.size;
    onSelect?.(selected);
  }

  /** The row that has the focus, or the first. */
  function focusedRow() {
    return [...body.rows].findIndex((row) => row.contains(document.activeElement));
  }

  return {
    element,
    selected,

    /**
     * Other rows, in this order.
     * @param {Row[]} list
     */
    setRows(list) {
      rows = new Map(list.map((row) => [keyOf(row), row]));
      selection.retain(rows);
      patch(body, list, keyOf, create, update);
      if (nameOf) selectionChanged();
    },

    /**
     * New values of rows that are shown; others are ignored, the order stays.
     * @param {Row[]} list
     */
    updateRows(list) {
      const fresh = new Map(list.map((row) => [keyOf(row), row]));
      for (const element of body.rows) {
        const key = /** @type {any} */ (element).itemKey;
        const row = fresh.get(key);
        if (!row) continue;
        rows.set(key, row);
        update(element, row);
      }
    },

    /**
     * Marks rows that are no more.
     * @param {Set<string>} present
     */
    markGone(present) {
      for (const element of body.rows) element.classList.toggle('gone', !present.has(/** @type {any} */ (element).itemKey));
    },

    /** Would a change of the order hit a click, a focus or a selection? */
    isInUse: () => selected.size > 0 || isInUse(body),

    clearSelection() {
      selected.clear();
      selectionChanged();
    },

    /** @param {string} sort */
    setSort(sort) {
      for (const cell of headers) {
        if (cell.dataset.sort === undefined) continue;
        const isSorted = cell.dataset.sort === sort;
        const direction = sort === 'key' ? 'ascending' : 'descending';
        setAttribute(cell, 'aria-sort', isSorted ? direction : null);
      }
    },

    /**
     * Moves the focus to the link of the next or previous row.
     * @param {1 | -1} by
     */
    move(by) {
      const at = focusedRow();
      const row = body.rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), body.rows.length - 1)];
      /** @type {HTMLElement | null} */ (row?.querySelector('a') ?? row?.querySelector('button, input'))?.focus();
    },

    /** Selects the row that has the focus. */
    toggle() {
      const row = body.rows[focusedRow()];
      if (row && nameOf) select(/** @type {any} */ (row).itemKey, false);
    },
  };
}

/** A finger that was lifted is not on the rows, although they stay `:hover`. */
let isTouch = false;
globalThis.document?.addEventListener('pointerover', (event) => (isTouch = event.pointerType === 'touch'), { passive: true });

/**
 * Would rows that move hit a click or a focus? So it is while the pointer is on them, one has the
 * focus, or a menu or dialog is open.
 * @param {Element} rows
 */
export function isInUse(rows) {
  const hasPointer = !isTouch && rows.matches(':hover');
  return hasPointer || rows.contains(document.activeElement) || document.querySelector('dialog[open], .menu:not([hidden])') !== null;
}

/**
 * Buttons to the pages before and after, and what is shown.
 * @param {(by: 1 | -1) => void} onPage
 */
export function createPager(onPage) {
  const text = h('span', { class: 'muted' });
  const note = h('span', { class: 'pager-note muted' });
  /**
   * @param {string} label
   * @param {1 | -1} by
   */
  function button(label, by) {
    const run = () => element.getAttribute('aria-disabled') || onPage(by);
    const element = h('button', { class: 'button plain', type: 'button', onclick: run }, label);
    return element;
  }
  const previous = button('Previous', -1);
  const next = button('Next', 1);
  const element = h('div', { class: 'pager' }, text, note, h('span', { class: 'actions' }, previous, next));
  return {
    element,
    note,
    /**
     * @param {string} shown
     * @param {boolean} hasPrevious
     * @param {boolean} hasNext
     */
    update(shown, hasPrevious, hasNext) {
      setText(text, shown);
      // Not `disabled`: on the last page the focus would be lost.
      setAttribute(previous, 'aria-disabled', hasPrevious ? null : 'true');
      setAttribute(next, 'aria-disabled', hasNext ? null : 'true');
    },
  };
}

/**
 * States with counts, of which one is chosen.
 * @param {string} label
 * @param {(id: string) => void} onChoose
 */
export function createChips(label, onChoose) {
  const element = h('div', { class: 'chips', role: 'group', 'aria-label': label });
  return {
    element,
    /**
     * @param {{ id: string, label: string, count: string, picture?: SVGElement }[]} chips
     * @param {string} chosen
     */
    update(chips, chosen) {
      patch(
        element,
        chips,
        (chip) => chip.id,
        (chip) => h('button', { class: 'chip', type: 'button', onclick: () => onChoose(chip.id) }, chip.picture, h('span', null, chip.label), h('b', null)),
        (button, chip) => {
          setAttribute(button, 'aria-pressed', String(chip.id === chosen));
          const count = button.querySelector('b');
          if (count) setText(count, chip.count);
        },
      );
    },
  };
}
