// Every call: those that run first, then the newest, of earlier starts too; filters are in the address.
import { html, useEffect, useMemo, useState } from '../lib/ui.js';
import { link, refine } from '../lib/router.js';
import { CALL_STATES, clock, count, duration, plain, plural, saying } from '../lib/format.js';
import { attempt, hubNow, toast, useStore } from '../lib/store.js';
import { download, times, useHistory } from '../lib/history.js';
import { Bar, CallBadge, Docs, Filter, Select } from '../lib/parts.js';
import { Table } from '../lib/table.js';

const TIMES = [['60', 'last minute'], ['300', 'last 5 minutes'], ['3600', 'last hour'], ['86400', 'last day'], ['yesterday', 'yesterday'], ['604800', 'last 7 days']];
const serverOf = (call) => call.server || 'hub';

const COLUMNS = [
  { key: 'at', title: 'Started', width: '114px', cell: (call) => html`<span class="num dim">${clock(call.at)}</span>` },
  { key: 'status', title: 'State', width: '104px', cell: (call) => html`<${CallBadge} status=${call.status} />` },
  { key: 'name', title: 'Call', width: 'minmax(150px, 1.4fr)', card: 'title', cell: (call) => html`<a href=${link('stream', call.id)}>${call.parent ? '↳ ' : ''}${plain(call.name)}</a>` },
  { key: 'server', title: 'Server', width: 'minmax(70px, .6fr)', cell: (call) => plain(serverOf(call)) },
  { key: 'client', title: 'Client', width: 'minmax(86px, .7fr)', cell: (call) => html`<span title=${plain([call.client, call.principal].filter(Boolean).join(', '))}>${plain(call.client || '–')}</span>` },
  { key: 'took', title: 'Took', width: '82px', right: true, cell: (call) => html`<${Took} call=${call} />` },
  { key: 'message', title: 'Message', width: 'minmax(0, 3.2fr)', card: 'line', cell: (call) => call.total && !call.took && !call.waits_for
    ? html`<div class="head"><${Bar} progress=${call.progress} total=${call.total} label=${`Progress of ${call.name}`} /><span class="dim cut">${plain(call.message ?? '')}</span></div>`
    : saying(call, hubNow()) && html`<${Said} call=${call} />` },
];

const Said = ({ call }) => { const said = plain(saying(call, hubNow())); return html`<span class="dim" title=${said}>${said}</span>`; };
const isRunning = (call) => ['working', 'waiting', 'input_required'].includes(call.status);
const Took = ({ call }) => html`<span>${isRunning(call) ? duration(Math.max(hubNow() - call.at, 0)) : call.took ? duration(call.took) : '–'}</span>`;

function names(calls, of, chosen) {
  return [...new Set([...calls.map(of), chosen])].filter(Boolean).sort().slice(0, 200).map((name) => [name, plain(name)]);
}

export function Calls({ query }) {
  const store = useStore();
  const history = useHistory(query);
  const [, tick] = useState(0);
  const [busy, setBusy] = useState('');
  useEffect(() => {
    if (!store.live.length) return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 500);
    return () => clearInterval(timer);
  }, [store.live.length > 0]);
  const all = useMemo(() => {
    const ids = new Set(store.live.map((call) => call.id));
    const ended = store.calls.filter((call) => !ids.has(call.id));
    for (const call of ended) ids.add(call.id);
    return [...store.live].sort((a, b) => b.at - a.at).concat(ended, history.calls.filter((call) => !ids.has(call.id)));
  }, [store.calls, store.live, history.calls]);
  const words = (query.q ?? '').toLowerCase();
  const [since, until] = times(query.time);
  const rows = all.filter((call) => (!query.server || serverOf(call) === query.server) && (!query.client || call.client === query.client)
    && (!query.state || call.status === query.state) && (!query.tool || call.name === query.tool || call.tool === query.tool)
    && (isRunning(call) ? call.at : call.at + (call.took ?? 0)) >= since && call.at < until
    && (!words || `${call.name} ${call.id} ${saying(call, 0)} ${call.principal ?? ''}`.toLowerCase().includes(words)));
  const choice = (key) => (value) => refine({ [key]: value });
  const exported = async () => {
    await attempt(async () => {
      const { count: lines, isWhole } = await download(query, (n) => setBusy(`${count(n)} read…`));
      toast(isWhole ? `${plural(lines, 'call')} exported.` : `The newest ${count(lines)} exported. All of them: mcp-hub history export`);
    });
    setBusy('');
  };
  return html`<div class="screen fixed"><div class="head"><h1>Calls</h1><${Docs} page="dashboard.md" /><span class="dim num">${rows.length === all.length ? '' : `${count(rows.length)} of `}${plural(all.length, 'call')}</span>
      <div class="end">${history.keeping && history.keeping !== 'off' ? html`<a class="button" href=${link('figures', '', { server: query.server })}>Figures</a>
          <button type="button" disabled=${Boolean(busy)} onClick=${exported}>${busy || 'Export as JSONL'}</button>` : null}</div></div>
    <${Losses} history=${history} />
    <div class="filters"><${Filter} label="Filter calls" value=${query.q} onInput=${choice('q')} />
      <${Select} label="Server" value=${query.server} options=${names(all, serverOf, query.server)} onChange=${choice('server')} />
      <${Select} label="Tool" value=${query.tool} options=${names(query.server ? all.filter((call) => serverOf(call) === query.server) : all, (call) => call.name, query.tool)} onChange=${choice('tool')} />
      <${Select} label="Client" value=${query.client} options=${names(all, (call) => call.client, query.client)} onChange=${choice('client')} />
      <${Select} label="State" value=${query.state} options=${CALL_STATES} onChange=${choice('state')} />
      <${Select} label="Time" value=${query.time} options=${TIMES} onChange=${choice('time')} />
      ${history.before ? html`<button type="button" onClick=${history.more}>Load older calls</button>` : null}</div>
    <section class="panel grow"><${Table} label="Calls" className="grow" rows=${rows} rowKey=${(call) => call.id} columns=${COLUMNS}
      empty=${all.length ? ['No call fits these filters.', ...(history.hints ?? []).map(plain)].join(' ') : 'No call was made yet. Call a tool on the screen Tools, or connect a client on the screen Clients.'} /></section></div>`;
}

const KEEPING = { off: 'Calls of earlier starts are not kept (hub.history: off).', none: 'Calls are kept without arguments and results (hub.history).', hash: 'Of arguments only a hash is kept (hub.history).' };

function Losses({ history }) {
  const { losses = [], failing, keeping, problem } = history;
  return html`${failing ? html`<p class="note bad" role="alert">The history cannot be written now: ${plain(failing)}</p>` : null}
    ${problem ? html`<p class="note" role="alert">${plain(problem)}</p>` : null}
    ${KEEPING[keeping] ? html`<p class="dim small">${KEEPING[keeping]}</p>` : null}
    ${losses.length ? html`<details class="panel"><summary class="body">${plural(losses.length, 'gap')} in the history</summary><ul class="list">${losses.map((one) => html`<li><span class="tag">${plain(one.kind)}</span><span class="what">${plain(one.text)}</span><span class="dim small num">${clock(one.at)}</span></li>`)}</ul></details>` : null}`;
}
