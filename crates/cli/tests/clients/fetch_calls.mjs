// Node's fetch, with nothing changed but the base URL: methods, JSON, streams in both directions.

import assert from "node:assert/strict";

const base = process.argv[2];

const got = await fetch(`${base}/echo?q=1`, { headers: { "x-app": "node" } });
assert.equal(got.status, 200);
assert.equal(got.headers.get("tidegate-attempts"), "1");
const seen = await got.json();
assert.equal(seen.method, "GET");
assert.equal(seen.headers["x-app"], "node");

const posted = await fetch(`${base}/echo`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ text: "ä".repeat(1000) }),
});
assert.equal((await posted.json()).body_length, '{"text":""}'.length + 2000);

// A body that is made while it is sent.
const pieces = new ReadableStream({
  start(controller) {
    for (let number = 0; number < 100; number += 1) {
      controller.enqueue(new Uint8Array(1000));
    }
    controller.close();
  },
});
const streamed = await fetch(`${base}/echo`, { method: "POST", body: pieces, duplex: "half" });
assert.equal((await streamed.json()).body_length, 100_000);

// Events are there before the last has come.
const events = await fetch(`${base}/sse?n=5&every=50ms`);
let [chunks, text] = [0, ""];
for await (const chunk of events.body.pipeThrough(new TextDecoderStream())) {
  chunks += 1;
  text += chunk;
}
assert.equal(text.match(/^data:/gm).length, 5);
assert.ok(chunks > 1, "all events came in one piece");

// Many at once, over as many connections as it likes.
const many = Array.from({ length: 50 }, (_, number) => fetch(`${base}/bytes/${number * 1000}`));
for (const [number, answer] of (await Promise.all(many)).entries()) {
  assert.equal((await answer.arrayBuffer()).byteLength, number * 1000);
}

const missing = await fetch(base.replace("/api", "/nowhere"));
assert.equal(missing.status, 404);
assert.equal((await missing.json()).reason, "no_route");
