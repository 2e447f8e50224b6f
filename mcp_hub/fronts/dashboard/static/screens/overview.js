// The hub at a glance, and what needs a person.
import { html, useEffect, useState } from '../lib/ui.js';
import { get } from '../lib/api.js';
import { link } from '../lib/router.js';
import { count, cut, duration, plain, plural, saying } from '../lib/format.js';
import { askToNotify, mayAskToNotify } from '../lib/asks.js';
import { hubNow, loadInstalls, operates, refused, useStore } from '../lib/store.js';
import { Badge, Bar, CallBadge, Empty, Docs, isBad, isLogin, Panel } from '../lib/parts.js';
import { Table } from '../lib/table.js';
import { COLUMNS } from './servers.js';
import { withSandbox } from './sandbox.js';

// Open questions, changed tools, logins, servers with a problem: each with where to go.
export function needs(store) {
  const asks = store.asks.filter((ask) => ask.may_answer).map((ask) => ({ key: `y ${ask.id}`, kind: 'warn', tag: 'your yes', text: `${plain(ask.tool)} of ${plain(ask.server)} waits for a yes`, href: link('stream', ask.id) }));
  const found = store.live.filter((call) => call.questions).map((call) => ({
    key: call.id, kind: 'warn', tag: 'question', text: `${plain(call.name)} asks${call.question ? `: ${plain(call.question)}` : ` ${plural(call.questions, 'question')}`}`, href: link('stream', call.id),
  }));
  found.unshift(...asks);
  if (store.approvals.length) {
    found.push({ key: 'approvals', kind: 'warn', tag: 'changed texts', text: `${plural(store.approvals.length, 'text')} changed since they were approved`, href: link('tools', '', { show: 'changed' }) });
  }
  if (refused().length) {
    found.unshift({ key: 'reload', kind: 'bad', tag: 'settings', text: `The hub keeps its settings from before: ${plain(cut(refused()[0], 160))}`, href: link('settings') });
  }
  for (const one of store.edits?.proposals ?? []) {
    found.push({ key: `e ${one.server}`, kind: 'warn', tag: 'edit', text: `${plain(one.server)}: an edit waits for you on a terminal`, href: link('servers', '', { show: 'edits' }) });
  }
  for (const server of store.hub?.operator ? store.servers : []) {
    if (server.given_up) found.push({ key: `w ${server.server}`, kind: 'warn', tag: 'webhooks', text: `${plain(server.server)}: ${plural(server.given_up, 'message')} about its events reached no webhook`, href: link('server', server.server) });
    if (!isBad(server)) continue;
    found.push({ key: `s ${server.server}`, kind: 'bad', tag: isLogin(server) ? 'login' : 'server', text: `${plain(server.server)}: ${plain(cut(server.reason ?? server.state, 160))}`, href: link('server', server.server) });
  }
  for (const one of store.installs) {
    if (one.state === 'lost') found.push({ key: `c ${one.client}`, kind: 'warn', tag: 'client', text: `${one.title} has lost the hub: its entry is gone`, href: link('clients') });
  }
  return found;
}

// Those with a problem first, else in the order of the file.
const byNeed = (servers) => [...servers.filter(isBad), ...servers.filter((one) => !isBad(one))];

