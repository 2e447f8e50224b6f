// All tools in one table; what changed since it was approved; what is hidden.
import { html, useMemo } from '../lib/ui.js';
import { ask } from '../lib/api.js';
import { link, refine } from '../lib/router.js';
import { ago, count, member, plain, plural, table } from '../lib/format.js';
import { attempt, hubNow, operates, useStore } from '../lib/store.js';
import { hints, useTools } from '../lib/tools.js';
import { Docs, Filter, PickAll, Select, useChosen } from '../lib/parts.js';
import { Table } from '../lib/table.js';
import { EventTypes } from './event.js';
import { Changed } from './changed.js';

const SORTS = {
  name: (a, b) => a.name.localeCompare(b.name), server: (a, b) => a.server.localeCompare(b.server) || a.name.localeCompare(b.name),
  tokens: (a, b) => a.tokens - b.tokens, last: (a, b) => (a.last ?? 0) - (b.last ?? 0),
};

function columns(chosen, toggle) {
  const box = { key: 'choose', title: '', width: '18px', card: 'corner', cell: (tool) => html`<input type="checkbox" aria-label=${`Choose ${plain(tool.name)}`} checked=${chosen.has(tool.name)} onChange=${() => toggle(tool.name)} />` };
  const others = [
    { key: 'name', title: 'Tool', width: 'minmax(170px, 1.7fr)', sort: true, card: 'title', cell: (tool) => html`<a href=${link('tool', tool.name)}>${plain(tool.name)}</a>${tool.pinned ? html` <span class="tag ok">pinned</span>` : null}` },
    { key: 'server', title: 'Server', width: 'minmax(94px, .6fr)', sort: true, cell: (tool) => plain(tool.server) },
    { key: 'tokens', title: 'Tokens', width: '70px', right: true, sort: true, cell: (tool) => count(tool.tokens) },
    { key: 'last', title: 'Last used', width: '90px', right: true, sort: true, cell: (tool) => (tool.last ? ago(Math.max(hubNow() - tool.last, 0)) : '–') },
    { key: 'hints', title: 'Hints', width: 'minmax(110px, 172px)', card: 'whole', cell: (tool) => hints(tool.definition).map(([kind, text]) => html`<span class="tag ${kind}">${text}</span> `) },
    { key: 'about', title: 'Description', width: 'minmax(0, 2fr)', card: 'whole', cell: (tool) => tool.definition.description && html`<span class="dim">${plain(String(tool.definition.description).slice(0, 300))}</span>` },
  ];
  return operates() ? [box, ...others] : others;
}

export function Tools({ query }) {
  const store = useStore();
  const { tools, overrides, problem, reload } = useTools();
  const { chosen, toggle, set: setChosen } = useChosen();
  const last = useMemo(() => {
    const found = new Map();
    for (const call of [...store.live, ...store.calls]) if (!found.has(call.name)) found.set(call.name, call.at);
    return found;
  }, [store.calls, store.live]);
  const words = (query.q ?? '').toLowerCase(), sort = query.sort ?? 'server';
  const all = tools ?? [];
  const rows = all.filter((tool) => (!query.server || tool.server === query.server) && (!words || `${tool.name} ${tool.definition.description ?? ''}`.toLowerCase().includes(words)))
    .map((tool) => ({ ...tool, last: last.get(tool.name) }));
  const compare = member(SORTS, sort.replace('-', '')) ?? SORTS.server;
  rows.sort((a, b) => (sort.startsWith('-') ? compare(b, a) : compare(a, b)));
  const write = async (change) => {
    const servers = table();
    for (const tool of all) if (chosen.has(tool.name)) (servers[tool.server] ??= table())[tool.tool] = change;
    if (await attempt(() => ask('POST', 'overrides', { servers }), `${plural(chosen.size, 'tool')} changed in servers.overrides.yaml.`)) { setChosen([]); reload(); }
  };
  const servers = [...new Set(all.map((tool) => tool.server))].map((name) => [name, plain(name)]);
  const total = rows.reduce((sum, tool) => sum + tool.tokens, 0);
  return html`<div class="screen fixed"><div class="head"><h1>Tools</h1><${Docs} page="profiles.md" /><span class="dim num">${tools ? `${plural(rows.length, 'tool')}, ${plural(total, 'token')}` : ''}</span></div>
    ${problem ? html`<p role="alert">${plain(problem)}</p>` : null}
    <${Changed} isOpen=${query.show === 'changed'} onDone=${reload} />
    <${EventTypes} server=${query.server} folded=${true} />
    <${Hidden} overrides=${overrides} onDone=${reload} />
    <div class="filters"><${Filter} label="Filter tools" value=${query.q} onInput=${(q) => refine({ q })} />
      <${Select} label="Server" value=${query.server} options=${servers} onChange=${(server) => refine({ server })} />
      ${operates() ? html`<${PickAll} keys=${rows.map((tool) => tool.name)} chosen=${chosen} onChange=${setChosen} />
        <button type="button" disabled=${!chosen.size} onClick=${() => write({ hide: true })}>Hide</button>
        <button type="button" disabled=${!chosen.size} onClick=${() => write({ pin: true })}>Pin</button>
        <button type="button" disabled=${!chosen.size} onClick=${() => write({ pin: null })}>Unpin</button>` : null}</div>
    <section class="panel grow"><${Table} label="Tools" className="grow" rows=${rows} rowKey=${(tool) => tool.name} columns=${columns(chosen, toggle)} sort=${sort} onSort=${(next) => refine({ sort: next })}
      empty=${tools ? (all.length ? 'No tool fits this filter.' : 'No server offers a tool yet.') : problem ? 'Not loaded.' : 'Loading…'} /></section></div>`;
}

function Hidden({ overrides, onDone }) {
  const found = Object.entries(overrides).flatMap(([server, tools]) => Object.entries(tools).filter(([, keys]) => keys.hide).map(([tool]) => [server, tool]));
  if (!found.length) return null;
  const show = (server, tool) => attempt(async () => { await ask('POST', 'overrides', { servers: { [server]: { [tool]: { hide: null } } } }); onDone(); }, `${tool} is shown again.`);
  return html`<details class="panel"><summary class="body">${plural(found.length, 'tool')} hidden by servers.overrides.yaml</summary>
    <ul class="list">${found.map(([server, tool]) => html`<li><span class="what">${plain(server)}: ${plain(tool)}</span>${operates() ? html`<button type="button" onClick=${() => show(server, tool)} aria-label=${`Show ${plain(tool)} again`}>Show again</button>` : null}</li>`)}</ul></details>`;
}
