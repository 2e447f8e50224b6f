/** What the SDK hides: that a response stream was lost, that a call became a task, and that a log message is an event. */

import type { JSONRPCMessage, Transport, TransportSendOptions } from "@modelcontextprotocol/client";

import { part } from "./events.ts";
import type { Batch } from "./events.ts";

export interface Watcher {
  /** The response stream of the request has ended without the response. */
  lost(): void;
  /** The response made the call a task of this id. The SDK refuses such a response. */
  task(id: string): void;
}

type Watched = { byArguments: WeakMap<object, Watcher>; byId: Map<string | number, Watcher> };

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
    if (watcher === undefined || !("id" in message) || message.id === undefined) {
      return send.call(transport, message, options);
    }
    const { id } = message;
    watched.byId.set(id, watcher);
    const onRequestStreamEnd = () => {
      options?.onRequestStreamEnd?.();
      if (watched.byId.delete(id)) watcher.lost();
    };
    return send.call(transport, message, { ...options, onRequestStreamEnd });
  };
  transport.onmessage = (message, extra) => {
    if ("id" in message && message.id !== undefined && !("method" in message)) {
      const result = "result" in message ? (message.result as Record<string, unknown>) : {};
      if (result["resultType"] === "task") watched.byId.get(message.id)?.task(String(result["taskId"]));
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
