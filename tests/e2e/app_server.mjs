// A server with an app, made with the official SDK: node app_server.mjs MODULES NAME. Without a client that shows apps
// it has one plain tool.
import { pathToFileURL } from "node:url";

const [modules, name] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${modules}/@modelcontextprotocol/${path}`).href);
const { McpServer } = await load("sdk/dist/esm/server/mcp.js");
const { StdioServerTransport } = await load("sdk/dist/esm/server/stdio.js");
const apps = await load("ext-apps/dist/src/server/index.js");

const address = "ui://board/main";
const said = (text, ...more) => ({ content: [{ type: "text", text: `${name} ${text}` }, ...more] });
const server = new McpServer({ name, version: "1" });
server.registerTool("plain", { description: "Says who it is." }, () => said("is plain"));
server.registerResource("plain", `${name}:plain`, {}, (uri) => ({ contents: [{ uri: uri.href, text: name }] }));

server.server.oninitialized = () => {
  const client = apps.getUiCapability(server.server.getClientCapabilities());
  if (!client?.mimeTypes?.includes(apps.RESOURCE_MIME_TYPE)) return;
  const link = { type: "resource_link", uri: address, name: "board" };
  const shown = { description: "Shows the board.", _meta: { ui: { resourceUri: address } } };
  apps.registerAppTool(server, "show", shown, () => said("shows", link));
  const hidden = { description: "Refreshes.", _meta: { ui: { resourceUri: address, visibility: ["app"] } } };
  apps.registerAppTool(server, "refresh", hidden, () => said("is fresh"));
  const ui = { csp: { connectDomains: [`https://${name}.example`] }, prefersBorder: true };
  apps.registerAppResource(server, "board", address, { _meta: { ui } }, () => ({
    contents: [{ uri: address, mimeType: apps.RESOURCE_MIME_TYPE, text: `<p>${name}</p>`, _meta: { ui } }],
  }));
};
await server.connect(new StdioServerTransport());
