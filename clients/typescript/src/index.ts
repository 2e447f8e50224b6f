/** Results of MCP tools that arrive in parts, and can be read again: a client of the extension dev.mcp-hub/streams. */

export { BrokenStream, NoOutcome, StreamCancelled, StreamError } from "./errors.ts";
export { EXTENSION, capabilities } from "./events.ts";
export type { StreamEvent } from "./events.ts";
export type { Connection } from "./reader.ts";
export { ToolStream, resume, streamTool } from "./stream.ts";
export type { CallOptions, FollowOptions } from "./stream.ts";
