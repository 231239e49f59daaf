// Requests that are given up: while the answer's head is waited for, and in the midst of its body.
// The process lives on until its stdin ends, so that nothing but the aborts can end them.

import assert from "node:assert/strict";

const base = process.argv[2];
const isAbort = (error) => error.name === "AbortError";

const waiting = new AbortController();
const slow = fetch(`${base}/slow?first=1h`, { signal: waiting.signal });
const reading = new AbortController();
const events = await fetch(`${base}/sse?n=1000000&every=10ms`, { signal: reading.signal });
const reader = events.body.getReader();
await reader.read();

console.log("under way");
for await (const _ of process.stdin) {
  waiting.abort();
  reading.abort();
  await assert.rejects(slow, isAbort);
  await assert.rejects(async () => {
    while (!(await reader.read()).done);
  }, isAbort);
  console.log("aborted");
}
