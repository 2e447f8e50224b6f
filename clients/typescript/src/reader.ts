/** Pages of a stream, over as many connections as it takes (sections 6 and 7). */

import type { Client, StandardSchemaV1 } from "@modelcontextprotocol/client";

import { NoOutcome, StreamError, failure } from "./errors.ts";
import { EXTENSION } from "./events.ts";
import type { Page } from "./events.ts";

export interface Connection {
  /**
   * Opens a new connection as the same principal and returns its client, which is closed at the end. Without it,
   * a lost connection is used again: enough over HTTP, as long as the server knows the session.
   */
  reconnect?: () => Promise<Client>;
  /** Milliseconds for which a lost connection is tried again: 60,000. */
  patience?: number;
}

const PATIENCE = 60_000;
const FIRST_PAUSE = 100;
const LONGEST_PAUSE = 5_000;
/** Events of a page. */
const MOST = 500;
/** Milliseconds that a page may come later than was asked for, and that a new connection may take. */
const GRACE = 10_000;
/** HTTP statuses, without a JSON-RPC error, after which a read is tried again. */
const PASSING = [429, 502, 503, 504];

/** The SDK asks for a schema; what is read here is checked by what reads it. */
const ANYTHING: StandardSchemaV1<unknown, Page> = {
  "~standard": { version: 1, vendor: EXTENSION, validate: (value) => ({ value: value as Page }) },
};

export class Reader {
  #client: Client;
  #own: Client | undefined;
  readonly #how: Connection;
  readonly #signal: AbortSignal;

  constructor(client: Client, how: Connection, signal: AbortSignal) {
    this.#client = client;
    this.#how = how;
    this.#signal = signal;
  }

  /** The events behind a cursor. Throws `StreamError` for what the server refuses, `NoOutcome`. */
  async page(stream: string, cursor: string, waitMs: number): Promise<Page> {
    const last = Date.now() + (this.#how.patience ?? PATIENCE);
    let maxEvents = MOST;
    for (let pause = FIRST_PAUSE; ; pause = Math.min(pause * 2, LONGEST_PAUSE)) {
      let found: unknown;
      try {
        const params = { stream, cursor, waitMs, maxEvents, minEvents: 1 };
        const options = { signal: this.#signal, timeout: waitMs + GRACE };
        return await this.#client.request({ method: `${EXTENSION}.read`, params }, ANYTHING, options);
      } catch (error) {
        found = error;
      }
      this.#signal.throwIfAborted();
      const later = this.#later(found);
      if (later === "never") throw new NoOutcome("the stream cannot be read", stream, cursor, found);
      const delay = later ?? pause * (0.5 + Math.random() / 2);
      if (Date.now() + delay > last) throw new NoOutcome("the connection could not be restored", stream, cursor, found);
      await paused(delay, this.#signal);
      if (later !== undefined) continue;
      maxEvents = Math.ceil(maxEvents / 4); // a page that is cut again and again has to become small enough
      await this.#reconnect();
    }
  }

  /** Milliseconds that the server wants; undefined: by a new connection; never: it is of no use. Throws `StreamError`. */
  #later(found: unknown): number | "never" | undefined {
    const { status, refused } = failure(found);
    if (status === 404 && this.#client.getProtocolEra() === "legacy") {
      return this.#how.reconnect ? undefined : "never"; // the session has ended
    }
    if (refused !== undefined) {
      const after = Number((refused.data as { retryAfter?: number } | null | undefined)?.retryAfter ?? NaN);
      if (Number.isNaN(after)) throw new StreamError(refused);
      return after * 1000;
    }
    return status === undefined || PASSING.includes(status) ? undefined : "never";
  }

  /** Cancels a call that became a task. An answer is not waited for. */
  cancel(task: string): void {
    const options = { headers: { "mcp-name": task } };
    this.#client.request({ method: "tasks/cancel", params: { taskId: task } }, ANYTHING, options).catch(() => undefined);
  }

  async close(): Promise<void> {
    await this.#own?.close().catch(() => undefined);
  }

  async #reconnect(): Promise<void> {
    if (this.#how.reconnect === undefined) return;
    const made = this.#how.reconnect();
    try {
      const client = await Promise.race([made, paused(GRACE, this.#signal)]);
      if (client === undefined) return void made.then((late) => late.close()).catch(() => undefined);
      await this.close();
      this.#client = this.#own = client;
    } catch {
      // the next attempt is made over the old connection, fails as well, and comes back here after a longer pause
    }
  }
}

/** Returns after so many milliseconds, or when the signal is aborted. */
export function paused(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
}
