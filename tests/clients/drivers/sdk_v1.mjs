// Driver: the TypeScript SDK 1.x. The first argument is the folder where it is installed.

import { ANSWER, ROOT, Refused, form, main, packages } from "./steps.mjs";

const { Client } = packages("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = packages("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = packages("@modelcontextprotocol/sdk/client/streamableHttp.js");
const types = packages("@modelcontextprotocol/sdk/types.js");

class Session {
  constructor(client, transport) {
    this.client = client;
    this.transport = transport;
    this.server = client.getServerVersion().name;
  }

  async names() {
    return {
      tools: (await this.client.listTools()).tools.map(({ name }) => name),
      prompts: (await this.client.listPrompts()).prompts.map(({ name }) => name),
      resources: (await this.client.listResources()).resources.map(({ uri }) => uri),
      templates: (await this.client.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate),
    };
  }

  async call(name, args, { onprogress, signal } = {}) {
    const options = { signal, onprogress: onprogress && (({ progress }) => onprogress(progress)) };
    try {
      const result = await this.client.callTool({ name, arguments: args }, undefined, options);
      const text = result.content.map((item) => item.text ?? "").join("");
      return { text, structured: result.structuredContent, isError: result.isError ?? false };
    } catch (error) {
      throw error instanceof types.McpError ? new Refused(error.code, error.message, error.data) : error;
    }
  }

  async close() {
    await this.transport.terminateSession?.().catch(() => undefined);
    await this.client.close();
  }
}

async function connect(task, target) {
  const capabilities = { elicitation: {}, sampling: {}, roots: {} };
  const client = new Client({ name: "driver", version: "1" }, { capabilities });
  client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => {
    return { action: "accept", content: form(params.requestedSchema) };
  });
  client.setRequestHandler(types.CreateMessageRequestSchema, () => {
    return { role: "assistant", content: { type: "text", text: ANSWER }, model: "none" };
  });
  client.setRequestHandler(types.ListRootsRequestSchema, () => ({ roots: [{ uri: ROOT }] }));
  const isHttp = "url" in target;
  const transport = isHttp ? new StreamableHTTPClientTransport(new URL(target.url)) : new StdioClientTransport(target);
  let version; // of the transport's making only over HTTP
  const setVersion = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (agreed) => setVersion?.((version = agreed)) ?? (version = agreed);
  await client.connect(transport);
  return Object.assign(new Session(client, transport), { version });
}

await main(connect);
