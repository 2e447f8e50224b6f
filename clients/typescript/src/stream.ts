/** One call: its events, each once and in order, then its result. */

import type { CallToolResult, Client } from "@modelcontextprotocol/client";

import { ConnectionLost, StreamCancelled, StreamError, answered, refusal } from "./errors.ts";
import { isEnding, isKnown, part, plain } from "./events.ts";
import type { AnyEvent, Batch, Ending, Mark, Page, StreamEvent } from "./events.ts";
import { Joined } from "./joined.ts";
import { Reader, paused } from "./reader.ts";
import type { Connection } from "./reader.ts";
import { watch } from "./wire.ts";

export interface FollowOptions extends Connection {
  /** Aborting it cancels the call as its era and transport do, if its request is still open. */
  signal?: AbortSignal;
}

export interface CallOptions extends FollowOptions {
  /** Milliseconds that the call may take: one day. */
  timeout?: number;
}

type Request = { client: Client; name: string; args: Record<string, unknown>; timeout: number };
type Outcome = { result: CallToolResult } | { error: unknown };

const DAY = 86_400_000;
/** Events that wait to be taken. Later ones are not kept, but read when these are taken. */
const MOST_WAITING = 1000;
/** Milliseconds that an open request may be silent before the stream is looked at: its connection may be gone. */
export const patience = { quiet: 10_000 };
const LONG_POLL = 20_000;

/** The events of a call. It can be iterated once; the call begins with that, or with `result()`. */
export class ToolStream implements AsyncIterable<StreamEvent> {
  /** The stream's id, for `resume`; undefined until it is known. */
  id: string | undefined;
  /** The cursor behind the last event that was taken. */
  cursor: string;
  /** Some events could not be had: the server no longer keeps them, or they could not be read. */
  isTruncated = false;

  readonly #request: Request | undefined;
  readonly #signal: AbortSignal | undefined;
  readonly #left = new AbortController();
  readonly #reader: Reader;
  readonly #joined = new Joined();
  readonly #events: AsyncGenerator<StreamEvent, void>;
  #waiting: StreamEvent[] = [];
  #seen: number;
  #isOpen: boolean;
  /** There are events that the open request did not bring, or has not brought yet. */
  #isBehind = false;
  #task: string | undefined;
  #outcome: Outcome | undefined;
  #wake: () => void = () => undefined;

  constructor(client: Client, options: FollowOptions, request: Request | undefined, id?: string, cursor = "0") {
    this.id = id;
    this.cursor = cursor;
    this.#seen = Number(cursor);
    this.#request = request;
    this.#isOpen = request !== undefined;
    this.#signal = options.signal;
    this.#reader = new Reader(client, options, this.#left.signal);
    this.#events = this.#follow();
  }

  [Symbol.asyncIterator](): AsyncGenerator<StreamEvent, void> {
    return this.#events;
  }

