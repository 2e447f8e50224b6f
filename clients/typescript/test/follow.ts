/** Follows calls: an order on each line of stdin, what came of it on a line of stdout. Many at a time. */

import { createInterface } from "node:readline";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { NoOutcome, StreamError, capabilities, resume, streamTool } from "../src/index.ts";
import { patience } from "../src/stream.ts";

type Order = {
  id: number;
  url: string;
  era: "handshake" | "modern";
  /** Declares tasks, so that a call outlives its connection in the modern era. */
  tasks?: boolean;
  name: string;
  args: Record<string, unknown>;
  /** Events after which the call is left, and continued by `resume` over a new connection. */
  leave?: number;
};

async function connect({ url, era, tasks }: Order): Promise<Client> {
  const extensions = { ...capabilities.extensions, ...(tasks && { "io.modelcontextprotocol/tasks": {} }) };
  const mode = era === "modern" ? { pin: "2026-07-28" } : "legacy";
  const client = new Client(
    { name: "followers", version: "1" },
    { capabilities: { ...capabilities, extensions }, versionNegotiation: { mode } },
  );
  await client.connect(new StreamableHTTPClientTransport(new URL(url)), { timeout: 2000 });
  return client;
}

async function follow(order: Order): Promise<object> {
  const events: object[] = [];
  let connections = 1;
  const reconnect = () => (connections++, connect(order));
  let client: Client;
  try {
    client = await connect(order);
  } catch (error) {
    return { notBegun: String(error) };
  }
  let stream = streamTool(client, order.name, order.args, { reconnect });
  try {
    for (let left = false; ; ) {
      const { value, done } = await stream[Symbol.asyncIterator]().next();
      if (done || !value) break;
      events.push({ seq: value.seq, type: value.type, data: value.data });
      if (left || events.length !== order.leave) continue;
      // as if this process had ended
      left = true;
      await client.close();
      stream = resume(client, stream.id ?? "", stream.cursor, { reconnect });
    }
    return { stream: stream.id, events, result: await stream.result(), text: stream.text(), connections };
  } catch (error) {
    if (error instanceof NoOutcome && error.stream === undefined) return { notBegun: error.message };
    const { code, data } = error instanceof StreamError ? error : {};
    return { stream: stream.id, events, error: { code, message: String((error as Error).message), data }, connections };
  } finally {
    await client.close().catch(() => undefined);
  }
}

patience.quiet = Number(process.env.QUIET ?? patience.quiet);
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line) as Order;
  void follow(order).then((found) => console.log(JSON.stringify({ id: order.id, ...found })));
}
