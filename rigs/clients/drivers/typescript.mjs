// What the drivers of both TypeScript libraries share: their clients differ in a few signatures only.

import { ANSWER, ROOT, Refused, form } from "./steps.mjs";

export const CLIENT = { name: "driver", version: "1" };

export const answers = {
  elicit: ({ params }) => ({ action: "accept", content: form(params.requestedSchema) }),
  sample: () => ({ role: "assistant", content: { type: "text", text: ANSWER }, model: "none" }),
  roots: () => ({ roots: [{ uri: ROOT }] }),
};

export class Session {
  // `callTool(params, options)` is the library's; a `ProtocolError` is how it tells of a JSON-RPC error
  constructor(client, transport, version, callTool, ProtocolError) {
    Object.assign(this, { client, transport, version, callTool, ProtocolError });
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
      const result = await this.callTool({ name, arguments: args }, options);
      const text = result.content.map((item) => item.text ?? "").join("");
      return { text, structured: result.structuredContent, isError: result.isError ?? false };
    } catch (error) {
      throw error instanceof this.ProtocolError ? new Refused(error.code, error.message, error.data) : error;
    }
  }

  async close() {
    await this.transport.terminateSession?.().catch(() => undefined);
    await this.client.close();
  }
}
