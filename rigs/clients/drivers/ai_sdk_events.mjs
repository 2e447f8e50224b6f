// Driver: the AI SDK's events, which are its list of types and webhooks. The first argument is where it is installed.
//
// Commands are lines on stdin: {"do": "connect" | "list" | "subscribe" | "refresh" | "unsubscribe" | "fail" | "close", …}.
// Each is answered with {"done": …} or {"failed": {code, message, data}}. What arrives is written as {"event": …},
// {"gap": …} and {"terminated": …}; what its webhook answered is {"status": …}.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const packages = createRequire(process.argv[2] + "/any.js");
const { createMCPClient, experimental_createMCPEventWebhook } = packages("@ai-sdk/mcp");
const { StdioMCPTransport } = packages("@ai-sdk/mcp/mcp-stdio");
const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");

const subscriptions = new Map();
const store = {
  get: async (key) => subscriptions.get(key),
  getById: async (id) => [...subscriptions.values()].find((one) => one.id === id),
  set: async (one) => void subscriptions.set(one.key, one),
  update: async (key, patch) => void subscriptions.set(key, { ...subscriptions.get(key), ...patch }),
  delete: async (key) => void subscriptions.delete(key),
};
let failures = 0;
let client;

const webhook = experimental_createMCPEventWebhook({
  store,
  onEvent: async ({ subscription, event }) => {
    if (failures-- > 0) throw new Error("not stored");
    say({ event, subscription: subscription.id });
  },
  onGap: async ({ gap }) => say({ gap }),
  onTerminated: async ({ termination }) => say({ terminated: termination.error }),
});

const receiver = createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const { method, headers } = request;
  const answer = await webhook(
    new Request(`http://${headers.host}${request.url}`, { method, headers, body: Buffer.concat(pieces) }),
  );
  say({ status: answer.status, id: headers["webhook-id"], type: JSON.parse(Buffer.concat(pieces)).type ?? null });
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.end(Buffer.from(await answer.arrayBuffer()));
});
await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${receiver.address().port}/hook`;

const commands = {
  async connect({ target, discovers }) {
    const transport = "url" in target ? { type: "http", url: target.url } : new StdioMCPTransport(target);
    transport.waitsForProtocolVersionDiscovery = true;
    client = await createMCPClient({
      transport, clientName: "driver", protocolVersionDiscovery: discovers, experimental_events: { store },
    });
    return { version: client.initializeResult.protocolVersion };
  },
  async list() {
    const events = [];
    let cursor;
    do {
      const page = await client.experimental_events.list({ params: { cursor } });
      events.push(...page.events);
      cursor = page.nextCursor;
    } while (cursor);
    return events;
  },
  async subscribe({ name, args, cursor, path = "" }) {
    const delivery = { mode: "webhook", url: url + path, allowInsecureLocalhost: true };
    return client.experimental_events.subscribe({ name, arguments: args, cursor, delivery });
  },
  refresh: ({ id }) => client.experimental_events.refresh({ id }),
  async unsubscribe({ id }) {
    await client.experimental_events.unsubscribe({ id });
    return subscriptions.size;
  },
  forget: async () => subscriptions.clear(),
  kept: async () => [...subscriptions.values()].map(({ id, cursor, status }) => ({ id, cursor, status })),
  fail: async ({ times }) => void (failures = times),
  close: async () => client.close(),
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  try {
    say({ done: (await commands[command.do](command)) ?? null });
  } catch (error) {
    say({ failed: { code: error.code ?? null, message: String(error.message), data: error.data ?? null } });
  }
}
process.exit(0);
