// Driver: the TypeScript client 2.x in the mode that the task names. The first argument is where it is installed.

import { ANSWER, ROOT, Refused, form, main, packages } from "./steps.mjs";

const { Client, ProtocolError, StreamableHTTPClientTransport } = packages("@modelcontextprotocol/client");
const { StdioClientTransport } = packages("@modelcontextprotocol/client/stdio");

class Session {
  constructor(client, transport) {
    this.client = client;
    this.transport = transport;
    this.server = client.getServerVersion()?.name;
    this.version = client.getNegotiatedProtocolVersion();
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
      const result = await this.client.callTool({ name, arguments: args }, options);
      const text = result.content.map((item) => item.text ?? "").join("");
      return { text, structured: result.structuredContent, isError: result.isError ?? false };
    } catch (error) {
      throw error instanceof ProtocolError ? new Refused(error.code, error.message, error.data) : error;
    }
  }

  async close() {
    await this.transport.terminateSession?.().catch(() => undefined);
    await this.client.close();
  }
}

async function connect(task, target) {
  const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };
  const versionNegotiation = { mode: task.mode };
  const client = new Client({ name: "driver", version: "1" }, { capabilities, versionNegotiation });
  client.setRequestHandler("elicitation/create", ({ params }) => {
    return { action: "accept", content: form(params.requestedSchema) };
  });
  client.setRequestHandler("sampling/createMessage", () => {
    return { role: "assistant", content: { type: "text", text: ANSWER }, model: "none" };
  });
  client.setRequestHandler("roots/list", () => ({ roots: [{ uri: ROOT }] }));
  const isHttp = "url" in target;
  const transport = isHttp ? new StreamableHTTPClientTransport(new URL(target.url)) : new StdioClientTransport(target);
  await client.connect(transport);
  return new Session(client, transport);
}

await main(connect);
