// Servers for the tests of pages: Tidegate and its mock as processes of their own, and scripted
// upstreams, on free ports and in temporary folders.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const TIMEOUT = 30_000;

/** Starts the binary, and returns it with the addresses that it prints first. */
async function start(command, args, folder) {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TIDEGATE_')));
  const child = spawn(process.env.BINARY, [command, '--json', ...args], { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] });
  child.stderr.pipe(createWriteStream(join(folder, `${command}.log`), { flags: 'a' }));
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([once(lines, 'line'), once(child, 'exit').then(() => null)]);
  assert.ok(first, `${command} did not start: ${existsSync(join(folder, `${command}.log`)) && readFileSync(join(folder, `${command}.log`), 'utf8')}`);
  lines.on('line', () => {});
  return { child, addresses: JSON.parse(first[0]) };
}

/** @param {import('node:child_process').ChildProcess} child */
async function stop(child, signal = 'SIGTERM') {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill(signal);
  await ended;
}

/** A mock upstream: `tidegate mock` with these flags. */
export async function startMock(folder, ...flags) {
  const { child, addresses } = await start('mock', ['--listen', '127.0.0.1:0', ...flags], folder);
  return { url: addresses.listening, stop: () => stop(child) };
}

/**
 * A server with these settings.
 * @param {string} folder
 * @param {string} settings TOML, without the section `server`.
 * @param {string[]} [server] Lines of the section `server`.
 */
export async function startServer(folder, settings, server = []) {
  const file = join(folder, 'tidegate.toml');
  let [listen, admin] = ['127.0.0.1:0', '127.0.0.1:0'];
  const data = join(folder, 'data');
  let running = await run();

  async function run() {
    writeFileSync(file, `[server]\nlisten = "${listen}"\nadmin = "${admin}"\n${server.join('\n')}\n${settings}`);
    return start('serve', ['--config', file, '--data', data], folder);
  }

  const self = {
    folder,
    /** Where programs send. */
    get gateway() {
      return running.addresses.listening;
    },
    /** Where the console is. */
    get origin() {
      return running.addresses.admin;
    },
    get token() {
      return readFileSync(join(data, 'admin-token'), 'utf8').trim();
    },
    pid: () => running.child.pid,

    /** Calls the admin API. */
    async api(method, path, body) {
      const response = await fetch(self.origin + path, {
        method,
        headers: { authorization: `Bearer ${self.token}`, ...(body && { 'content-type': 'application/json' }) },
        body: body && JSON.stringify(body),
      });
      const text = await response.text();
      assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
      return text && JSON.parse(text);
    },

    /** A response of the admin API, whatever its status. */
    response: (path) => fetch(self.origin + path, { headers: { authorization: `Bearer ${self.token}` } }),

    /** Calls the admin API until the answer meets a condition. */
    async until(path, isMet, what) {
      const end = Date.now() + TIMEOUT;
      for (;;) {
        const body = await self.api('GET', path);
        if (isMet(body)) return body;
        assert.ok(Date.now() < end, `never: ${what}: ${JSON.stringify(body).slice(0, 2000)}`);
        await sleep(20);
      }
    },

    /** Sends a request through the gateway. */
    send: (path, init) => fetch(self.gateway + path, init),

    stop: (signal) => stop(running.child, signal),

    /** Starts it again, at the same addresses. */
    async restart({ settings: changed } = {}) {
      await stop(running.child);
      listen = new URL(running.addresses.listening).host;
      admin = new URL(running.addresses.admin).host;
      if (changed !== undefined) settings = changed;
      running = await run();
    },
  };
  return self;
}

/**
 * An upstream whose responses a test decides.
 * @param {(request: import('node:http').IncomingMessage & { text: string }, response: import('node:http').ServerResponse) => void} respond
 */
export async function startUpstream(respond) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const received = Object.assign(request, { text: Buffer.concat(chunks).toString() });
    requests.push({ method: request.method, url: request.url, headers: request.headers, text: received.text, at: Date.now() });
    respond(received, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    stop: () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())),
  };
}

/**
 * A server that passes everything to a real one, except for what a test answers itself.
 * @param {{ origin: string, token: string }} real
 * @param {(path: string, response: import('node:http').ServerResponse) => boolean} answer Returns whether it has answered.
 */
export async function startScripted(real, answer) {
  return startUpstream(async (request, response) => {
    if (answer(request.url, response)) return;
    const headers = { ...request.headers, host: new URL(real.origin).host, authorization: `Bearer ${real.token}` };
    delete headers.origin;
    delete headers.connection;
    const passed = await fetch(real.origin + request.url, { method: request.method, headers, body: request.text || undefined, redirect: 'manual' });
    // fetch has decoded the body.
    const dropped = ['content-length', 'content-encoding', 'transfer-encoding', 'connection'];
    const kept = [...passed.headers].filter(([name]) => !dropped.includes(name));
    response.writeHead(passed.status, Object.fromEntries(kept));
    response.end(Buffer.from(await passed.arrayBuffer()));
  });
}
