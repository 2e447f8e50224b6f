// Driver: the TypeScript SDK 1.x. The first argument is the folder where it is installed.

import { main, packages } from "./steps.mjs";
import { CLIENT, Session, answers, hearing } from "./typescript.mjs";

const { Client } = packages("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = packages("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = packages("@modelcontextprotocol/sdk/client/streamableHttp.js");
const types = packages("@modelcontextprotocol/sdk/types.js");

async function connect(task, target) {
  const client = new Client(CLIENT, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
  client.setRequestHandler(types.ElicitRequestSchema, answers.elicit);
  client.setRequestHandler(types.CreateMessageRequestSchema, answers.sample);
  client.setRequestHandler(types.ListRootsRequestSchema, answers.roots);
  const news = [];
  const schemas = {
    "notifications/message": types.LoggingMessageNotificationSchema,
    "notifications/tools/list_changed": types.ToolListChangedNotificationSchema,
    "notifications/resources/updated": types.ResourceUpdatedNotificationSchema,
  };
  for (const [method, handler] of Object.entries(hearing(news))) client.setNotificationHandler(schemas[method], handler);
  const isHttp = "url" in target;
  const transport = isHttp ? new StreamableHTTPClientTransport(new URL(target.url)) : new StdioClientTransport(target);
  let version; // which the client itself does not tell
  const setVersion = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (agreed) => {
    version = agreed;
    setVersion?.(agreed);
  };
  await client.connect(transport);
  const callTool = (params, options) => client.callTool(params, undefined, options);
  return new Session(client, transport, version, callTool, types.McpError, news);
}

await main(connect);
