/** How a call ends other than with a result. */

import type { JsonRpcError } from "./events.ts";

/** The call ended with a JSON-RPC error. With `outcome: "unknown"` the tool may have acted all the same. */
export class StreamError extends Error {
  override readonly name = "StreamError";
  readonly code: number;
  readonly data: unknown;
  readonly outcome: string | undefined;
  /** The call had no effect, and may be made again. Only the log says so: false if the response brought the error. */
  readonly retryable: boolean;

  constructor(error: JsonRpcError, outcome?: string, retryable = false) {
    super(error.message);
    this.code = error.code;
    this.data = error.data;
    this.outcome = outcome;
    this.retryable = retryable;
  }
}

/** The call was cancelled: by its client, by the server, or because its connection was lost. */
export class StreamCancelled extends Error {
  override readonly name = "StreamCancelled";
}

/** The server has left out an event: nothing that it says of the call can be relied on. */
export class BrokenStream extends Error {
  override readonly name = "BrokenStream";
}

/**
 * What became of the call is not known: the tool may have acted. With a `stream`, `resume` may find it out later;
 * without, the call is lost. `cause` is the error of the connection, or what the server refused.
 */
export class NoOutcome extends Error {
  override readonly name = "NoOutcome";
  readonly stream: string | undefined;
  readonly cursor: string;

  constructor(message: string, stream: string | undefined, cursor: string, cause?: unknown) {
    super(message, { cause });
    this.stream = stream;
    this.cursor = cursor;
  }
}

/** What an SDK call failed with: the HTTP status, if that was the error, and the JSON-RPC error, if there was one. */
export type Failure = { status: number | undefined; refused: JsonRpcError | undefined };

export function failure(error: unknown): Failure {
  if (!(error instanceof Error)) return { status: undefined, refused: undefined };
  const { code, message, data } = error as Error & { code?: unknown; data?: unknown };
  if (typeof code === "number") return { status: undefined, refused: { code, message, data } };
  if (error.name === "UnauthorizedError") return { status: 401, refused: undefined };
  const { status, text } = (data ?? {}) as { status?: number; text?: unknown };
  return { status, refused: typeof text === "string" ? errorOf(text) : undefined };
}

/** The JSON-RPC error in the body of an HTTP error. */
function errorOf(body: string): JsonRpcError | undefined {
  try {
    const { error } = JSON.parse(body) as { error?: Partial<JsonRpcError> };
    if (typeof error?.code !== "number") return undefined;
    return { code: error.code, message: error.message ?? "", data: error.data };
  } catch {
    return undefined;
  }
}

/** `data.code` of an error: a word of the server. */
export function wordOf(error: JsonRpcError): unknown {
  return (error.data as { code?: unknown } | null | undefined)?.code;
}