  /** The result, without the mark, after the events that were not taken. Throws what the loop throws. */
  async result(): Promise<CallToolResult> {
    while (!(await this.#events.next()).done);
    const outcome = this.#outcome ?? { error: new StreamCancelled("the events were left before the result") };
    if ("error" in outcome) throw outcome.error;
    return outcome.result;
  }

  /** The text so far of content block `index` of the result. The result itself is right where they differ. */
  text(index = 0): string {
    return this.#joined.text(index);
  }

  async *#follow(): AsyncGenerator<StreamEvent, void> {
    const abort = () => this.#abort();
    this.#signal?.addEventListener("abort", abort);
    try {
      this.#signal?.throwIfAborted();
      if (this.#request !== undefined) this.#call(this.#request);
      while (this.#outcome === undefined || this.#waiting.length || this.#isBehind) {
        const event = this.#waiting.shift();
        if (event === undefined) await this.#more();
        else yield this.#taken(event);
        this.#signal?.throwIfAborted();
      }
      if ("error" in this.#outcome) throw this.#outcome.error;
    } catch (error) {
      this.#outcome = { error };
      throw error;
    } finally {
      this.#signal?.removeEventListener("abort", abort);
      this.#left.abort(new StreamCancelled("the events were left"));
      await this.#reader.close();
    }
  }

  #abort(): void {
    if (this.#task !== undefined && this.#outcome === undefined) this.#reader.cancel(this.#task);
    this.#end({ error: this.#signal?.reason });
    this.#left.abort(this.#signal?.reason);
  }

  #taken(event: StreamEvent): StreamEvent {
    this.cursor = String(event.seq);
    this.#joined.add(event);
    return event;
  }

  /** Returns when there may be something new. */
  async #more(): Promise<void> {
    if (this.id !== undefined && (!this.#isOpen || this.#isBehind)) return this.#read(this.#isOpen ? 0 : LONG_POLL);
    const silence = new AbortController();
    const woken = new Promise<void>((resolve) => (this.#wake = resolve));
    const quiet = paused(patience.quiet, silence.signal).then(() => (this.#isBehind ||= !silence.signal.aborted));
    await Promise.race([woken, quiet]);
    silence.abort();
  }

  // -- the request

  #call({ client, name, args, timeout }: Request): void {
    const transport = client.transport;
    const own = { ...args };
    if (transport !== undefined) {
      watch(transport, own, {
        lost: () => this.#lost(undefined),
        task: (id) => (this.id = this.#task = id),
      });
    }
    const onprogress = (progress: object) => this.#notified(part<Batch>((progress as { _meta?: unknown })._meta));
    const options = { onprogress, signal: this.#left.signal, timeout };
    client.callTool({ name, arguments: own }, options).then(
      (result) => this.#answered(result as CallToolResult),
      (error: unknown) => this.#failed(error),
    );
  }

  #notified(batch: Batch | undefined): void {
    if (batch === undefined) return;
    this.#belongsTo(batch.stream);
    if (this.#seen === 0) this.#seen = 1; // the start is not sent
    this.#isBehind = !this.#take(batch.events);
    this.#wake();
  }

  /** The request may have been made again with the answers to questions, as a call of its own. */
  #belongsTo(stream: string): void {
    if (stream === this.id) return;
    this.id = stream;
    this.#seen = 0;
  }

  #answered(result: CallToolResult): void {
    const mark = part<Mark>(result._meta);
    this.#isOpen = false;
    if (mark !== undefined) {
      this.#belongsTo(mark.stream);
      if (mark.status === "working" || mark.status === "input_required") return this.#wake(); // not the result
      this.#isBehind = this.#seen > 0 && this.#seen < Number(mark.cursor) - 1;
    }
    this.#end({ result: plain(result) });
  }

  #failed(error: unknown): void {
    const refused = answered(error);
    if (refused !== undefined) this.#end({ error: refusal(refused) });
    else this.#lost(error);
  }

  /** The response will not come. What is known of the stream is read. */
  #lost(cause: unknown): void {
    if (!this.#isOpen) return;
    this.#isOpen = this.#isBehind = false;
    if (this.id === undefined) this.#end({ error: new ConnectionLost("the call was lost", undefined, "0", cause) });
    this.#wake();
  }

  // -- reading

  async #read(waitMs: number): Promise<void> {
    let page: Page;
    try {
      page = await this.#reader.page(this.id ?? "", String(this.#seen), waitMs);
    } catch (error) {
      // an intermediary that does not know the extension: the events come with the request only
      const isUnknown = this.#isOpen && error instanceof StreamError && error.code === -32601;
      if (this.#outcome === undefined && !isUnknown) throw error;
      this.#isBehind = false;
      this.isTruncated = true;
      return;
    }
    const [first] = page.events;
    if (page.truncated && first !== undefined) {
      this.isTruncated = true;
      this.#seen = Math.max(this.#seen, first.seq - 1);
    }
    if (!this.#take(page.events)) {
      if (this.#waiting.length < MOST_WAITING) throw leftOut(this.#seen + 1);
      return;
    }
    this.#isBehind = !page.closed && page.events.length > 0;
    const last = page.events.at(-1);
    if (page.closed && last !== undefined && isEnding(last)) this.#end(outcomeOf(last));
    else if (page.closed) this.#end({ error: new StreamError({ code: -32603, message: "the stream had ended before" }) });
  }

  /** Whether all events are kept: the next ones, and those that are known already. */
  #take(events: AnyEvent[]): boolean {
    for (const event of events) {
      if (event.seq <= this.#seen) continue;
      if (event.seq !== this.#seen + 1 || this.#waiting.length >= MOST_WAITING) return false;
      this.#seen = event.seq;
      if (isKnown(event)) this.#waiting.push(event);
    }
    return true;
  }

  #end(outcome: Outcome): void {
    this.#outcome ??= outcome;
    this.#wake();
  }
}

function leftOut(seq: number): StreamError {
  return new StreamError({ code: -32603, message: `the server left out event ${seq}` });
}

function outcomeOf(ending: Ending): Outcome {
  if (ending.type === "error") return { error: refusal(ending.data.jsonrpc, ending.data.outcome) };
  if (ending.data.result !== undefined) return { result: plain(ending.data.result) };
  return { error: new StreamCancelled(ending.data.reason ?? "the call was cancelled") };
}

/** Calls a tool. The client has declared `capabilities`; towards another server it is a call without events. */
export function streamTool(
  client: Client,
  name: string,
  args: Record<string, unknown> = {},
  { timeout = DAY, ...options }: CallOptions = {},
): ToolStream {
  return new ToolStream(client, options, { client, name, args, timeout });
}

/** The rest of a call: the events behind `cursor`, `"0"` for all of them, then the result. */
export function resume(client: Client, stream: string, cursor = "0", options: FollowOptions = {}): ToolStream {
  return new ToolStream(client, options, undefined, stream, cursor);
}