export function Overview() {
  const store = useStore();
  const [, tick] = useState(0);
  useEffect(() => {
    const timers = [setInterval(() => tick((n) => n + 1), 1000), setInterval(loadInstalls, 60000)];
    return () => timers.forEach(clearInterval);
  }, []);
  const todo = needs(store);
  const waits = (call) => call.status === 'waiting';
  const running = [...store.live.filter((call) => !waits(call)), ...store.live.filter(waits)];
  return html`<div class="screen"><div class="head"><h1>Overview</h1><${Docs} page="dashboard.md" /></div>
    <div class="tiles"><${Servers} servers=${store.servers} /><${Running} live=${store.live} /><${Rate} calls=${store.calls} /><${Saved} version=${store.tools} /></div>
    <div class="two">
      <${Panel} title="Needs you" end=${todo.length ? html`<${Badge} kind="warn">${todo.length}<//>` : null}>
        ${todo.length ? html`<ul class="list">${todo.slice(0, 20).map((one) => html`<li key=${one.key}><${Badge} kind=${one.kind}>${one.tag}<//><a class="what" href=${one.href}>${one.text}</a></li>`)}</ul>`
          : html`<${Empty}>Nothing needs you.<//>`}
        ${store.asks.length && mayAskToNotify() ? html`<div class="body"><button type="button" onClick=${askToNotify}>Notify me when a call waits for a yes</button></div>` : null}<//>
      <${Panel} title="Running now" end=${html`<a href=${link('calls')}>all calls</a>`}>
        ${running.length ? html`<ul class="list live">${running.slice(0, 8).map((call) => html`<${Live} key=${call.id} call=${call} />`)}</ul>`
          : html`<${Empty}>No call runs longer than a moment.<//>`}<//>
    </div>
    <${Panel} title="Servers" end=${html`<a href=${link('servers')}>all servers</a>`}>
      ${store.servers.length ? html`<${Table} label="Servers" className="short" rows=${byNeed(store.servers)} rowKey=${(one) => one.server} columns=${withSandbox(COLUMNS.map(({ sort, ...column }) => column), store.servers)} />`
        : html`<${Empty}>There are no servers. ${operates() ? html`<a href=${link('edit')}>Add a server</a>` : ''}<//>`}<//>
  </div>`;
}

function Live({ call }) {
  return html`<li><a class="what cut" href=${link('stream', call.id)}>${plain(call.name)}</a><${CallBadge} status=${call.status} />
    ${call.questions || call.waits_for ? null : html`<${Bar} progress=${call.progress} total=${call.total} label=${`Progress of ${call.name}`} />`}
    <span class="num dim small">${call.total ? `${Math.round((100 * call.progress) / call.total)} %, ` : ''}${duration(Math.max(hubNow() - call.at, 0))}</span>
    ${saying(call, 0) ? html`<span class="dim small cut" style=${{ flexBasis: '100%' }}>${plain(saying(call, hubNow()))}</span>` : null}</li>`;
}

function Servers({ servers }) {
  const active = servers.filter((one) => one.state !== 'disabled');
  const ready = active.filter((one) => one.state === 'ready' || one.rests).length;
  const bad = active.filter(isBad).length;
  return html`<section class="panel tile"><h2 class="dim small">Servers</h2><div class="big">${ready} <small>of ${active.length} ready</small></div>
    <div class="small dim">${bad ? `${bad} with a problem` : plural(active.reduce((sum, one) => sum + (one.offered?.tool ?? 0), 0), 'tool')}</div></section>`;
}

function Running({ live }) {
  const asks = live.filter((call) => call.questions).length, waiting = live.filter((call) => call.status === 'waiting').length;
  return html`<section class="panel tile"><h2 class="dim small">Running calls</h2><div class="big">${count(live.length - waiting)}</div>
    <div class="small dim">${[asks && `${asks} with a question`, waiting && `${waiting} waiting`].filter(Boolean).join(', ') || 'short calls not counted'}</div></section>`;
}

const STEP = 10, STEPS = 30;
function Rate({ calls }) {
  const now = hubNow(), good = new Array(STEPS).fill(0), bad = new Array(STEPS).fill(0);
  for (const call of calls) {
    const slot = Math.floor((now - call.at - call.took) / STEP);
    if (slot >= STEPS) { if (now - call.at > STEP * STEPS + 3600) break; continue; }
    (['failed', 'tool_error', 'timed_out'].includes(call.status) ? bad : good)[Math.max(slot, 0)]++;
  }
  const most = Math.max(1, ...good.map((n, at) => n + bad[at]));
  const minute = good.slice(0, 6).reduce((a, b) => a + b, 0) + bad.slice(0, 6).reduce((a, b) => a + b, 0);
  const failed = bad.slice(0, 6).reduce((a, b) => a + b, 0);
  const x = (at) => (STEPS - 1 - at) * 10;
  return html`<section class="panel tile"><h2 class="dim small">Calls in the last minute</h2>
    <div class="big">${count(minute)} ${failed ? html`<small>${failed} failed</small>` : null}</div>
    <svg class="spark" viewBox="0 0 300 34" preserveAspectRatio="none" role="img" aria-label="Calls in the last five minutes">
      ${good.map((n, at) => { const top = ((n + bad[at]) / most) * 32, low = (bad[at] / most) * 32;
        return html`<rect key=${at} x=${x(at)} y=${34 - top} width="8" height=${Math.max(top - low, n ? 1 : 0)} /><rect class="bad" x=${x(at)} y=${34 - low} width="8" height=${low} />`; })}</svg></section>`;
}

// The tokens of a list beside those of all tools as they are: `of` is 0 where the list is not shorter.
export function listCost({ current, modes, total }) {
  const full = modes.find((mode) => mode.mode === 'full' && mode.expose === 'full')?.tokens ?? total.full, saved = full - current.tokens;
  const compared = saved > 0 ? `: ${count(saved)} saved in each session` : saved < 0 ? `: ${count(-saved)} more than all tools as they are` : '';
  return { of: saved > 0 ? full : 0, saved: Math.max(saved, 0), text: `${plural(current.listed, 'tool')} with the hub's own, mode ${current.mode}${compared}` };
}

function Saved({ version }) {
  const [found, set] = useState(null);
  const [problem, setProblem] = useState('');
  useEffect(() => { get('v1/tokens').then((account) => { set(account); setProblem(''); }, (error) => { set(null); setProblem(error.message); }); }, [version]);
  const cost = found ? listCost(found) : { of: 0, saved: 0, text: '' }, now = found?.current.tokens ?? 0;
  return html`<section class="panel tile"><h2 class="dim small">Tokens of tool lists</h2>
    <div class="big">${found ? html`${count(now)}${cost.of ? html` <small>of ${count(cost.of)}</small>` : null}` : problem ? '–' : '…'}</div>
    <div class="stack" role="img" aria-label=${`${plural(cost.saved, 'token')} saved`}><i class="a" style=${{ width: `${cost.of ? (100 * now) / cost.of : now ? 100 : 0}%` }}></i></div>
    ${problem ? html`<div class="small" role="alert">Not known now: ${plain(problem)}</div>` : html`<div class="small dim">${cost.text}</div>`}</section>`;
}
