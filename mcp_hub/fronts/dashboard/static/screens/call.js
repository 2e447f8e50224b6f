// A call that is over: what it was given, what came of it, and the same call once more.
import { html, useEffect, useState } from '../lib/ui.js';
import { ask, get, segment } from '../lib/api.js';
import { go, isShown, link } from '../lib/router.js';
import { clock, count, duration, plain } from '../lib/format.js';
import { mayChange, toast } from '../lib/store.js';
import { Result, Text } from '../lib/content.js';
import { CallBadge, Command, Confirm, Docs, Empty, Panel } from '../lib/parts.js';

const NOT_KEPT = { none: 'They are not kept (hub.history).', hash: 'Only their hash is kept (hub.history).' };

// `call` is what the list says of it, if it is there.
export function Past({ id, call }) {
  const [found, set] = useState(null);
  const [problem, setProblem] = useState('');
  useEffect(() => {
    let isHere = true, timer;
    // a call that has just ended is written within a second
    const load = (tries) => get(`v1/history/${segment(id)}`).then((one) => isHere && set(one), (error) => {
      if (isHere && error.status === 404 && tries && call) timer = setTimeout(() => load(tries - 1), 700);
      else if (isHere) setProblem(error.status === 404 ? '404' : error.message);
    });
    load(4);
    return () => { isHere = false; clearTimeout(timer); };
  }, [id]);
  const one = found ?? call;
  if (!one) return html`<div class="screen"><h1>${plain(id)}</h1><${Empty}>${problem === '404' ? 'There is no such call, or it is no longer kept.' : problem ? plain(problem) : 'Loading…'}<//></div>`;
  return html`<div class="screen"><div class="head"><h1>${plain(one.name)}</h1><${CallBadge} status=${one.status} /><span class="num dim">${one.took ? duration(one.took) : ''}</span><${Docs} page="dashboard.md" />
      <div class="end"><a class="button" href=${link('calls', '', { tool: one.name })}>Its calls</a></div></div>
    <section class="panel"><div class="body"><dl class="facts">${facts(one).map(([term, value]) => html`<dt>${term}</dt><dd>${value}</dd>`)}</dl></div></section>
    ${found ? html`<div class="two"><${Arguments} one=${found} /><${Outcome} one=${found} /></div>
      ${found.method && found.method !== 'tools/call' ? null : html`<${Again} key=${id} one=${found} />`}
      <${Command}>${`mcp-hub history show ${id}`}<//>`
      : problem ? html`<p class="dim">${problem === '404' ? 'This call was quick and quiet: its arguments and its result are not kept.' : plain(problem)}</p>` : html`<p class="dim" role="status">Loading…</p>`}</div>`;
}

// Of a call with a stream: what it was given, and the same call once more; nothing if that is not kept.
export function Kept({ id }) {
  const [found, set] = useState(null);
  const [problem, setProblem] = useState('');
  useEffect(() => {
    let isHere = true;
    const load = () => get(`v1/history/${segment(id)}`).then((one) => { if (isHere) { set(one); setProblem(''); } }, (error) => isHere && setProblem(error.status === 404 ? '' : error.message));
    load();
    const timer = setTimeout(load, 1500); // one that has just ended is written within a second
    return () => { isHere = false; clearTimeout(timer); };
  }, [id]);
  if (problem) return html`<p role="alert">Its arguments are not known now: ${plain(problem)}</p>`;
  return found ? html`<div class="two"><${Arguments} one=${found} /><${Again} key=${id} one=${found} /></div>` : null;
}

function facts(one) {
  return [
    ['Server', one.server ? html`<a href=${link('server', one.server)}>${plain(one.server)}</a>` : 'the hub itself'],
    ...(one.tool && one.tool !== one.name ? [['Tool', html`<code>${plain(one.tool)}</code>`]] : []),
    ...(one.parent ? [['Script', html`<a href=${link('stream', one.parent)}>${plain(one.parent)}</a>`]] : []),
    ['Client', plain(one.client || '–')], ['Principal', plain(one.principal ?? '–')],
    ['Started', clock(one.at)], ['Took', one.took ? duration(one.took) : '–'],
    ...(one.waited ? [['Of that waited', duration(one.waited)]] : []),
    ...(one.message ? [['Message', html`${plain(one.message)} ${one.code ? html`<span class="tag">${plain(one.code)}</span>` : null}`]] : []),
    ...(one.tokens_in || one.tokens_out ? [['Tokens', `about ${count(one.tokens_in)} in, ${count(one.tokens_out)} out`]] : []),
  ];
}

function Arguments({ one }) {
  const text = one.arguments !== undefined ? JSON.stringify(one.arguments, null, 2) : one.arguments_text;
  const marks = [one.arguments_masked && 'secrets masked', one.arguments_cut && 'cut'].filter(Boolean);
  return html`<${Panel} title="Arguments" end=${marks.map((mark) => html`<span class="tag">${mark}</span>`)}><div class="body">
    ${text !== undefined && text !== '' ? html`<${Text} text=${text} label="Arguments" />` : html`<p class="dim">${NOT_KEPT[one.keeping] ?? 'It was given none.'}</p>`}
    ${one.arguments_hash ? html`<p class="small dim">Hash <code>${plain(one.arguments_hash)}</code></p>` : null}</div><//>`;
}

function Outcome({ one }) {
  const marks = [one.result_masked && 'secrets masked', one.result_cut && `the beginning of ${count(one.result_bytes)} bytes`].filter(Boolean);
  return html`<${Panel} title="Result" end=${marks.map((mark) => html`<span class="tag">${mark}</span>`)}><div class="body">
    ${one.result !== undefined ? html`<${Result} result=${one.result} />` : one.result_text ? html`<${Text} text=${one.result_text} label="Result" />`
      : html`<p class="dim">${one.message ? plain(one.message) : NOT_KEPT[one.keeping] ?? 'It has none.'}</p>`}</div><//>`;
}

function Again({ one }) {
  const { possible, text } = one.run ?? {};
  const run = async () => {
    const made = await ask('POST', `v1/history/${segment(one.id)}/run`, {}, { headers: { prefer: 'wait=0' } });
    if (isShown('stream', one.id) && made.stream) go('stream', made.stream);
    else toast(`${plain(one.name)} was called: see Calls.`);
  };
  return html`<${Panel} title="Call it again"><div class="body">
    ${possible && mayChange() ? html`<p>It calls <code>${plain(one.name)}</code> with the arguments above once more.</p><div class="head"><${Confirm} className="go" onConfirm=${run} sure="Really call it?">Call it again<//></div><p></p><${Command}>${`mcp-hub history run ${one.id}`}<//>`
      : html`<p class="dim">${possible ? 'This page is read-only (hub.http.dashboard: read).' : plain(text ?? 'It cannot be called again.')}</p>`}</div><//>`;
}
