// One call: its output while it grows, its question, its events.
import { html, useEffect, useState } from '../lib/ui.js';
import { ask, get, root, segment } from '../lib/api.js';
import { link } from '../lib/router.js';
import { clock, duration, isOver, plain, plural, quoted, reasonOf, saying } from '../lib/format.js';
import { hubNow, mayChange, useStore } from '../lib/store.js';
import { useEvents } from '../lib/events.js';
import { Result, Text } from '../lib/content.js';
import { Bar, CallBadge, Command, Confirm, Copy, Docs, Empty, Panel } from '../lib/parts.js';
import { Asked, Question } from './question.js';
import { Kept, Past } from './call.js';
import { Log } from './log.js';
import { Script } from './script.js';

export function Stream({ name: id, query }) {
  const store = useStore();
  const call = store.live.find((one) => one.id === id) ?? store.calls.find((one) => one.id === id);
  const isQuick = call && !call.stream && (isOver(call.status) || call.waits_for);
  if (isQuick) return isOver(call.status) ? html`<${Past} key=${id} ...${{ id, call }} />` : html`<${Quick} call=${call} />`;
  return html`<${Followed} key=${query.after ?? ''} ...${{ id, call, after: Number(query.after ?? 0) }} />`;
}

function Quick({ call }) {
  const [, tick] = useState(0), over = isOver(call.status);
  useEffect(() => {
    const timer = over ? 0 : setInterval(() => tick((n) => n + 1), 500);
    return () => clearInterval(timer);
  }, [over]);
  return html`<div class="screen"><div class="head"><h1>${plain(call.name)}</h1><${CallBadge} status=${call.status} /></div>
    <section class="panel"><div class="body"><dl class="facts"><dt>Server</dt><dd>${plain(call.server || 'the hub itself')}</dd><dt>Client</dt><dd>${plain(call.client || '–')}</dd><dt>Principal</dt><dd>${plain(call.principal)}</dd>
      <dt>Started</dt><dd>${clock(call.at)}</dd>${over ? html`<dt>Took</dt><dd>${duration(call.took)}</dd>` : null}${call.message || call.waits_for ? html`<dt>Message</dt><dd>${plain(saying(call, hubNow()))}</dd>` : null}</dl>
      <p class="dim">${over ? 'This call was quick and quiet: its arguments and its result are not kept.' : 'This call was not sent to its server yet.'}</p></div></section></div>`;
}

function Followed({ id, call, after }) {
  const store = useStore();
  const [info, setInfo] = useState(null);
  const [problem, setProblem] = useState('');
  const found = useEvents(id, after);
  const [, tick] = useState(0);
  const over = found.ending !== null || (info && isOver(info.status));
  useEffect(() => {
    get(`v1/streams/${segment(id)}`).then((one) => { setInfo(one); setProblem(''); }, (error) => setProblem(error.message));
  }, [id, found.ending !== null, found.asked, found.calls.size > 0]); // a script is known with its first calls
  useEffect(() => {
    if (over) return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 500);
    return () => clearInterval(timer);
  }, [over]);
  if (found.problem && !info) return html`<${Past} id=${id} />`;
  const status = found.ending?.status ?? (info && isOver(info.status) ? info.status : found.questions.size ? 'input_required' : (call?.status ?? info?.status ?? 'working'));
  const name = info?.name ?? call?.name ?? id, started = info ? Date.parse(info.created) / 1000 : call?.at;
  const took = over ? (call?.took || (info ? (Date.parse(info.updated) - Date.parse(info.created)) / 1000 : 0)) : Math.max(hubNow() - (started ?? hubNow()), 0);
  const url = new URL(`v1/streams/${id}/events`, root).href;
  const cancel = () => ask('DELETE', `v1/streams/${segment(id)}`);
  return html`<div class="screen"><div class="head"><h1>${plain(name)}</h1><${CallBadge} status=${status} /><span class="num dim">${duration(took)}</span><${Docs} page="streams.md" />
      <div class="end">${!over && mayChange() ? html`<${Confirm} className="bad" onConfirm=${cancel} sure="Cancel it now" said="The call is being cancelled.">Cancel<//>` : null}
        <${Copy} text=${`mcp-hub resume ${id}`}>Copy command<//><${Copy} text=${`curl -N -H "Authorization: Bearer $MCP_HUB_TOKEN" ${quoted(url)}`}>Copy curl<//></div></div>
    <div class="small dim">${info || call ? html`at <a href=${link('server', info?.server ?? call.server)}>${plain((info?.server ?? call.server) || 'the hub')}</a>${call?.client ? html` for ${plain(call.client)}` : null}${started ? `, started ${clock(started)}` : ''}, ` : null}<code>${id}</code>${info?.durable === false ? ', in memory only' : ''}</div>
    ${problem ? html`<p role="alert">The state of the call is not known now: ${plain(problem)}</p>` : null}
    ${over || found.questions.size ? null : html`<div class="head" aria-live="off">${call?.waits_for ? null : html`<${Bar} progress=${found.progress?.progress} total=${found.progress?.total} label="Progress" />`}<span class="dim small num">${call?.waits_for ? plain(saying(call, hubNow())) : found.progress ? `${found.progress.total ? `${Math.round((100 * found.progress.progress) / found.progress.total)} %${found.progress.message ? ', ' : ''}` : ''}${plain(found.progress.message ?? '')}` : 'no progress yet'}</span></div>`}
    ${store.asks.filter((ask) => ask.id === id).map((ask) => html`<${Asked} key=${ask.id} ask=${ask} />`)}
    ${[...found.questions.values()].map((one) => html`<${Question} key=${one.key} id=${id} question=${one} />`)}
    ${found.gone ? html`<p class="note">${plural(found.gone, 'earlier event')} no longer kept.</p>` : null}
    <${Script} ...${{ name, calls: found.calls, text: info?.script ?? '', now: hubNow(), over, started }} />
    ${found.output || (!over && !found.questions.size) ? html`<${Panel} title=${over ? 'Partial output' : 'Output so far'}>${found.output ? html`<div class="body"><${Text} text=${found.output} label="Output so far" /></div>` : html`<${Empty}>Nothing yet.<//>`}<//>` : null}
    ${found.ending ? html`<${Ending} ending=${found.ending} />` : null}
    ${over ? html`<${Kept} id=${id} />` : null}
    <${Log} events=${found.events} id=${id} after=${after} />
    <div class="two"><${Command}>${`mcp-hub resume ${id}`}<//>${over ? null : html`<${Command}>${`mcp-hub cancel ${id}`}<//>`}</div></div>`;
}

function Ending({ ending }) {
  if (ending.error) return html`<${Panel} title="Error"><div class="body"><p>${plain(reasonOf(ending.error))} ${ending.error.code ? html`<span class="tag">${String(ending.error.code)}</span>` : null}</p><${Text} text=${JSON.stringify(ending.error, null, 2)} label="Error" /></div><//>`;
  if (ending.status === 'cancelled') return html`<${Panel} title="Cancelled"><div class="body">${plain(ending.reason || 'The call was cancelled.')}</div><//>`;
  return html`<${Panel} title="Result"><div class="body"><${Result} result=${ending.result} /></div><//>`;
}
