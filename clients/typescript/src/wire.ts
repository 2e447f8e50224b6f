/** What the SDK does not tell of a request: that its response stream was lost, and that its call became a task. */

import type { JSONRPCMessage, Transport, TransportSendOptions } from "@modelcontextprotocol/client";

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
    onmessage?.(message, extra);
  };
  return watched;
}

function watcherOf(watched: Watched, message: JSONRPCMessage): Watcher | undefined {
  if (!("method" in message) || message.method !== "tools/call") return undefined;
  const args: unknown = message.params?.["arguments"];
  return typeof args === "object" && args !== null ? watched.byArguments.get(args) : undefined;
}
