/**
 * The vectors of clients (docs/specification/vectors/clients), played to the client over the SDK's own HTTP transport.
 * Time is the test's. What a program makes of the events, `progress` and `aux`, is not the client's.
 */

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { mock, test } from "node:test";

import type { Client } from "@modelcontextprotocol/client";

import { BrokenStream, NoOutcome, StreamCancelled, StreamError, capabilities, resume, streamTool } from "../src/index.ts";
import type { ToolStream } from "../src/index.ts";
import { Server, connected, settled } from "./http.ts";
import type { Json } from "./http.ts";

/** Milliseconds of virtual time between two looks, and after which a read is not expected any more. */
const STEP = 10;
const LONGEST = 20_000;
const NOT_THE_CLIENTS = ["progress", "aux"];

function folder(): string {
  for (let here = import.meta.dirname; ; here = dirname(here)) {
    const found = join(here, "docs/specification/vectors/clients");
    if (existsSync(found)) return found;
    assert.notEqual(here, dirname(here), "the vectors are not there");
  }
}

/** A client that follows one call, and the program that uses it. */
class Program {
  readonly server: Server;
  readonly log: object[] = [];
  sessions = 0;
  outcome: Json | undefined;
  mayRepeat = false;
  stream!: ToolStream;

  constructor(isModern: boolean) {
    this.server = new Server(isModern);
  }

  async begin({ stream, cursor = 0 }: Json): Promise<void> {
    const reconnect = () => this.#connected();
    const client = await this.#connected();
    this.stream = stream
      ? resume(client, stream, String(cursor), { reconnect })
      : streamTool(client, "t", {}, { reconnect });
    void this.#follow().then((outcome) => (this.outcome = outcome));
  }

  async #connected(): Promise<Client> {
    this.sessions++;
    const client = await connected(this.server, capabilities);
    client.setNotificationHandler("notifications/message", ({ params }) => void this.log.push(params));
    return client;
  }

  async #follow(): Promise<Json> {
    try {
      for await (const event of this.stream) if (event.type === "log") this.log.push(event.data);
      return { result: await this.stream.result() };
    } catch (error) {
      if (error instanceof NoOutcome) return { unknown: true };
      if (error instanceof StreamCancelled) return { cancelled: true };
      if (error instanceof BrokenStream) return { broken: true };
      assert.ok(error instanceof StreamError, String(error));
      this.mayRepeat = error.retryable;
      return { error: { code: error.code, message: error.message, data: error.data } };
    }
  }

  /** Milliseconds until there is a read, over so many sessions. */
  async untilRead(sessions: number): Promise<number> {
    for (let waited = 0; ; waited += STEP) {
      await settled();
      if (this.server.reading && this.sessions >= sessions) return waited;
      assert.ok(waited < LONGEST && !this.outcome, `a read is due, not ${JSON.stringify(this.outcome)}`);
      mock.timers.tick(STEP);
    }
  }

  async check({ next, cursor, pause, ...knows }: Json, sessions: number): Promise<void> {
    if (next === "read" || next === "new session") {
      const waited = await this.untilRead(next === "read" ? this.sessions : sessions + 1);
      if (pause !== undefined) assert.equal(waited, pause * 1000);
      if (cursor !== undefined) assert.equal(this.server.reading?.["cursor"], cursor);
    } else if (next !== undefined) {
      assert.equal(this.server.reading, undefined, "no read is due");
      assert.equal(this.outcome === undefined ? "wait" : "done", next);
    }
    if (next === "wait" && cursor !== undefined) assert.equal(this.stream.cursor, cursor);
    for (const [name, expected] of Object.entries(knows)) {
      if (!NOT_THE_CLIENTS.includes(name)) includes(this.#seen(name, expected), expected, name);
    }
  }

  #seen(name: string, expected: Json): unknown {
    switch (name) {
      case "text":
        return Object.fromEntries(Object.keys(expected).map((index) => [index, this.stream.text(Number(index))]));
      case "whole":
        return this.stream.isWhole;
      case "stream":
        return this.stream.id ?? null;
      case "may_repeat":
        return this.mayRepeat;
      case "outcome":
        return this.outcome;
      default:
        assert.equal(name, "log");
        return this.log;
    }
  }
}

/** Objects may have more members. */
function includes(actual: unknown, expected: unknown, where: string): void {
  if (expected === null || typeof expected !== "object" || Array.isArray(expected)) {
    assert.deepEqual(actual, expected, where);
    return;
  }
  assert.ok(typeof actual === "object" && actual !== null, `${where} is ${JSON.stringify(actual)}`);
  for (const [name, its] of Object.entries(expected)) includes((actual as Json)[name], its, `${where}.${name}`);
}

for (const file of readdirSync(folder()).sort()) {
  const [head, first, ...steps] = readFileSync(join(folder(), file), "utf8").trim().split("\n").map((line) => JSON.parse(line));
  // it always gives a token
  test(head.scenario, { skip: first.client.token === false }, async () => {
    mock.timers.enable({ apis: ["setTimeout", "Date"] });
    mock.method(Math, "random", () => 1);
    try {
      const program = new Program(first.client.era === "modern");
      await program.begin(first.client);
      let { sessions } = program;
      for (const step of steps) {
        await settled();
        if (step.page || step.refused) await program.untilRead(0);
        if (step.then) await program.check(step.then, sessions);
        else {
          sessions = program.sessions;
          program.server.play(step);
        }
      }
      assert.ok(program.server.calls.length <= 1 + steps.filter(({ result }) => result?.resultType === "input_required").length);
    } finally {
      mock.timers.reset();
      mock.restoreAll();
    }
  });
}
