// Judge: a JavaScript library as the client of a server: `judge.mjs FOLDER LIBRARY MODE`; the task as for judge.py.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, library, mode] = process.argv.slice(2);
const task = JSON.parse(readFileSync(0, "utf8"));
const packages = createRequire(folder + "/any.js");
const load = (name) => import(pathToFileURL(packages.resolve(name)).href);
const [command, ...args] = task.command;
const target = { command, args, env: process.env, stderr: "ignore" };
const ABOUT = { name: "judge", version: "1" };
console.warn = console.error = () => {}; // what the libraries say of each odd schema

const JUDGES = {
  async sdk_1() {
    const { Client } = packages("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = packages("@modelcontextprotocol/sdk/client/stdio.js");
    const client = new Client(ABOUT);
    await client.connect(new StdioClientTransport(target));
    return client;
  },
  async client_2() {
    const { Client } = packages("@modelcontextprotocol/client");
    const { StdioClientTransport } = packages("@modelcontextprotocol/client/stdio");
    const client = new Client(ABOUT, { versionNegotiation: { mode } });
    await client.connect(new StdioClientTransport(target));
    return client;
  },
  async ai_sdk() {
    const { createMCPClient } = await load("@ai-sdk/mcp");
    const { Experimental_StdioMCPTransport: Transport } = await load("@ai-sdk/mcp/mcp-stdio");
    const client = await createMCPClient({ transport: new Transport(target) });
    const listing = (name) => (params) => client[name]({ params });
    return {
      listTools: async (params) => client.toolsFromDefinitions(await client.listTools({ params })),
      listResources: listing("listResources"),
      // takes no cursor
      listResourceTemplates: params => params ? null : client.listResourceTemplates(),
      listPrompts: listing("experimental_listPrompts"),
      close: () => client.close(),
    };
  },
};
const LISTS = {
  tools: "listTools",
  resources: "listResources",
  resourceTemplates: "listResourceTemplates",
  prompts: "listPrompts",
};

const client = await JUDGES[library]();
const verdicts = {};
for (const [key, count] of Object.entries(task.counts)) {
  verdicts[key] = [];
  for (let number = 0; number < (count ?? 1); number++) {
    try {
      await client[LISTS[key]](count === null ? undefined : { cursor: String(number) });
      verdicts[key].push(null);
    } catch (refused) {
      verdicts[key].push(String(refused?.message ?? refused).replace(/\s+/g, " ").slice(0, 400));
    }
  }
}
await new Promise((written) => process.stdout.write(JSON.stringify(verdicts) + "\n", written));
await client.close();
process.exit(0);
