/** A server of one call in this process, behind the SDK's own HTTP transport: `fetch` without a network. */

import assert from "node:assert/strict";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import type { ClientCapabilities } from "@modelcontextprotocol/client";

export type Json = Record<string, any>;

const MODERN = "2026-07-28";
const HELLO = { serverInfo: { name: "vectors", version: "1" }, capabilities: { tools: {}, logging: {} } };

/** Until nothing moves: streams in memory have neither sockets nor timers. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 40; turn++) await new Promise((resolve) => setImmediate(resolve));
}

const json = (body: object, status = 200) =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json" } });

/** The server, whose answers a test writes down. */
export class Server {
  readonly isModern: boolean;
  /** `params` of each `tools/call`. */
  readonly calls: Json[] = [];
  /** Responses to a call that the client has closed. */
  closed = 0;
  /** `params` of the read that waits for its answer. */
  reading: Json | undefined;
  #id = 0;
  #answer: (response: Response | Error) => void = () => undefined;
  #call: { id: number; token: unknown; body: ReadableStreamDefaultController<Uint8Array> } | undefined;

  constructor(isModern: boolean) {
    this.isModern = isModern;
  }

  fetch = async (_: URL | string, init?: RequestInit): Promise<Response> => {
    if (init?.method !== "POST") return new Response(null, { status: 405 });
    const { id, method, params } = JSON.parse(init.body as string) as Json;
    if (id === undefined) return new Response(null, { status: 202 });
    const modern = { resultType: "complete", supportedVersions: [MODERN], cacheScope: "private", ttlMs: 0, ...HELLO };
    switch (method) {
      case "server/discover":
        return json({ jsonrpc: "2.0", id, result: modern });
      case "initialize":
        return json({ jsonrpc: "2.0", id, result: { protocolVersion: "2025-11-25", ...HELLO } });
      case "tools/call":
        return this.#called(id, params, init.signal);
      default:
        assert.equal(method, "dev.mcp-hub/streams.read");
        assert.equal(this.reading, undefined, "one read at a time");
        this.reading = params;
        this.#id = id;
        return new Promise((resolve, reject) => {
          init.signal?.addEventListener("abort", () => (this.reading = undefined));
          this.#answer = (answer) => (answer instanceof Error ? reject(answer) : resolve(answer));
        });
    }
  };

  #called(id: number, params: Json, signal: AbortSignal | null | undefined): Response {
    this.calls.push(params);
    signal?.addEventListener("abort", () => this.closed++);
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => void (this.#call = { id, token: params._meta?.progressToken, body: controller }),
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  }

  #push(message: Json): void {
    try {
      this.#call?.body.enqueue(new TextEncoder().encode(`data: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`));
    } catch {
      // the client has closed it
    }
  }

  #typed(result: Json): Json {
    return this.isModern ? { resultType: "complete", ...result } : result;
  }

  #read(answer: Response | Error): void {
    assert.ok(this.reading, "the client reads");
    this.reading = undefined;
    this.#answer(answer);
  }

  play({ notification, result, error, lost, page, refused }: Json): void {
    if (notification) {
      const { method, params } = notification;
      const own = method === "notifications/progress" ? { progressToken: this.#call?.token } : {};
      this.#push({ method, params: { ...params, ...own } });
    } else if (result || error) {
      const answer = error ? { error } : { result: this.#typed(result) };
      this.#push({ id: this.#call?.id, ...answer });
    } else if (lost) {
      this.#call?.body.close();
    } else if (page) {
      this.#read(json({ jsonrpc: "2.0", id: this.#id, result: this.#typed(page) }));
    } else if (refused.error) {
      this.#read(json({ jsonrpc: "2.0", id: this.#id, error: refused.error }, refused.status));
    } else {
      const { status } = refused;
      this.#read(status ? new Response("<p>not MCP", { status }) : new TypeError("fetch failed"));
    }
  }
}

/** A client of the server that answers questions, unless it is `handler` that does. */
export async function connected(server: Server, capabilities: ClientCapabilities, handler?: () => Promise<never>): Promise<Client> {
  const mode = server.isModern ? { pin: MODERN } : ("legacy" as const);
  const all = { ...capabilities, elicitation: {} };
  const client = new Client({ name: "vectors", version: "1" }, { capabilities: all, versionNegotiation: { mode } });
  client.setRequestHandler("elicitation/create", handler ?? (async () => ({ action: "accept", content: {} })));
  await client.connect(new StreamableHTTPClientTransport(new URL("http://127.0.0.1/mcp"), { fetch: server.fetch }));
  return client;
}
