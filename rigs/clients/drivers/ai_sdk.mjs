// Driver: the MCP client of the AI SDK. The first argument is the folder where it is installed.

import { Refused, form, main, packages } from "./steps.mjs";

const { ElicitationRequestSchema, createMCPClient } = packages("@ai-sdk/mcp");
const { StdioMCPTransport } = packages("@ai-sdk/mcp/mcp-stdio");

class Session {
  constructor(client) {
    this.client = client;
    this.server = client.serverInfo.name;
    this.version = client.initializeResult.protocolVersion;
  }

  async names() {
    return {
      tools: (await this.client.listTools()).tools.map(({ name }) => name),
      prompts: (await this.client.listPrompts()).prompts.map(({ name }) => name),
      resources: (await this.client.listResources()).resources.map(({ uri }) => uri),
      templates: (await this.client.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate),
    };
  }

  async call(name, args, { signal } = {}) {
    try {
      const result = await this.client.callTool({ name, arguments: args, options: { signal } });
      const text = result.content.map((item) => item.text ?? "").join("");
      return { text, structured: result.structuredContent, isError: result.isError ?? false };
    } catch (error) {
      throw error.code === undefined ? error : new Refused(error.code, error.message, error.data);
    }
  }

  async prompt(name, args) {
    return (await this.client.getPrompt({ name, arguments: args })).messages[0].content.text;
  }

  async read(uri) {
    return (await this.client.readResource({ uri })).contents[0].text;
  }

  async complete(name, argument, value) {
    const params = { ref: { type: "ref/prompt", name }, argument: { name: argument, value } };
    return (await this.client.complete(params)).completion.values;
  }

  async close() {
    await this.client.close();
  }
}

async function connect(task, target) {
  const transport = "url" in target ? { type: "http", url: target.url } : new StdioMCPTransport(target);
  // without it a process that starts in more than a second is taken for one of the handshake era
  transport.waitsForProtocolVersionDiscovery = true;
  const client = await createMCPClient({ transport, capabilities: { elicitation: {} }, clientName: "driver" });
  client.onElicitationRequest(ElicitationRequestSchema, ({ params }) => ({
    action: "accept",
    content: form(params.requestedSchema),
  }));
  return new Session(client);
}

await main(connect);
