/** What the SDK hides of a call: a lost response stream, a task, an open question, a log message that is an event. */

import type { JSONRPCMessage, JSONRPCRequest, Transport, TransportSendOptions } from "@modelcontextprotocol/client";

import { part } from "./events.ts";
import type { Batch } from "./events.ts";

export interface Watcher {
  /** The response stream of the request has ended without the response. */
  lost(): void;
  /** The response made the call a task of this id. The SDK refuses such a response. */
  task(id: string): void;
  /** The call waits for answers in a repeated request; `refuse` sends one that cancels it. Undefined: not any more. */
  asked(refuse: (() => void) | undefined): void;
}

type Question = { inputRequests?: Record<string, { method: string }>; requestState?: unknown };
type Watched = { byArguments: WeakMap<object, Watcher>; byId: Map<string | number, { watcher: Watcher; message: JSONRPCRequest }> };

const transports = new WeakMap<Transport, Watched>();

/** Watches the request `tools/call` whose `arguments` are this very object. */
export function watch(transport: Transport, args: object, watcher: Watcher): void {
  let watched = transports.get(transport);
  if (watched === undefined) transports.set(transport, (watched = wrap(transport)));
  watched.byArguments.set(args, watcher);
}

function wrap(transport: Transport): Watched {
  const watched: Watched = { byArguments: new WeakMap(), byId: new Map() };
  const { send, onmessage } = transport;
  /** The event `log` that came last, as MCP may have it directly afterwards. */
  let logged: unknown;
  transport.send = (message: JSONRPCMessage, options?: TransportSendOptions) => {
    const watcher = watcherOf(watched, message);
    if (watcher === undefined || !("id" in message && "method" in message)) {
      return send.call(transport, message, options);
    }
    const { id } = message;
    watched.byId.set(id, { watcher, message });
    watcher.asked(undefined);
    const onRequestStreamEnd = () => {
      options?.onRequestStreamEnd?.();
      if (watched.byId.delete(id)) watcher.lost();
    };
    return send.call(transport, message, { ...options, onRequestStreamEnd });
  };
  transport.onmessage = (message, extra) => {
    if ("id" in message && message.id !== undefined && !("method" in message)) {
      const result = "result" in message ? (message.result as Record<string, unknown>) : {};
      const call = watched.byId.get(message.id);
      if (result["resultType"] === "task") call?.watcher.task(String(result["taskId"]));
      if (result["resultType"] === "input_required" && !part(result["_meta"])) { // else the call has ended with it
        call?.watcher.asked(() => refuse(transport, send, call.message, result));
      }
      watched.byId.delete(message.id);
    }
    const repeated = logged;
    logged = logOf(watched, message);
    if ("method" in message && message.method === "notifications/message" && repeated !== undefined) {
      const { _meta, ...data } = message.params ?? {};
      if (isSame(data, repeated)) return;
    }
    onmessage?.(message, extra);
  };
  return watched;
}

/** Repeats a call with refusals of all that it asks, and takes that back at once: only so it is cancelled (section 7). */
function refuse(transport: Transport, send: Transport["send"], call: JSONRPCRequest, question: Question): void {
  const { inputRequests = {}, requestState } = question;
  const refusals = Object.entries(inputRequests).map(([key, { method }]) => [key, REFUSALS[method] ?? {}]);
  const params = { ...call.params, inputResponses: Object.fromEntries(refusals), requestState };
  const id = `cancel-${call.id}`;
  const closing = new AbortController();
  const cancelled = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id } } as const;
  const close = () => (transport.hasPerRequestStream ? closing.abort() : send.call(transport, cancelled));
  const sent = send.call(transport, { ...call, id, params }, { requestSignal: closing.signal });
  sent.then(close).catch(() => undefined); // a server that is not there has lost the call, too
}

const REFUSALS: Record<string, object> = {
  "elicitation/create": { action: "cancel" },
  "roots/list": { roots: [] },
  "sampling/createMessage": { role: "assistant", content: { type: "text", text: "" }, model: "none" },
};

/** `data` of the last event of a notification of a watched request, if that is a `log`. */
function logOf(watched: Watched, message: JSONRPCMessage): unknown {
  if (!("method" in message) || message.method !== "notifications/progress") return undefined;
  const last = part<Batch>(message.params?._meta)?.events.at(-1);
  return last?.type === "log" && watched.byId.has(message.params?.["progressToken"] as number) ? last.data : undefined;
}

function isSame(one: unknown, other: unknown): boolean {
  if (typeof one !== "object" || typeof other !== "object" || !one || !other) return one === other;
  const [members, others] = [Object.entries(one), Object.entries(other)];
  if (members.length !== others.length || Array.isArray(one) !== Array.isArray(other)) return false;
  return members.every(([name, value]) => Object.hasOwn(other, name) && isSame(value, (other as never)[name]));
}

function watcherOf(watched: Watched, message: JSONRPCMessage): Watcher | undefined {
  if (!("method" in message) || message.method !== "tools/call") return undefined;
  const args: unknown = message.params?.["arguments"];
  return typeof args === "object" && args !== null ? watched.byArguments.get(args) : undefined;
}
