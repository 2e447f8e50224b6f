// What the drivers of both TypeScript libraries share: their clients differ in a few signatures only.

import { ANSWER, ROOT, Refused, TOOLS_CHANGED, form } from "./steps.mjs";

export const CLIENT = { name: "driver", version: "1" };

export const answers = {
  elicit: ({ params }) => ({ action: "accept", content: form(params.requestedSchema) }),
  sample: () => ({ role: "assistant", content: { type: "text", text: ANSWER }, model: "none" }),
  roots: () => ({ roots: [{ uri: ROOT }] }),
};

// Handlers that write down what arrives by itself, by the method of the notification.
export const hearing = (news) => ({
  "notifications/message": ({ params }) => news.push(`log ${params.data}`),
  "notifications/tools/list_changed": () => news.push(TOOLS_CHANGED),
  "notifications/resources/updated": ({ params }) => news.push(`updated ${params.uri}`),
});

export class Session {
  // `callTool(params, options)` is the library's; a `ProtocolError` is how it tells of a JSON-RPC error
  constructor(client, transport, version, callTool, ProtocolError, news) {
    Object.assign(this, { client, transport, version, callTool, ProtocolError, news });
    this.server = client.getServerVersion()?.name;
    this.heard = []; // progress and results as the transport read them
    const handle = transport.onmessage;
    transport.onmessage = (message, extra) => {
      if (message.method === "notifications/progress") this.heard.push(message.params.progress);
      if (message.method === undefined) this.heard.push("result");
      handle(message, extra);
    };
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
      const meta = this.level && { _meta: { "io.modelcontextprotocol/logLevel": this.level } };
      const result = await this.callTool({ name, arguments: args, ...meta }, options);
      const text = result.content.map((item) => item.text ?? "").join("");
      return { text, structured: result.structuredContent, isError: result.isError ?? false };
    } catch (error) {
      throw error instanceof this.ProtocolError ? new Refused(error.code, error.message, error.data) : error;
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

  async ping() {
    await this.client.ping();
  }

  async setLevel(level) {
    if (this.version < "2026") await this.client.setLoggingLevel(level);
    else this.level = level; // there each request carries it
  }

  async watch(uris, work) {
    if (this.version >= "2026") {
      const stream = await this.client.listen({ toolsListChanged: true, resourceSubscriptions: uris });
      try {
        return await work();
      } finally {
        await stream.close();
      }
    }
    for (const uri of uris) await this.client.subscribeResource({ uri });
    await work();
    for (const uri of uris) await this.client.unsubscribeResource({ uri });
  }

  async close() {
    await this.transport.terminateSession?.().catch(() => undefined);
    await this.client.close();
  }
}
