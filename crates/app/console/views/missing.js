// An address without a page.

import { h } from '../dom.js';
import { empty, foreign, pageHead } from '../page.js';

/**
 * @param {HTMLElement} root
 * @param {import('../router.js').Route} route
 * @returns {import('../types.js').View}
 */
export function mount(root, route) {
  root.append(
    pageHead({ title: 'No such page' }),
    empty(['There is no page ', foreign(route.id), '.'], h('a', { class: 'button plain', href: '/' }, 'Overview')),
  );
  return { title: () => 'No such page', isStatic: true };
}
