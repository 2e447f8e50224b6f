// All servers in one table: those with a problem first, filter, sort, and actions for several at once.
import { html, useState } from '../lib/ui.js';
import { ask, segment } from '../lib/api.js';
import { link, refine } from '../lib/router.js';
import { count, member, plain, plural, serverState } from '../lib/format.js';
import { attempt, loadEdits, operates, useStore } from '../lib/store.js';
import { Command, Confirm, Docs, Filter, PickAll, Select, ServerBadge, isBad, useChosen, why } from '../lib/parts.js';
import { Table } from '../lib/table.js';
import { withSandbox } from './sandbox.js';
import { Diff } from './edit.js';

const byNeed = (a, b) => isBad(b) - isBad(a);
const STATES = [['bad', 'with a problem'], ['ready', 'ready'], ['sleeps', 'sleeps'], ['disabled', 'disabled']];
const byName = (a, b) => a.server.localeCompare(b.server);
const SORTS = {
  server: byName, state: (a, b) => serverState(a)[1].localeCompare(serverState(b)[1]) || byName(a, b),
  tools: (a, b) => (a.offered?.tool ?? 0) - (b.offered?.tool ?? 0), restarts: (a, b) => a.restarts - b.restarts,
};
const isIn = (one, state) => ({ bad: isBad(one), ready: one.state === 'ready' && !one.rests, sleeps: Boolean(one.rests), disabled: one.state === 'disabled' }[state] ?? true);

export const COLUMNS = [
  { key: 'server', title: 'Server', width: 'minmax(140px, 1.4fr)', sort: true, card: 'title', cell: (one) => html`<a href=${link('server', one.server)}>${plain(one.server)}</a>` },
  { key: 'state', title: 'State', width: '112px', sort: true, cell: (one) => html`<${ServerBadge} server=${one} />` },
  { key: 'tools', title: 'Tools', width: '56px', right: true, sort: true, cell: (one) => count(one.offered?.tool ?? 0) },
  { key: 'restarts', title: 'Restarts', width: '76px', right: true, sort: true, cell: (one) => one.restarts || '' },
  { key: 'software', title: 'Software', width: 'minmax(0, .9fr)', cell: (one) => plain(one.software ?? '') },
  { key: 'reason', title: 'Why', width: 'minmax(0, 2.4fr)', card: 'whole', cell: (one) => (why(one) ? html`<span title=${plain(one.reason ?? '')}>${plain(why(one))}</span>` : '') },
];

export function Servers({ query }) {
  const store = useStore();
  const { chosen, toggle, set } = useChosen();
  const [busy, setBusy] = useState(false);
  const words = (query.q ?? '').toLowerCase(), sort = query.sort ?? '';
  const rows = store.servers.filter((one) => isIn(one, query.state) && (!words || `${one.server} ${one.software ?? ''} ${why(one)}`.toLowerCase().includes(words)));
  const compare = member(SORTS, sort.replace('-', '')) ?? byNeed;
  rows.sort((a, b) => (sort.startsWith('-') ? compare(b, a) : compare(a, b)));
  const columns = withSandbox(COLUMNS, store.servers);
  const box = { key: 'choose', title: '', width: '18px', card: 'corner', cell: (one) => html`<input type="checkbox" aria-label=${`Choose ${plain(one.server)}`} checked=${chosen.has(one.server)} onChange=${() => toggle(one.server)} />` };
  const restart = async () => {
    setBusy(true);
    for (const name of chosen) await attempt(() => ask('POST', `v1/servers/${segment(name)}/restart`, {}), `${plain(name)} restarts.`);
    set([]);
    setBusy(false);
  };
  const edit = async (action, text) => {
    setBusy(true);
    for (const name of chosen) await attempt(() => change(name, action), `${plain(name)} ${text}.`);
    set([]);
    setBusy(false);
  };
  return html`<div class="screen fixed"><div class="head"><h1>Servers</h1><${Docs} page="configuration.md" /><span class="dim num">${plural(rows.length, 'server')}</span>
      <div class="end">${operates() && store.edits?.possible ? html`<a class="button go" href=${link('edit')}>Add a server</a>` : null}</div></div>
    <${Waiting} proposals=${store.edits?.proposals ?? []} isOpen=${query.show === 'edits'} />
    <div class="filters"><${Filter} label="Filter servers" value=${query.q} onInput=${(q) => refine({ q })} />
      <${Select} label="State" value=${query.state} options=${STATES} onChange=${(state) => refine({ state })} />
      ${operates() ? html`<${PickAll} keys=${rows.map((one) => one.server)} chosen=${chosen} onChange=${set} />
        <${Confirm} disabled=${busy || !chosen.size} onConfirm=${restart} sure=${`Restart ${plural(chosen.size, 'server')} now`}>Restart<//>
        ${store.edits?.possible ? html`<${Confirm} disabled=${busy || !chosen.size} onConfirm=${() => edit('disable', 'is disabled')} sure=${`Disable ${plural(chosen.size, 'server')} now`}>Disable<//>
          <${Confirm} className="bad" disabled=${busy || !chosen.size} onConfirm=${() => edit('remove', 'is removed')} sure=${`Remove ${plural(chosen.size, 'server')} now`}>Remove<//>` : null}` : null}</div>
    <section class="panel grow"><${Table} label="Servers" className="grow" rows=${rows} rowKey=${(one) => one.server} columns=${operates() ? [box, ...columns] : columns} sort=${sort} usual="problems first" onSort=${(next) => refine({ sort: next })}
      empty=${store.servers.length ? 'No server fits this filter.' : 'There are no servers. Add one: mcp-hub add time -- uvx mcp-server-time'} /></section></div>`;
}

// Disables, enables or removes a server, or withdraws the edit of it; what waits for a terminal then is in the store.
export async function change(server, action) {
  const outcome = await ask('POST', 'edits', { server, action });
  await loadEdits();
  return outcome;
}

function Waiting({ proposals, isOpen }) {
  if (!proposals.length) return null;
  return html`<details class="panel" open=${isOpen}><summary class="body"><span class="badge warn">${plural(proposals.length, 'edit')} waiting for you on a terminal</span></summary>
    ${proposals.map((one) => html`<article class="body raw" key=${one.server}><div class="head"><h2>${plain(one.server)}</h2><span class="dim small">${one.new ? 'new' : 'changed'}: ${(one.reasons ?? []).map(plain).join('; ')}</span>
      ${operates() ? html`<div class="end"><button type="button" class="bad" aria-label=${`Withdraw the edit of ${plain(one.server)}`} onClick=${() => attempt(() => change(one.server, 'withdraw'), 'The edit is withdrawn.')}>Withdraw</button></div>` : null}</div>
      <${Diff} lines=${one.diff} label=${`Difference of ${plain(one.server)}`} /><${Command}>${one.command}<//></article>`)}</details>`;
}
