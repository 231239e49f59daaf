// What pages load: the shell, and the modules that their view imports.

import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import assert from 'node:assert/strict';

const root = new URL('../', import.meta.url);
const KB = 1024;
const MAX_FILE = 20 * KB;
// Comments and types included, a third of it; and as it is sent.
const MAX_PAGE = 220 * KB;
const MAX_PAGE_GZIP = 80 * KB;

/** @param {string} path */
const read = (path) => readFileSync(new URL(path, root), 'utf8');

/**
 * A module and all that it imports, but for views that are imported when they are shown.
 * @param {string} path
 * @param {Set<string>} found
 */
function modulesOf(path, found = new Set()) {
  if (found.has(path)) return found;
  found.add(path);
  for (const [, imported] of read(path).matchAll(/^(?:import|export)\b[^;]*?from '(\.[^']+)'/gm)) {
    modulesOf(new URL(imported, new URL(path, root)).href.slice(root.href.length), found);
  }
  return found;
}

/** @param {Iterable<string>} paths */
function sizeOf(paths) {
  let [bytes, packed] = [0, 0];
  for (const path of paths) {
    const text = read(path);
    bytes += new TextEncoder().encode(text).length;
    packed += gzipSync(text, { level: 9 }).length;
  }
  return { bytes, packed };
}

const html = read('index.html');
const linked = Array.from(html.matchAll(/(?:href|src)="\/console\/([^"]+)"/g), ([, path]) => path);
const shell = new Set(['index.html', ...linked, ...modulesOf('main.js')]);
const views = Array.from(read('main.js').matchAll(/import\('\.\/(views\/[^']+)'\)/g), ([, path]) => path);

test('no file is too large', () => {
  const names = [...readdirSync(root), ...readdirSync(new URL('views/', root)).map((name) => `views/${name}`)];
  for (const name of names.filter((each) => /\.(js|css|html|svg)$/.test(each))) {
    const { bytes } = sizeOf([name]);
    assert(bytes <= MAX_FILE, `${name} has ${bytes} bytes, expected at most ${MAX_FILE}`);
  }
});

test('no page loads too much', (context) => {
  assert(views.length > 5);
  for (const view of views) {
    const { bytes, packed } = sizeOf(new Set([...shell, ...modulesOf(view)]));
    const text = `${view} loads ${Math.ceil(bytes / KB)} KB, with gzip ${Math.ceil(packed / KB)} KB`;
    context.diagnostic(`size: ${text}`);
    assert(bytes <= MAX_PAGE && packed <= MAX_PAGE_GZIP, text);
  }
});
