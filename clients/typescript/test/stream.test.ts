import assert from "node:assert/strict";
import { test } from "node:test";

import { BrokenStream, NoOutcome, StreamCancelled, resume, streamTool } from "../src/index.ts";
import type { ToolStream } from "../src/index.ts";
import { FakeTransport, RESULT, connected, delta, ended, mark, page } from "./fake.ts";

const START = { seq: 1, type: "start", data: {} };

async function numbers(stream: ToolStream): Promise<number[]> {
  const seen: number[] = [];
  for await (const event of stream) seen.push(event.seq);
  return seen;
}

test("events come in order, then the result without the mark", async () => {
  const fake = new FakeTransport((call, server) => {
    for (const seq of [2, 3, 4]) server.notify(call, delta(seq));
    return { result: { ...RESULT, ...mark(5) } };
  });
  const stream = streamTool(await connected(fake), "t");
  assert.deepEqual(await numbers(stream), [2, 3, 4]);
  assert.deepEqual(await stream.result(), RESULT);
  assert.deepEqual([stream.text(), stream.id, stream.cursor], ["234", "st_1", "4"]);
});

test("an event of an unknown type counts and is not handed on", async () => {
  const fake = new FakeTransport((call, server) => {
    server.notify(call, delta(2), { seq: 3, type: "later", data: {} }, delta(4));
    return { result: { ...RESULT, ...mark(5) } };
  });
  assert.deepEqual(await numbers(streamTool(await connected(fake), "t")), [2, 4]);
});

test("what the request did not bring, or brought twice, is read and given once", async () => {
  const fake = new FakeTransport(({ method, params, ...call }, server) => {
    if (method !== "tools/call") return page([delta(3), delta(4), delta(5)].slice(Number(params?.["cursor"]) - 2), false);
    for (const seq of [2, 2, 4, 5]) server.notify({ params: params ?? {}, ...call }, delta(seq));
    return { result: { ...RESULT, ...mark(6) } };
  });
  assert.deepEqual(await numbers(streamTool(await connected(fake), "t")), [2, 3, 4, 5]);
});

test("events that nobody takes are not piled up, but read when they are", async () => {
  const all = Array.from({ length: 3000 }, (_, index) => delta(index + 2));
  const fake = new FakeTransport(({ method, params, ...call }, server) => {
    const after = Number(params?.["cursor"]);
    if (method !== "tools/call") return page(all.slice(after - 1, after - 1 + params?.["maxEvents"]), false);
    for (const event of all) server.notify({ params: params ?? {}, ...call }, event);
    return { result: { ...RESULT, ...mark(all.length + 2) } };
  });
  const seen = await numbers(streamTool(await connected(fake), "t"));
  assert.deepEqual(seen, all.map((event) => event.seq));
});

test("an early answer is not the result", async () => {
  const fake = new FakeTransport(({ method, ...call }, server) => {
    if (method !== "tools/call") return page([delta(3), ended(4)], true);
    server.notify(call, delta(2));
    return { result: { content: [{ type: "text", text: "still running" }], ...mark(2, "working") } };
  });
  const stream = streamTool(await connected(fake), "t");
  assert.deepEqual(await numbers(stream), [2, 3]);
  assert.deepEqual(await stream.result(), RESULT);
});

test("reset discards what was joined from there on", async () => {
  const reset = { seq: 4, type: "reset", data: { attempt: 2, reason: "crash", discard_from: 3 } };
  const fake = new FakeTransport(() => page([START, delta(2, "a"), delta(3, "b"), reset, delta(5, "c"), ended(6)], true));
  const stream = resume(await connected(fake), "st_1");
  assert.deepEqual(await stream.result(), RESULT);
  assert.equal(stream.text(), "ac");
});

test("a server that leaves out events is not believed", async () => {
  const fake = new FakeTransport(() => page([delta(4), delta(6), ended(7)], true));
  await assert.rejects(resume(await connected(fake), "st_1", "3").result(), (error) => {
    return error instanceof BrokenStream && error.message === "the server left out event 5";
  });
});

test("a stream whose beginning is gone goes on with what is kept, and says so", async () => {
  const fake = new FakeTransport(() => page([delta(7), ended(8)], true, true));
  const stream = resume(await connected(fake), "st_1", "3");
  assert.deepEqual(await numbers(stream), [7]);
  assert.equal(stream.isTruncated, true);
});

