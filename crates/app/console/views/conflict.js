// The conflict desk: what the edit started from, what the operation sends and what the server has,
// side by side.

import { actionButton } from '../action.js';
import { operationUrl } from '../api.js';
import { badge, operationState } from '../badge.js';
import { h } from '../dom.js';
import { foreign, pageHead } from '../page.js';

/**
 * @param {HTMLElement} root
 * @param {import('../types.js').Operation} operation
 * @param {import('../types.js').Console} app
 * @param {() => void} leave
 */
export function mountDesk(root, operation, app, leave) {
  const resolve = async (/** @type {string} */ action) => {
    await app.api.send('POST', `${operationUrl(operation.id)}/resolve`, { action });
    leave();
  };
  root.append(
    pageHead({
      title: foreign(operation.id),
      before: [h('a', { href: '/operations' }, 'Operations')],
      below: h('p', { class: 'row' }, foreign(operation.type), badge(app, operationState(operation, app.clock.now()))),
      actions: [
        actionButton({ label: 'Resend ours', busy: 'Sending…', kind: 'main', run: () => resolve('resend') }),
        actionButton({ label: 'Discard', busy: 'Discarding…', run: () => resolve('discard') }),
      ],
    }),
  );
  return {
    shortcuts: /** @type {Record<string, () => void>} */ ({}),
    /** @param {import('../types.js').Operation | null} _fresh */
    ended(_fresh) {
      leave();
    },
    unmount() {},
  };
}
