// Driver: a session of the Claude Agent SDK. Arguments: the folder of its package, the tool, then the hub's command.

const [folder, tool, command, ...args] = process.argv.slice(2);
const { query } = await import(`${folder}/sdk.mjs`);
const options = { mcpServers: { "mcp-hub": { type: "stdio", command, args } }, allowedTools: [tool], strictMcpConfig: true };
for await (const message of query({ prompt: "please build web", options })) {
  if (message.type === "result") console.log(message.result);
}
