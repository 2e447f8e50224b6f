// A search in the registry of the hub: a server that is taken becomes the text of the entry below, and nothing more.
import { html, useState } from '../lib/ui.js';
import { get, segment } from '../lib/api.js';
import { plain, plural } from '../lib/format.js';
import { Empty, Panel } from '../lib/parts.js';

const KINDS = [['remote', 'Use its URL'], ['package', 'Use its command']];

export function Registry({ onTake }) {
  const [words, setWords] = useState('');
  const [servers, setServers] = useState(null);
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  const search = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      setServers((await get(`registry?q=${segment(words.trim())}`)).servers);
      setProblem('');
    } catch (error) {
      setServers(null);
      setProblem(error.message);
    }
    setBusy(false);
  };
  const take = (server, kind) => {
    onTake(server.short, server[kind]);
    document.getElementById('entry-name')?.focus();
  };
  const end = servers ? html`<span class="dim small">${plural(servers.length, 'server')}</span>` : null;
  return html`<${Panel} title="From the registry" end=${end}>
    <form class="body filters" role="search" onSubmit=${search}>
      <input type="search" aria-label="Search the registry by name" placeholder="Name of a server" maxlength="200" autocomplete="off" value=${words} onInput=${(event) => setWords(event.target.value)} />
      <button disabled=${busy || !words.trim()}>${busy ? 'Searching…' : 'Search'}</button></form>
    <div role="status">${problem ? html`<p class="body" role="alert">${plain(problem)}</p>` : null}
    ${servers?.length === 0 ? html`<${Empty}>The registry has no such server.<//>` : null}
    ${servers?.length ? html`<ul class="list">${servers.map((server) => html`<li key=${server.name}>
      <div class="what"><strong>${plain(server.name)}</strong> <span class="dim small">${plain(server.version)}${server.deprecated ? ' (deprecated)' : ''}</span>
        <div class="small dim">${plain(server.description)}</div>
        ${server.remote || server.package ? null : html`<div class="small dim">The hub cannot propose it here. On a terminal: mcp-hub add ${plain(server.name)}</div>`}</div>
      <div class="head">${KINDS.map(([kind, text]) => (server[kind] ? html`<button type="button" aria-label=${`${text}: ${plain(server.name)}`} onClick=${() => take(server, kind)}>${text}</button>` : null))}</div></li>`)}</ul>` : null}</div><//>`;
}
