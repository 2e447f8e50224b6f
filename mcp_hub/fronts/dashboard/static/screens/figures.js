// How long calls take and how many fail, for each server and tool, over an hour, a day or a week.
import { html, useEffect, useState } from '../lib/ui.js';
import { get, segment } from '../lib/api.js';
import { link, refine } from '../lib/router.js';
import { count, duration, member, plain, plural } from '../lib/format.js';
import { Docs, Filter, Select } from '../lib/parts.js';
import { Table } from '../lib/table.js';

const SPANS = [['1h', 'an hour'], ['1d', 'a day'], ['7d', 'a week']];
const SORTS = {
  name: (a, b) => a.name.localeCompare(b.name), calls: (a, b) => a.calls - b.calls, failed: (a, b) => (a.failed ?? 0) - (b.failed ?? 0),
  p50: (a, b) => (a.p50 ?? 0) - (b.p50 ?? 0), p95: (a, b) => (a.p95 ?? 0) - (b.p95 ?? 0), max: (a, b) => (a.max ?? 0) - (b.max ?? 0),
};

function columns(found) {
  const time = (key, title) => ({ key, title, width: '78px', right: true, sort: true, cell: (one) => duration(one[key] ?? 0) });
  return [
    { key: 'name', title: 'Tool', width: 'minmax(150px, 1.4fr)', sort: true, card: 'title', cell: (one) => html`<a href=${link('calls', '', one.tool ? { server: one.server, tool: one.tool } : { server: one.server || 'hub' })}>${plain(one.name)}</a>` },
    { key: 'calls', title: 'Calls', width: '70px', right: true, sort: true, cell: (one) => count(one.calls) },
    { key: 'failed', title: 'Failed', width: '110px', right: true, sort: true, cell: (one) => (one.failed ? html`<span class="failing">${count(one.failed)} (${Math.round((1000 * one.failed) / one.calls) / 10} %)</span>` : '0') },
    time('p50', 'Median'), time('p95', '95 %'), time('max', 'Slowest'),
    { key: 'chart', title: 'Calls, failures, 95 %', width: 'minmax(120px, 1fr)', card: 'whole', cell: (one) => html`<${Chart} one=${one} found=${found} />` },
  ];
}

export function Figures({ query }) {
  const span = SPANS.some(([key]) => key === query.span) ? query.span : '1d';
  const [found, set] = useState(null);
  const [problem, setProblem] = useState('');
  useEffect(() => {
    let isHere = true;
    const load = () => get(`v1/history/figures?span=${span}${query.server ? `&server=${segment(query.server)}` : ''}`).then((one) => { if (isHere) { set(one); setProblem(''); } }, (error) => { if (isHere) setProblem(error.message); });
    load();
    const timer = setInterval(load, 15000);
    return () => { isHere = false; clearInterval(timer); };
  }, [span, query.server]);
  const words = (query.q ?? '').toLowerCase(), sort = query.sort ?? '-calls';
  const groups = query.by === 'server' ? found?.servers : found?.rows;
  const rows = (groups ?? []).map((one) => ({ ...one, name: one.tool ? `${one.server || 'hub'}: ${one.tool}` : one.server || 'hub' })).filter((one) => !words || one.name.toLowerCase().includes(words));
  const compare = member(SORTS, sort.replace('-', '')) ?? SORTS.calls;
  rows.sort((a, b) => (sort.startsWith('-') ? compare(b, a) : compare(a, b)));
  const servers = [...new Set([...(found?.servers ?? []).map((one) => one.server), query.server])].filter(Boolean).map((name) => [name, plain(name)]);
  const calls = rows.reduce((sum, one) => sum + one.calls, 0);
  return html`<div class="screen fixed"><div class="head"><h1>Figures</h1><${Docs} page="dashboard.md" /><span class="dim num">${found ? `${plural(calls, 'call')}${found.more ? `, ${plural(found.more, 'tool')} not shown` : ''}` : ''}</span></div>
    ${problem ? html`<p role="alert">${plain(problem)}</p>` : null}
    <div class="filters"><${Filter} label="Filter tools" value=${query.q} onInput=${(q) => refine({ q })} />
      <div class="pick" role="group" aria-label="Over">${SPANS.map(([key, title]) => html`<button type="button" aria-pressed=${String(key === span)} onClick=${() => refine({ span: key })}>${title}</button>`)}</div>
      <${Select} label="Server" value=${query.server} options=${servers} onChange=${(server) => refine({ server })} />
      <label class="pick"><input type="checkbox" checked=${query.by === 'server'} onChange=${(event) => refine({ by: event.target.checked ? 'server' : '' })} />By server only</label></div>
    <section class="panel grow"><${Table} label="Figures" className="grow" rows=${rows} rowKey=${(one) => one.name} columns=${columns(found)} sort=${sort} onSort=${(next) => refine({ sort: next })}
      empty=${found ? 'No call in this time.' : problem ? 'Not loaded.' : 'Loading…'} /></section></div>`;
}

const TALL = 24;
// Bars for the calls, red for those that failed, and a mark as high as 95 % of the calls took.
function Chart({ one, found }) {
  const points = Math.max(found?.points ?? 1, 1), series = one.series ?? [];
  const most = Math.max(1, ...series.map(([, calls]) => calls)), slowest = Math.max(1e-9, ...series.map(([, , , , late = 0]) => late));
  return html`<svg class="spark small" viewBox=${`0 0 ${points * 4} ${TALL}`} preserveAspectRatio="none" role="img" aria-label=${`${plural(one.calls, 'call')} of ${plain(one.name)}, ${one.failed ?? 0} failed, 95 % within ${duration(one.p95 ?? 0)}`}>
    ${series.map(([at, calls, failed = 0, , late = 0]) => { const tall = (calls / most) * (TALL - 1), low = (failed / most) * (TALL - 1);
      return html`<rect x=${at * 4} y=${TALL - tall} width="3" height=${Math.max(tall - low, 0)} /><rect class="bad" x=${at * 4} y=${TALL - low} width="3" height=${low} />
        <rect class="late" x=${at * 4} y=${Math.max(TALL - (late / slowest) * (TALL - 1) - 1.5, 0)} width="4" height="1.5" />`; })}</svg>`;
}
