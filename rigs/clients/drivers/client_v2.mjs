// Driver: the TypeScript client 2.x in the mode that the task names. The first argument is where it is installed.

import { main, packages } from "./steps.mjs";
import { CLIENT, Session, answers, hearing } from "./typescript.mjs";

const { Client, ProtocolError, StreamableHTTPClientTransport } = packages("@modelcontextprotocol/client");
const { StdioClientTransport } = packages("@modelcontextprotocol/client/stdio");

async function connect(task, target) {
  const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };
  const client = new Client(CLIENT, { capabilities, versionNegotiation: { mode: task.mode } });
  client.setRequestHandler("elicitation/create", answers.elicit);
  client.setRequestHandler("sampling/createMessage", answers.sample);
  client.setRequestHandler("roots/list", answers.roots);
  const news = [];
  for (const [method, handler] of Object.entries(hearing(news))) client.setNotificationHandler(method, handler);
  const isHttp = "url" in target;
  const transport = isHttp ? new StreamableHTTPClientTransport(new URL(target.url)) : new StdioClientTransport(target);
  await client.connect(transport);
  const callTool = (params, options) => client.callTool(params, options);
  return new Session(client, transport, client.getNegotiatedProtocolVersion(), callTool, ProtocolError, news);
}

await main(connect);
