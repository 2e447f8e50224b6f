/** One call: its events, each once and in order, then its result. */

import type { CallToolResult, Client } from "@modelcontextprotocol/client";

import { BrokenStream, NoOutcome, StreamCancelled, StreamError, failure, wordOf } from "./errors.ts";
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
const NO_METHOD = -32601;

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
  #joined = new Joined();
  readonly #events: AsyncGenerator<StreamEvent, void>;
  #waiting: { event: StreamEvent; of: Joined }[] = [];
  /** The number of the last event that is there: taken, waiting, or of no use. */
  #seen: number;
  #isOpen: boolean;
  /** There are events that the open request did not bring, or has not brought yet. */
  #isBehind = false;
  /** By an intermediary that does not know the extension: the call is one without a stream. */
  #isRelayed = false;
  /** The ending is read once more. */
  #isAgain = false;
  #task: string | undefined;
  /** Cancels the call while it waits for answers. */
  #refuse: (() => void) | undefined;
  /** Of a call that was cancelled, unless its log ends with an error. */
  #cancelled: Outcome | undefined;
  #outcome: Outcome | undefined;
  #wake: () => void = () => undefined;

  constructor(client: Client, options: FollowOptions, request: Request | undefined, id?: string, cursor = "0") {
    this.id = id;
    this.cursor = cursor;
    this.#seen = Number(cursor);
    this.#joined.isWhole = this.#seen === 0;
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

  /** `text` has no gap. It has one behind a cursor other than `"0"`, and where events could not be had. */
  get isWhole(): boolean {
    return this.#joined.isWhole;
  }

  async *#follow(): AsyncGenerator<StreamEvent, void> {
    const abort = () => this.#abort();
    this.#signal?.addEventListener("abort", abort);
    try {
      this.#signal?.throwIfAborted();
      if (this.#request !== undefined) this.#call(this.#request);
      while (this.#outcome === undefined || this.#waiting.length || this.#isBehind) {
        const next = this.#waiting.shift();
        if (next === undefined) await this.#more();
        else yield this.#taken(next);
        this.#signal?.throwIfAborted();
      }
      if ("error" in this.#outcome) throw this.#outcome.error;
    } catch (error) {
      this.#outcome = { error };
      throw error;
    } finally {
      this.#signal?.removeEventListener("abort", abort);
      this.#withdraw();
      this.#left.abort(new StreamCancelled("the events were left"));
      await this.#reader.close();
    }
  }

  #abort(): void {
    if (this.#task !== undefined && this.#outcome === undefined) this.#reader.cancel(this.#task);
    this.#end({ error: this.#signal?.reason });
    this.#withdraw();
    this.#left.abort(this.#signal?.reason);
  }

  /** Cancels a call that waits for answers: it has no request that could be closed. */
  #withdraw(): void {
    if (this.#isOpen && this.id !== undefined) this.#refuse?.();
    this.#refuse = undefined;
  }

  #taken({ event, of }: { event: StreamEvent; of: Joined }): StreamEvent {
    of.add(event);
    if (of === this.#joined) this.cursor = String(event.seq);
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
        task: (id) => this.#belongsTo((this.#task = id)),
        asked: (refuse) => (this.#refuse = refuse),
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
    if (batch === undefined || this.#isRelayed) return;
    this.#belongsTo(batch.stream);
    this.#seen ||= 1; // the start is not sent
    if (!this.#take(batch.events)) this.#isBehind = true;
    this.#wake();
  }

  /** The request may have been made again with the answers to questions, as a call of its own with a log of its own. */
  #belongsTo(stream: string): void {
    if (stream === this.id) return;
    if (this.id !== undefined) {
      this.#joined = new Joined();
      this.cursor = "0";
    }
    this.id = stream;
    this.#seen = 0;
    this.#isBehind = false;
  }

  #answered(result: CallToolResult): void {
    const mark = part<Mark>(result._meta);
    const isEarly = mark?.status === "working" || mark?.status === "input_required";
    this.#isOpen = false;
    if (this.#outcome !== undefined) return;
    if (this.#isRelayed && isEarly) return this.#end({ error: this.#unknown("an early answer, and no way to read on") });
    if (mark !== undefined && !this.#isRelayed) {
      this.#belongsTo(mark.stream);
      if (isEarly) return this.#early(Number(mark.cursor));
      this.#seen ||= 1;
      this.#isBehind = this.#seen < Number(mark.cursor) - 1;
    }
    this.#end({ result: plain(result) });
  }

  /** The response is not the result. */
  #early(cursor: number): void {
    if (this.#seen === 0) {
      this.#seen = cursor;
      this.#joined.isWhole = cursor === 0;
    }
    this.#wake();
  }

  #failed(error: unknown): void {
    const { refused } = failure(error);
    const word = refused && wordOf(refused);
    if (refused === undefined || word === "unknown_state") return this.#lost(error); // an earlier copy has been taken
    if (word !== "cancelled") return this.#end({ error: new StreamError(refused) });
    this.#cancelled = { error: new StreamCancelled(refused.message) };
    this.#lost(error); // the log decides
  }

  /** The response will not come. What is known of the stream is read. */
  #lost(cause: unknown): void {
    if (!this.#isOpen) return;
    this.#isOpen = this.#isBehind = false;
    if (this.id === undefined) this.#end(this.#cancelled ?? { error: this.#unknown("the call was lost", cause) });
    this.#wake();
  }

  // -- reading

  async #read(waitMs: number): Promise<void> {
    let page: Page;
    try {
      page = await this.#reader.page(this.id ?? "", String(this.#seen), waitMs);
    } catch (error) {
      return this.#unread(error);
    }
    const [first] = page.events;
    if (page.truncated && first !== undefined) {
      this.#lacks();
      this.#seen = Math.max(this.#seen, first.seq - 1);
    }
    if (!this.#take(page.events)) {
      if (this.#waiting.length < MOST_WAITING) throw new BrokenStream(`the server left out event ${this.#seen + 1}`);
      return;
    }
    this.#isBehind = !page.closed && page.events.length > 0;
    if (page.closed) this.#closed(page.events.at(-1));
  }

  #unread(error: unknown): void {
    this.#isBehind = false;
    this.#lacks();
    const isRefused = error instanceof StreamError;
    if (this.#isOpen && isRefused && error.code === NO_METHOD) {
      this.#isRelayed = true;
      this.id = undefined;
    } else {
      const known = isRefused ? this.#unknown("the stream cannot be read", error) : error;
      this.#end(this.#cancelled ?? { error: known });
    }
  }

  #lacks(): void {
    this.isTruncated = true;
    this.#joined.isWhole = false;
  }

  /** There are no more events than this last one. */
  #closed(last: AnyEvent | undefined): void {
    if (this.#outcome !== undefined) return;
    if (last !== undefined && isEnding(last)) {
      const isCancelled = last.type === "end" && this.#cancelled !== undefined;
      const outcome = (isCancelled && this.#cancelled) || outcomeOf(last);
      if (outcome === undefined && this.#isOpen) return; // the response is to be answered
      this.#end(outcome || { error: this.#unknown("it ended with a question") });
    } else if (last === undefined && this.#seen > 0 && !this.#isAgain) {
      this.#isAgain = this.#isBehind = true; // the ending is the event at the cursor
      this.#seen--;
    } else {
      this.#end(this.#cancelled ?? { error: this.#unknown("the stream has no ending") });
    }
  }

  #unknown(message: string, cause?: unknown): NoOutcome {
    return new NoOutcome(message, this.id, String(this.#seen), cause);
  }

  /** Whether all events are kept: the next ones, and those that are known already. */
  #take(events: AnyEvent[]): boolean {
    for (const event of events) {
      if (event.seq <= this.#seen) continue;
      if (event.seq !== this.#seen + 1 || this.#waiting.length >= MOST_WAITING) return false;
      this.#seen = event.seq;
      if (isKnown(event)) this.#waiting.push({ event, of: this.#joined });
    }
    return true;
  }

  #end(outcome: Outcome): void {
    this.#outcome ??= outcome;
    this.#wake();
  }
}

/** None for a question: only the response could be answered. */
function outcomeOf({ type, data }: Ending): Outcome | undefined {
  if (type === "error") return { error: new StreamError(data.jsonrpc, data.outcome, data.retryable === true) };
  const { outcome, result, reason } = data;
  if (outcome === "cancelled" || result === undefined) {
    return { error: new StreamCancelled(reason ?? "the call was cancelled") };
  }
  return (result.resultType ?? "complete") === "complete" ? { result: plain(result) } : undefined;
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
