/** The messages of dev.mcp-hub/streams (docs/specification/streams.md): events, pages, marks. */

import type { CallToolResult, ContentBlock } from "@modelcontextprotocol/client";

export const EXTENSION = "dev.mcp-hub/streams";

/** What a client declares to get events; spread it into the `capabilities` of a `Client`. */
export const capabilities = { experimental: { [EXTENSION]: {} }, extensions: { [EXTENSION]: {} } };

type Of<Type extends string, Data> = { readonly seq: number; readonly type: Type; readonly data: Data };

/** Section 3 of the specification. `start` and the ending are not events for a reader: the ending is the result. */
export type StreamEvent =
  | Of<"delta", { channel: string; index: number; content: ContentBlock[] }>
  | Of<"progress", { progress: number; total?: number; message?: string; _meta?: Record<string, unknown> }>
  | Of<"log", { level: string; logger?: string; data: unknown }>
  | Of<"notification", { method: string; params: unknown }>
  | Of<"input-required", { key: string; method: string; params: Record<string, unknown> }>
  | Of<"input-received", { key: string; remaining?: number; action?: string }>
  | Of<"tool-call", { call: string; name: string; line?: number; arguments: Record<string, unknown> }>
  | Of<"tool-result", { call: string; isError: boolean; content: ContentBlock[] }>
  | Of<"attempt", { attempt: number; reason: string; after: number; detail?: string }>
  | Of<"reset", { attempt: number; reason: string; discard_from: number }>;

export type Ending =
  | Of<"end", { outcome: "ok" | "tool_error" | "cancelled"; result?: LoggedResult; reason?: string }>
  | Of<"error", { code: string; retryable: boolean; outcome?: "unknown"; detail: string; jsonrpc: JsonRpcError }>;

/** A result as the log has it, in the era of the tool. */
export type LoggedResult = CallToolResult & { resultType?: string };

export type JsonRpcError = { code: number; message: string; data?: unknown };

/** An event as it comes: its type need not be one that this version knows. */
export type AnyEvent = { seq: number; type: string; data: unknown };

/** `_meta` of a progress notification (section 4). */
export type Batch = { stream: string; cursor: string; events: AnyEvent[] };

/** `_meta` of a result (section 5). */
export type Mark = { stream: string; cursor: string; status: string };

/** The result of `streams.read` (section 6). */
export type Page = { events: AnyEvent[]; cursor: string; truncated: boolean; closed: boolean };

const KNOWN = new Set<string>([
  "delta", "progress", "log", "notification", "input-required", "input-received", "tool-call", "tool-result", "attempt",
  "reset",
] satisfies StreamEvent["type"][]);

export function isKnown(event: AnyEvent): event is StreamEvent {
  return KNOWN.has(event.type);
}

export function isEnding(event: AnyEvent): event is Ending {
  return event.type === "end" || event.type === "error";
}

/** The result of the tool itself, the same whether the response brought it or the log. */
export function plain(result: CallToolResult): CallToolResult {
  const { _meta, resultType: _, ...own } = result as CallToolResult & { resultType?: unknown };
  const { [EXTENSION]: _mark, ...meta } = _meta ?? {};
  return Object.keys(meta).length ? { ...own, _meta: meta } : own;
}

/** The member of a `_meta` that is this extension's. */
export function part<T>(meta: unknown): T | undefined {
  return (meta as Record<string, T> | undefined)?.[EXTENSION];
}
