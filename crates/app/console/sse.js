// The format of server-sent events: pieces of text become messages.

/**
 * @param {(message: { event: string, data: string }) => void} onMessage
 */
export function createReader(onMessage) {
  let rest = '';
  return {
    /** @param {string} piece */
    push(piece) {
      rest += piece;
      for (;;) {
        const end = rest.indexOf('\n\n');
        if (end < 0) return;
        const message = parse(rest.slice(0, end));
        rest = rest.slice(end + 2);
        if (message.data) onMessage(message);
      }
    },
  };
}

/** @param {string} block */
function parse(block) {
  let event = 'message';
  const data = [];
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, '');
    if (name === 'event') event = value;
    else if (name === 'data') data.push(value);
  }
  return { event, data: data.join('\n') };
}
