import assert from "node:assert/strict";
import { test } from "node:test";

import { NoOutcome, capabilities, resume, streamTool } from "../src/index.ts";
import { Server, connected, settled } from "./http.ts";

const ASKED = {
  resultType: "input_required",
  requestState: "s",
  inputRequests: {
    title: { method: "elicitation/create", params: { message: "?", requestedSchema: { type: "object", properties: {} } } },
    roots: { method: "roots/list" },
  },
};

for (const leaves of ["aborted", "left"]) {
  test(`a call that is ${leaves} while a question is open is cancelled by an answer whose response is closed`, async () => {
    const server = new Server(true);
    const client = await connected(server, { ...capabilities, roots: {} }, () => new Promise(() => undefined));
    client.setRequestHandler("roots/list", () => new Promise(() => undefined));
    const controller = new AbortController();
    const stream = streamTool(client, "t", { a: 1 }, { signal: controller.signal });
    const events = stream[Symbol.asyncIterator]();
    const next = events.next().catch(() => undefined);
    await settled();
    const _meta = { "dev.mcp-hub/streams": { stream: "st_1", cursor: "2", events: [{ seq: 2, type: "attempt", data: {} }] } };
    server.play({ notification: { method: "notifications/progress", params: { progress: 1, _meta } } });
    server.play({ result: ASKED });
    await settled();
    await (leaves === "left" ? next.then(() => events.return()) : controller.abort());
    await next;
    await settled();
    const [first, second, ...more] = server.calls;
    assert.deepEqual(more, []);
    assert.deepEqual(second?.["inputResponses"], { title: { action: "cancel" }, roots: { roots: [] } });
    assert.deepEqual([second?.["requestState"], second?.["name"], second?.["arguments"]], ["s", "t", first?.["arguments"]]);
    assert.equal(server.closed, 1);
  });
}

for (const [what, result] of [
  ["has ended with it", { ...ASKED, _meta: { "dev.mcp-hub/streams": { stream: "st_1", cursor: "2", status: "completed" } } }],
  ["has no stream", ASKED],
] as const) {
  test(`a call that is left while a question is open, and ${what}, is not repeated`, async () => {
    const server = new Server(true);
    const client = await connected(server, { ...capabilities, roots: {} }, () => new Promise(() => undefined));
    client.setRequestHandler("roots/list", () => new Promise(() => undefined));
    const controller = new AbortController();
    const left = assert.rejects(streamTool(client, "t", {}, { signal: controller.signal }).result());
    await settled();
    server.play({ result });
    await settled();
    controller.abort();
    await left;
    await settled();
    assert.equal(server.calls.length, 1);
  });
}

test("a call whose question was answered is cancelled by closing its response", async () => {
  const server = new Server(true);
  const controller = new AbortController();
  const stream = streamTool(await connected(server, capabilities), "t", {}, { signal: controller.signal });
  const result = assert.rejects(stream.result());
  await settled();
  const { title } = ASKED.inputRequests;
  server.play({ result: { ...ASKED, inputRequests: { title } } });
  await settled();
  controller.abort();
  await result;
  await settled();
  assert.deepEqual([server.calls.length, server.closed], [2, 1]);
});

test("a session that has ended is not tried again without a way to begin another one", async () => {
  const server = new Server(false);
  const result = resume(await connected(server, capabilities), "st_1").result();
  const rejected = assert.rejects(result, (error) => error instanceof NoOutcome && error.stream === "st_1");
  await settled();
  server.play({ refused: { status: 404 } });
  await rejected;
});