test("a lost connection is replaced, and the rest is read over the new one", async () => {
  const client = await connected(new FakeTransport((call, server) => {
    server.notify(call, delta(2), delta(3));
    setImmediate(() => server.close());
    return undefined;
  }));
  const second = new FakeTransport(({ params }) => page([delta(Number(params?.["cursor"]) + 1), ended(5)], true));
  let tries = 0;
  const reconnect = async () => {
    if (++tries < 3) throw new Error("refused");
    return connected(second);
  };
  const stream = streamTool(client, "t", {}, { reconnect });
  assert.deepEqual(await numbers(stream), [2, 3, 4]);
  assert.deepEqual(await stream.result(), RESULT);
  assert.equal(tries, 3);
});

test("a call that is lost before its first event is not made again", async () => {
  const fake = new FakeTransport((_, server) => void server.close());
  const stream = streamTool(await connected(fake), "t", {}, { reconnect: () => assert.fail() });
  await assert.rejects(stream.result(), (error) => error instanceof NoOutcome && error.stream === undefined);
  assert.equal(fake.sent.filter(({ method }) => method === "tools/call").length, 1);
});

test("patience ends", async () => {
  const client = await connected(new FakeTransport(() => page([], false)));
  await client.close();
  const stream = resume(client, "st_1", "3", { patience: 150 });
  await assert.rejects(stream.result(), (error) => error instanceof NoOutcome && error.cursor === "3");
});

test("a busy server is asked again after its pause, any other refusal is final", async () => {
  const refusals = [{ code: "busy", retryAfter: 0.01 }, { code: "unknown_stream" }];
  const fake = new FakeTransport(() => ({ error: { code: -32602, message: "no", data: refusals.shift() ?? {} } }));
  await assert.rejects(resume(await connected(fake), "st_1").result(), (error) => {
    return error instanceof NoOutcome && (error.cause as Error).message === "no";
  });
  assert.deepEqual(refusals, []);
});

test("endings other than a result are errors", async () => {
  const jsonrpc = { code: -32603, message: "restarted", data: { a: 1 } };
  const endings = [
    { seq: 2, type: "error", data: { code: "hub_restarted", outcome: "unknown", jsonrpc } },
    { seq: 2, type: "end", data: { outcome: "cancelled", reason: "by somebody" } },
  ];
  const client = await connected(new FakeTransport(() => page([START, endings.shift()!], true)));
  await assert.rejects(resume(client, "st_1").result(), { name: "StreamError", ...jsonrpc, outcome: "unknown" });
  await assert.rejects(resume(client, "st_1").result(), { name: "StreamCancelled", message: "by somebody" });
});

test("a call that somebody else cancelled is cancelled", async () => {
  const error = { code: 1009, message: "by somebody", data: { code: "cancelled" } };
  const client = await connected(new FakeTransport(() => ({ error })));
  await assert.rejects(streamTool(client, "t").result(), { name: "StreamCancelled", message: "by somebody" });
});

test("aborting cancels the request, and so does leaving the loop", async () => {
  const fake = new FakeTransport((call, server) => void server.notify(call, delta(2)));
  const client = await connected(fake);
  const controller = new AbortController();
  const aborted = streamTool(client, "t", {}, { signal: controller.signal });
  await assert.rejects(async () => {
    for await (const _ of aborted) controller.abort(new Error("enough"));
  }, { message: "enough" });
  const left = streamTool(client, "t");
  for await (const _ of left) break;
  await assert.rejects(left.result(), StreamCancelled);
  assert.equal(fake.sent.filter(({ method }) => method === "notifications/cancelled").length, 2);
});

test("a server behind an intermediary that cannot read streams still gives the result", async () => {
  const fake = new FakeTransport(({ method, ...call }, server) => {
    if (method !== "tools/call") return { error: { code: -32601, message: "Method not found" } };
    server.notify(call, delta(2));
    server.notify(call, delta(4));
    setTimeout(() => server.push({ jsonrpc: "2.0", id: call.id, result: RESULT }), 50);
    return undefined;
  });
  const stream = streamTool(await connected(fake), "t");
  assert.deepEqual(await numbers(stream), [2]);
  assert.deepEqual(await stream.result(), RESULT);
});
