// Node's http and tls modules through the gateway as a proxy, as the agents of its packages do it.
//
// Usage: node_proxy.mjs PROXY HTTP_URL HTTPS_URL CA

import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import https from "node:https";

const [proxy, plain, secure, ca] = process.argv.slice(2);
const { hostname, port, username, password } = new URL(proxy);
const credentials = Buffer.from(`${username}:${password}`).toString("base64");
const headers = { "proxy-authorization": `Basic ${credentials}` };

/** The response of a request, with its text. */
const responseOf = (request) =>
  new Promise((resolve, reject) => {
    request.on("error", reject).on("response", async (response) => {
      response.text = (await response.toArray()).join("");
      resolve(response);
    });
    request.end();
  });

const url = `${plain}/hello.txt`;
const got = await responseOf(http.request({ hostname, port, path: url, headers }));
assert.deepEqual([got.statusCode, got.text], [200, "hello\n"]);
assert.equal(got.headers["tidegate-attempts"], "1");

const target = new URL(secure);
const connect = http.request({ hostname, port, method: "CONNECT", path: target.host, headers });
const socket = await new Promise((resolve, reject) => {
  connect.on("error", reject).on("connect", (response, stream) => {
    assert.equal(response.statusCode, 200);
    assert.ok(response.headers["tidegate-request-id"]);
    resolve(stream);
  });
  connect.end();
});
const inside = https.request(`${secure}/hello.txt`, { socket, agent: false, ca: fs.readFileSync(ca) });
const seen = await responseOf(inside);
assert.deepEqual([seen.statusCode, seen.text], [200, "hello\n"]);
