// Every call: those that run first, then the newest; filters are in the address.
import { html, useEffect, useMemo, useState } from '../lib/ui.js';
import { link, refine } from '../lib/router.js';
import { CALL_STATES, clock, count, duration, plain, saying } from '../lib/format.js';
import { hubNow, useStore } from '../lib/store.js';
import { Bar, CallBadge, Filter, Select, Docs } from '../lib/parts.js';
import { Table } from '../lib/table.js';

const TIMES = [['60', 'last minute'], ['300', 'last 5 minutes'], ['3600', 'last hour'], ['86400', 'last day']];
const serverOf = (call) => call.server || 'hub';

const COLUMNS = [
  { key: 'at', title: 'Started', width: '112px', cell: (call) => html`<span class="num dim">${clock(call.at)}</span>` },
  { key: 'status', title: 'State', width: '104px', cell: (call) => html`<${CallBadge} status=${call.status} />` },
  { key: 'name', title: 'Call', width: 'minmax(150px, 1.6fr)', card: 'title', cell: (call) => html`<a href=${link('stream', call.id)}>${plain(call.name)}</a>` },
  { key: 'server', title: 'Server', width: 'minmax(70px, .7fr)', cell: (call) => plain(serverOf(call)) },
  { key: 'client', title: 'Client', width: 'minmax(70px, .8fr)', cell: (call) => html`<span title=${plain(call.principal)}>${plain(call.client || '–')}</span>` },
  { key: 'took', title: 'Took', width: '86px', right: true, cell: (call) => html`<${Took} call=${call} />` },
  { key: 'message', title: 'Message', width: 'minmax(0, 2.6fr)', card: 'whole', cell: (call) => call.total && !call.took && !call.waits_for
    ? html`<div class="head"><${Bar} progress=${call.progress} total=${call.total} label=${`Progress of ${call.name}`} /><span class="dim cut">${plain(call.message ?? '')}</span></div>`
    : html`<${Said} call=${call} />` },
];

const Said = ({ call }) => { const said = plain(saying(call, hubNow())); return html`<span class="dim" title=${said}>${said}</span>`; };
const Took = ({ call }) => html`<span>${duration(call.took || Math.max(hubNow() - call.at, 0))}</span>`;

function names(calls, of) {
  return [...new Set(calls.map(of))].filter(Boolean).sort().slice(0, 200).map((name) => [name, plain(name)]);
}

export function Calls({ query }) {
  const store = useStore();
  const [, tick] = useState(0);
  useEffect(() => {
    if (!store.live.length) return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 500);
    return () => clearInterval(timer);
  }, [store.live.length > 0]);
  const all = useMemo(() => {
    const running = new Set(store.live.map((call) => call.id));
    const ended = store.calls.filter((call) => !running.has(call.id));
    return [...store.live].sort((a, b) => b.at - a.at).concat(ended);
  }, [store.calls, store.live]);
  const words = (query.q ?? '').toLowerCase();
  const since = query.time ? hubNow() - Number(query.time) : 0;
  const rows = all.filter((call) => (!query.server || serverOf(call) === query.server) && (!query.client || call.client === query.client)
    && (!query.state || call.status === query.state) && (!query.tool || call.name === query.tool) && call.at >= since
    && (!words || `${call.name} ${call.id} ${saying(call, 0)} ${call.principal}`.toLowerCase().includes(words)));
  const choice = (key) => (value) => refine({ [key]: value });
  return html`<div class="screen fixed"><div class="head"><h1>Calls</h1><${Docs} page="streams.md" /><span class="dim num">${count(rows.length)}${rows.length === all.length ? '' : ` of ${count(all.length)}`}</span></div>
    <div class="filters"><${Filter} label="Filter calls" value=${query.q} onInput=${choice('q')} />
      <${Select} label="Server" value=${query.server} options=${names(all, serverOf)} onChange=${choice('server')} />
      <${Select} label="Tool" value=${query.tool} options=${names(query.server ? all.filter((call) => serverOf(call) === query.server) : all, (call) => call.name)} onChange=${choice('tool')} />
      <${Select} label="Client" value=${query.client} options=${names(all, (call) => call.client)} onChange=${choice('client')} />
      <${Select} label="State" value=${query.state} options=${CALL_STATES} onChange=${choice('state')} />
      <${Select} label="Time" value=${query.time} options=${TIMES} onChange=${choice('time')} /></div>
    <section class="panel grow"><${Table} label="Calls" className="grow" rows=${rows} rowKey=${(call) => call.id} columns=${COLUMNS}
      empty=${all.length ? 'No call fits these filters.' : 'No call was made yet. Call a tool on the screen Tools, or connect a client on the screen Clients.'} /></section></div>`;
}
