/** How a call ends other than with a result. */

import type { JsonRpcError } from "./events.ts";

/** The server answered with a JSON-RPC error. With `outcome: "unknown"` the tool may have acted all the same. */
export class StreamError extends Error {
  override readonly name = "StreamError";
  readonly code: number;
  readonly data: unknown;
  readonly outcome: string | undefined;

  constructor(error: JsonRpcError, outcome?: string) {
    super(error.message);
    this.code = error.code;
    this.data = error.data;
    this.outcome = outcome;
  }
}

/** The call was cancelled: by its client, by the server, or because its connection was lost. */
export class StreamCancelled extends Error {
  override readonly name = "StreamCancelled";
}

/** How a call ended that has a JSON-RPC error: cancelled, if somebody else cancelled it (section 5). */
export function refusal(error: JsonRpcError, outcome?: string): StreamError | StreamCancelled {
  const code = (error.data as { code?: unknown } | null | undefined)?.code;
  return code === "cancelled" ? new StreamCancelled(error.message) : new StreamError(error, outcome);
}

/** There is no connection any more. With a `stream`, `resume` may get the rest later; without, the call is lost. */
export class ConnectionLost extends Error {
  override readonly name = "ConnectionLost";
  readonly stream: string | undefined;
  readonly cursor: string;

  constructor(message: string, stream: string | undefined, cursor: string, cause?: unknown) {
    super(message, { cause });
    this.stream = stream;
    this.cursor = cursor;
  }
}

/** The JSON-RPC error that an SDK call failed with; undefined where the connection or the SDK failed. */
export function answered(error: unknown): JsonRpcError | undefined {
  const { code, message, data } = error as Partial<JsonRpcError>;
  return error instanceof Error && typeof code === "number" ? { code, message: message ?? "", data } : undefined;
}
