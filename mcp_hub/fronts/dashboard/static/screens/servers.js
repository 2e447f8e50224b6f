// All servers in one table: those with a problem first, filter, sort, and actions for several at once.
import { html, useState } from '../lib/ui.js';
import { ask, segment } from '../lib/api.js';
import { link, refine } from '../lib/router.js';
import { count, member, plain, plural, serverState } from '../lib/format.js';
import { attempt, operates, useStore } from '../lib/store.js';
import { Confirm, Docs, Filter, PickAll, Select, ServerBadge, isBad, useChosen, why } from '../lib/parts.js';
import { Table } from '../lib/table.js';
import { withSandbox } from './sandbox.js';

const byNeed = (a, b) => isBad(b) - isBad(a);
const STATES = [['bad', 'with a problem'], ['ready', 'ready'], ['sleeps', 'sleeps'], ['disabled', 'disabled']];
const byName = (a, b) => a.server.localeCompare(b.server);
const SORTS = {
  server: byName, state: (a, b) => serverState(a)[1].localeCompare(serverState(b)[1]) || byName(a, b),
  tools: (a, b) => (a.offered?.tool ?? 0) - (b.offered?.tool ?? 0), restarts: (a, b) => a.restarts - b.restarts,
};
const isIn = (one, state) => ({ bad: isBad(one), ready: one.state === 'ready' && !one.rests, sleeps: Boolean(one.rests), disabled: one.state === 'disabled' }[state] ?? true);

const COLUMNS = [
  { key: 'server', title: 'Server', width: 'minmax(120px, 1.2fr)', sort: true, card: 'title', cell: (one) => html`<a href=${link('server', one.server)}>${plain(one.server)}</a>` },
  { key: 'state', title: 'State', width: '120px', sort: true, cell: (one) => html`<${ServerBadge} server=${one} />` },
  { key: 'tools', title: 'Tools', width: '64px', right: true, sort: true, cell: (one) => count(one.offered?.tool ?? 0) },
  { key: 'restarts', title: 'Restarts', width: '76px', right: true, sort: true, cell: (one) => one.restarts || '' },
  { key: 'software', title: 'Software', width: 'minmax(0, 1fr)', cell: (one) => plain(one.software ?? '') },
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
  return html`<div class="screen fixed"><div class="head"><h1>Servers</h1><${Docs} page="configuration.md" /><span class="dim num">${plural(rows.length, 'server')}</span></div>
    <div class="filters"><${Filter} label="Filter servers" value=${query.q} onInput=${(q) => refine({ q })} />
      <${Select} label="State" value=${query.state} options=${STATES} onChange=${(state) => refine({ state })} />
      ${operates() ? html`<${PickAll} keys=${rows.map((one) => one.server)} chosen=${chosen} onChange=${set} />
        <${Confirm} disabled=${busy || !chosen.size} onConfirm=${restart} sure=${`Restart ${plural(chosen.size, 'server')} now`}>Restart<//>` : null}</div>
    <section class="panel grow"><${Table} label="Servers" className="grow" rows=${rows} rowKey=${(one) => one.server} columns=${operates() ? [box, ...columns] : columns} sort=${sort} usual="problems first" onSort=${(next) => refine({ sort: next })}
      empty=${store.servers.length ? 'No server fits this filter.' : 'There are no servers. Add one: mcp-hub add time -- uvx mcp-server-time'} /></section></div>`;
}
