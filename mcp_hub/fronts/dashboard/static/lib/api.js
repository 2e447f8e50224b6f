// Requests to /api with the token of this tab. The token comes once in the fragment and never goes into an address.
import { decoded, encoded } from './format.js';

const KEY = 'mcp-hub-token';
export const root = new URL('.', document.baseURI);
const api = new URL('api/', root);

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function takeToken() {
  const found = /^#token=([^&]+)$/.exec(location.hash);
  if (found) {
    setToken(decoded(found[1]));
    history.replaceState(null, '', location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY);
}

export function setToken(token) {
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

export async function logOut() {
  await fetch(new URL('dashboard/logout', root), { method: 'POST', headers: { 'x-mcp-hub': 'dashboard' }, cache: 'no-store' });
  location.reload();
}

async function send(method, path, body, options = {}) {
  const headers = { 'x-mcp-hub': 'dashboard', ...options.headers };
  // without a token the cookie of a login at the provider counts
  if (hasToken()) headers.authorization = `Bearer ${sessionStorage.getItem(KEY)}`;
  if (body !== undefined) headers['content-type'] = 'application/json';
  const response = await fetch(new URL(path, api), {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: options.signal, cache: 'no-store',
  });
  if (response.ok) return response;
  let problem = {};
  try { problem = await response.json(); } catch { /* not from the hub */ }
  throw new Refused(response.status, problem.code ?? '', problem.detail ?? `The hub answered ${response.status}.`);
}

export async function ask(method, path, body, options) {
  const response = await send(method, path, body, options);
  return response.status === 204 ? null : response.json();
}

export const get = (path, options) => ask('GET', path, undefined, options);

// The events of a stream: {id, type, data}. An EventSource could not send the token.
export async function* events(path, signal, headers = {}, body = undefined) {
  const response = await send(body === undefined ? 'GET' : 'POST', path, body, { signal, headers: { accept: 'text/event-stream', ...headers } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const event = { id: '', type: 'message', data: '' };
      for (const line of part.split('\n')) {
        const colon = line.indexOf(': ');
        if (colon < 1) continue;
        const field = line.slice(0, colon), text = line.slice(colon + 2);
        if (field === 'id') event.id = text;
        else if (field === 'event') event.type = text;
        else if (field === 'data') event.data += text;
      }
      if (event.data) yield event;
    }
  }
}

export const segment = (text) => encoded(text).replace(/\./g, '%2E');
export const pause = (ms) => new Promise((done) => setTimeout(done, ms));
