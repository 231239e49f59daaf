'use strict';
// Makes tables sortable and gives long ones a filter. Everything can be read without it.
for (const table of document.querySelectorAll('table.cards')) {
  const body = table.tBodies[0];
  const headers = [...table.tHead.rows[0].cells];
  // Cards on a phone change `display`, after which some browsers forget what a table is.
  const roles = { TABLE: 'table', THEAD: 'rowgroup', TBODY: 'rowgroup', TR: 'row', TH: 'columnheader', TD: 'cell' };
  for (const element of [table, ...table.querySelectorAll('thead, tbody, tr, th, td')]) {
    element.setAttribute('role', roles[element.tagName]);
  }
  const value = (row, index) => {
    const cell = row.cells[index];
    return cell.dataset.v === undefined ? cell.textContent.toLowerCase() : Number(cell.dataset.v);
  };
  const compare = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
  const sort = (index) => {
    const header = headers[index];
    const isNumber = header.classList.contains('n');
    const before = header.getAttribute('aria-sort');
    const isDown = before === null ? isNumber : before === 'ascending';
    for (const each of headers) each.removeAttribute('aria-sort');
    header.setAttribute('aria-sort', isDown ? 'descending' : 'ascending');
    const keyed = [...body.rows].map((row) => [value(row, index), row]);
    keyed.sort((one, other) => (isDown ? compare(other[0], one[0]) : compare(one[0], other[0])));
    body.append(...keyed.map(([, row]) => row));
  };
  headers.forEach((header, index) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = header.textContent;
    button.addEventListener('click', () => sort(index));
    header.replaceChildren(button);
  });
  if (body.rows.length > 10) {
    const label = document.createElement('label');
    const input = document.createElement('input');
    const found = document.createElement('output');
    label.className = 'filter';
    input.type = 'search';
    input.setAttribute('aria-controls', table.id);
    input.addEventListener('input', () => {
      const wanted = input.value.trim().toLowerCase();
      let count = 0;
      for (const row of body.rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        count += row.hidden ? 0 : 1;
      }
      found.textContent = wanted === '' ? '' : `${count.toLocaleString('en')} of ${body.rows.length.toLocaleString('en')} match`;
    });
    label.append('Filter', input, found);
    table.before(label);
  }
}
addEventListener('beforeprint', () => {
  for (const details of document.querySelectorAll('details.host')) details.open = true;
});
