// Elements: made by h(), changed in place, kept by key. Text is only ever set as text.

/** @typedef {Node | string | number | null | undefined | false} Child */

const PROPERTIES = new Set(['value', 'checked', 'disabled', 'selected', 'open', 'indeterminate']);

/**
 * Makes an element. Names that begin with `on` are listeners, a few are properties, the rest
 * attributes; `null` and `false` leave one out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) /** @type {any} */ (element)[name] = value;
    else setAttribute(element, name, value);
  }
  add(element, children);
  return element;
}

/**
 * @param {Node} parent
 * @param {(Child | Child[])[]} children
 */
function add(parent, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function replace(element, ...children) {
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  element.replaceChildren(fresh);
}

/**
 * Sets an attribute, or removes it, unless it is so already.
 * @param {Element} element
 * @param {string} name
 * @param {string | number | boolean | null | undefined} value
 */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else {
    const text = value === true ? '' : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

/**
 * Sets the text of an element, unless it is the same.
 * @param {Element} element
 * @param {string | number} text
 */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/**
 * Puts new children into an element when what they show has changed. `signature` is all that they
 * depend on.
 * @param {Element & { signature?: string }} element
 * @param {unknown} signature
 * @param {() => Child | Child[]} make
 */
export function render(element, signature, make) {
  const wanted = JSON.stringify(signature);
  if (element.signature === wanted) return;
  element.signature = wanted;
  replace(element, make());
}

/**
 * Makes the children of `parent` those of `items`, in their order. Children are found by key, so
 * that focus, selection and scroll position stay.
 * @template Item
 * @template {Element} E
 * @param {Element} parent
 * @param {Item[]} items
 * @param {(item: Item) => string} keyOf
 * @param {(item: Item) => E} create
 * @param {(element: E, item: Item) => void} update
 */
export function patch(parent, items, keyOf, create, update) {
  /** @type {Map<string, E>} */
  const known = new Map();
  for (const child of /** @type {Iterable<any>} */ (parent.children)) {
    if (child.itemKey !== undefined) known.set(child.itemKey, child);
  }
  /** @type {Element | null} */
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const found = known.get(key);
    const element = found ?? create(item);
    known.delete(key);
    /** @type {any} */ (element).itemKey = key;
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const element of known.values()) element.remove();
}

/**
 * The element with this id, which the page has.
 * @param {string} id
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}
