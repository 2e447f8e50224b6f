// Small parts that several screens have.
import { html, useLayoutEffect, useRef, useState } from './ui.js';
import { callState, count, plain, plural, serverState } from './format.js';
import { attempt, toast } from './store.js';

export const Badge = ({ kind, children }) => html`<span class="badge ${kind}">${children}</span>`;
export const CallBadge = ({ status }) => { const [kind, text] = callState(status); return html`<${Badge} kind=${kind}>${text}<//>`; };
export const ServerBadge = ({ server }) => { const [kind, text] = serverState(server); return html`<${Badge} kind=${kind}>${text}<//>`; };
const LOGIN = ['login_needed', 'login_failed', 'rights_missing'];
export const isLogin = (server) => LOGIN.includes(server.code);
const BAD = ['failed', 'incompatible', 'backing_off'];
export const isBad = (server) => BAD.includes(server.state);
// Why a server is as it is, or what else is to be said of it.
export const why = (server) => server.reason ?? (server.warnings?.[0] || (server.sandbox?.refused ? `its sandbox refused ${plural(server.sandbox.refused, 'attempt')}` : ''));
const DOCS = 'https://github.com/mcp-hub/mcp-hub/blob/main/docs/README.md';
// A link to a page of the documentation, which opens in a tab of its own.
export const Docs = ({ page = 'dashboard.md', children = 'Docs' }) => html`<a class="docs" href=${new URL(page, DOCS).href} target="_blank" rel="noopener noreferrer">${children}</a>`;
// Names in frames, with a place to break the line between them.
export const tags = (names) => names.map((name) => html`<span class="tag">${plain(name)}</span> `);
// Advice of the hub: what stands in backticks is code.
export const advice = (text) => plain(text).split('`').map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export function Panel({ title, end, children, className = '' }) {
  return html`<section class="panel ${className}">
    <header><h2>${title}</h2>${end && html`<div class="end">${end}</div>`}</header>${children}</section>`;
}

export function Bar({ progress, total, label }) {
  const isKnown = total > 0;
  const part = isKnown ? Math.min(100, (100 * progress) / total) : 0;
  return html`<div class="bar ${isKnown ? '' : 'any'}" role="progressbar" aria-label=${label}
    aria-valuemin="0" aria-valuemax="100" aria-valuenow=${isKnown ? Math.round(part) : undefined}>
    <i style=${isKnown ? { width: `${part}%` } : {}}></i></div>`;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast('Copied.');
  } catch {
    toast('The browser does not let this page copy.');
  }
}

export const Copy = ({ text, label, children }) =>
  html`<button type="button" onClick=${() => copy(text)} aria-label=${label}>${children ?? 'Copy'}</button>`;

// The command that does the same on a terminal.
export const Command = ({ children }) => html`<div class="cmd"><code>${children}</code>
  <${Copy} text=${children} label=${`Copy the command ${children}`} /></div>`;

// A button that asks once more before it acts.
export function Confirm({ onConfirm, children, sure = 'Really?', said, disabled, className = '' }) {
  const [asks, setAsks] = useState(false);
  const act = async () => {
    if (!asks) {
      setAsks(true);
      setTimeout(() => setAsks(false), 4000);
      return;
    }
    setAsks(false);
    await attempt(onConfirm, said);
  };
  return html`<button type="button" class=${asks ? 'bad' : className} disabled=${disabled} onClick=${act}>
    ${asks ? sure : children}</button>`;
}

export function Select({ label, value, options, onChange }) {
  return html`<select aria-label=${label} value=${value ?? ''} onChange=${(event) => onChange(event.target.value)}>
    <option value="">${label}: all</option>
    ${options.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}</select>`;
}

export const Filter = ({ value, onInput, label }) => html`<input type="search" id="filter" aria-label=${label}
  placeholder=${label} value=${value ?? ''} onInput=${(event) => onInput(event.target.value)} />`;

// The rows of a table that are chosen, by key.
export function useChosen() {
  const [chosen, put] = useState(new Set());
  const toggle = (key) => put((old) => { const next = new Set(old); if (!next.delete(key)) next.add(key); return next; });
  return { chosen, toggle, set: (keys) => put(new Set(keys)) };
}

// Chooses every row that the filter shows, or none.
export function PickAll({ keys, chosen, onChange }) {
  const box = useRef(null), picked = keys.filter((key) => chosen.has(key)).length;
  const isAll = keys.length > 0 && picked === keys.length;
  useLayoutEffect(() => { box.current.indeterminate = picked > 0 && !isAll; });
  return html`<label class="pick"><input type="checkbox" ref=${box} checked=${isAll} disabled=${!keys.length} onChange=${() => onChange(isAll ? [] : keys)} />
    Select all</label><span class="dim small num">${chosen.size ? `${count(chosen.size)} chosen` : ''}</span>`;
}
