// The parts of Node that the tests use. Node's own types would also change the types of timers in
// the console's files.

declare module 'node:test' {
  interface TestContext {
    diagnostic(text: string): void;
  }
  export function test(name: string, body: (context: TestContext) => void | Promise<void>): void;
}

declare module 'node:assert/strict' {
  interface Assert {
    (value: unknown, message?: string): asserts value;
    equal(actual: unknown, expected: unknown, message?: string): void;
    notEqual(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
    match(text: string, pattern: RegExp, message?: string): void;
    throws(body: () => unknown, expected?: RegExp, message?: string): void;
  }
  const assert: Assert;
  export default assert;
}

declare module 'node:fs' {
  export function readFileSync(path: URL, encoding: 'utf8'): string;
  export function readdirSync(path: URL): string[];
}

declare module 'node:zlib' {
  export function gzipSync(text: string, options: { level: number }): Uint8Array;
}
