// Which rows of a table are selected, by key: a selection and the start of a range stay when rows
// change their places.

export function createSelection() {
  /** @type {Set<string>} */
  const selected = new Set();
  /** The row that was chosen last, where a range starts. @type {string | null} */
  let anchor = null;

  return {
    selected,

    /**
     * Selects a row, or the range from the row chosen last up to it; a selected row is deselected.
     * @param {string} key
     * @param {string[]} keys all rows in their present order
     * @param {boolean} isRange
     */
    choose(key, keys, isRange) {
      const isSelected = !selected.has(key);
      const at = keys.indexOf(key);
      const start = isRange && anchor !== null ? keys.indexOf(anchor) : -1;
      const from = start < 0 ? at : Math.min(start, at);
      for (const each of keys.slice(from, Math.max(start, at) + 1)) {
        if (isSelected) selected.add(each);
        else selected.delete(each);
      }
      anchor = key;
    },

    /**
     * Selects all rows, or none if all are.
     * @param {string[]} keys
     */
    chooseAll(keys) {
      const isAll = keys.every((key) => selected.has(key));
      selected.clear();
      if (!isAll) keys.forEach((key) => selected.add(key));
      anchor = null;
    },

    /**
     * Forgets rows that are no more.
     * @param {{ has: (key: string) => boolean }} present
     */
    retain(present) {
      for (const key of selected) if (!present.has(key)) selected.delete(key);
      if (anchor !== null && !present.has(anchor)) anchor = null;
    },
  };
}
