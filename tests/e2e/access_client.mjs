// The official TypeScript SDK logs in to the hub at $HUB under its public address; a person allows it on the pages.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';

const { HUB, PUBLIC, TOKEN } = process.env;
const proxied = (url, options) => {
  const target = new URL(url);
  if (target.origin !== PUBLIC) throw new Error(`asked ${target}`);
  return fetch(new URL(target.pathname + target.search, HUB), { redirect: 'manual', ...options });
};
const unescaped = (text) => text.replace(/&amp;/g, '&').replace(/&quot;/g, '"').replace(/&#x27;/g, "'");

async function allowed(url) {
  const form = { 'content-type': 'application/x-www-form-urlencoded', origin: PUBLIC };
  const action = (page) => new URL(unescaped(/<form method="post" action="([^"]*)"/.exec(page)[1]), PUBLIC);
  const login = await (await proxied(url)).text();
  const shown = await proxied(action(login), { method: 'POST', headers: form, body: new URLSearchParams({ token: TOKEN, step: 'login' }) });
  const cookie = shown.headers.get('set-cookie').split(';')[0], consent = await shown.text();
  const proof = /name="proof" value="([^"]*)"/.exec(consent)[1];
  const body = new URLSearchParams({ proof, profile: 'narrow', step: 'allow' });
  const sent = await proxied(action(consent), { method: 'POST', headers: { ...form, cookie }, body });
  return new URL(sent.headers.get('location')).searchParams;
}

let kept = {}, answer;
const provider = {
  redirectUrl: 'http://localhost:33418/callback',
  clientMetadata: { client_name: 'TypeScript', redirect_uris: ['http://localhost:33418/callback'] },
  state: () => 'state-of-sdk',
  clientInformation: () => kept.client, saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens, saveTokens: (tokens) => { kept.tokens = tokens; },
  codeVerifier: () => kept.verifier, saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  redirectToAuthorization: async (url) => { answer = await allowed(url); },
};
const transport = () => new StreamableHTTPClientTransport(new URL('/mcp', PUBLIC), { authProvider: provider, fetch: proxied });

const first = transport();
try {
  await new Client({ name: 'sdk', version: '1' }).connect(first);
  throw new Error('connected without a login');
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
}
await first.finishAuth(answer.get('code'));
const client = new Client({ name: 'sdk', version: '1' });
await client.connect(transport());
const { tools } = await client.listTools();
await client.close();
kept.tokens.access_token = 'expired';
const again = new Client({ name: 'sdk', version: '1' });
await again.connect(transport());
await again.listTools();
await again.close();
console.log(JSON.stringify({
  tools: tools.map((tool) => tool.name), state: answer.get('state'), iss: answer.get('iss'), renewed: kept.tokens.access_token !== 'expired',
}));
