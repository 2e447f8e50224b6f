// Driver: the MCP client of Mastra calls `slow_build`. Arguments: the folder of its package, then the hub's command.

import { createRequire } from "node:module";
import { setTimeout } from "node:timers/promises";

const [folder, command, ...args] = process.argv.slice(2);
const { MCPClient } = await import(createRequire(`${folder}/index.js`).resolve("@mastra/mcp"));
const client = new MCPClient({ servers: { hub: { command, args, env: process.env, timeout: 120_000 } } });
let tools = await client.listTools();
for (let tries = 0; !tools.hub_slow_build && tries < 100; tries++) {
  await setTimeout(200); // the server behind the hub is not up yet
  tools = await client.listTools();
}
console.log(JSON.stringify(await tools.hub_slow_build.execute({ target: "web" }, {})));
await client.disconnect();
