/** A server in the same process, as a transport: it answers requests with what a test has written down. */

import { Client } from "@modelcontextprotocol/client";
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/client";

import { EXTENSION, capabilities } from "../src/index.ts";

export type Message = { id?: number; method?: string; params?: Record<string, any> };
type Answer = { result?: object; error?: { code: number; message: string; data?: object } } | undefined;

export class FakeTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: Transport["onmessage"];
  readonly sent: Message[] = [];
  readonly #answer: (message: Message, transport: FakeTransport) => Answer | Promise<Answer>;

  constructor(answer: (message: Message, transport: FakeTransport) => Answer | Promise<Answer>) {
    this.#answer = answer;
  }

  async start(): Promise<void> {}

  async close(): Promise<void> {
    this.onclose?.();
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const { id, method, params } = message as Message;
    this.sent.push({ method: method ?? "", params: params ?? {} });
    if (id === undefined) return;
    const serverInfo = { name: "fake", version: "1" };
    const hello = { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo };
    const answer = method === "initialize" ? { result: hello } : await this.#answer(message as Message, this);
    if (answer !== undefined) this.push({ jsonrpc: "2.0", id, ...answer });
  }

  push(message: object): void {
    this.onmessage?.(message as JSONRPCMessage);
  }

  /** A progress notification with these events. */
  notify(call: Message, ...events: object[]): void {
    const { progressToken } = call.params?.["_meta"] as { progressToken: number };
    const last = (events.at(-1) as { seq: number }).seq;
    const _meta = { [EXTENSION]: { stream: "st_1", cursor: String(last), events } };
    this.push({ jsonrpc: "2.0", method: "notifications/progress", params: { progressToken, progress: last, _meta } });
  }
}

export async function connected(transport: FakeTransport): Promise<Client> {
  const client = new Client({ name: "test", version: "1" }, { capabilities });
  await client.connect(transport);
  return client;
}

export const delta = (seq: number, text = `${seq}`) => ({
  seq, type: "delta", data: { channel: "content", index: 0, content: [{ type: "text", text }] },
});
export const RESULT = { content: [{ type: "text", text: "done" }], isError: false };
export const ended = (seq: number) => ({ seq, type: "end", data: { outcome: "ok", result: RESULT } });
export const mark = (cursor: number, status = "completed") => ({
  _meta: { [EXTENSION]: { stream: "st_1", cursor: String(cursor), status } },
});
export const page = (events: { seq: number }[], closed: boolean, truncated = false) => ({
  result: { events, cursor: String(events.at(-1)?.seq ?? 0), truncated, closed },
});
