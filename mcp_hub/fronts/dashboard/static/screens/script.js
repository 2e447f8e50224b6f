// A run of a script: its calls as a tree with times, and its text with the lines where it waits.
import { html } from '../lib/ui.js';
import { link } from '../lib/router.js';
import { cut, duration, plain, plural } from '../lib/format.js';
import { Badge, Panel } from '../lib/parts.js';

const MOST_LINES = 2000;
const STREAM = /^st_[0-9A-Z]{26}$/;

// `now` in Unix seconds; a call without an end lasts until then.
export function Script({ name, calls, text, now, over, started }) {
  const rows = [...calls.values()];
  if (!rows.length && !text) return null;
  const from = Math.min(started ?? now, ...rows.map((one) => one.at)), until = over ? Math.max(from, ...rows.map((one) => one.end ?? one.at)) : now;
  const waits = over ? [] : rows.filter((one) => one.end === null);
  const lines = new Set(waits.map((one) => one.line));
  return html`<div class="two"><${Panel} title=${plural(rows.length, 'call')} end=${waits.length ? html`<span class="tag">${plural(waits.length, 'call')} under way</span>` : null}>
      <div class="body"><ul class="plain calls" aria-label="Calls of the script"><li><b>${plain(name)}</b>
        <ul class="plain">${rows.map((one) => html`<${Inner} key=${one.call} ...${{ one, from, until, over }} />`)}</ul></li></ul></div><//>
    ${text ? html`<${Panel} title="Script"><div class="body"><${Lines} text=${text} lines=${lines} /></div><//>` : null}</div>`;
}

function Inner({ one, from, until, over }) {
  const end = one.end ?? until, whole = Math.max(until - from, 0.001), left = (100 * (one.at - from)) / whole;
  const title = html`<code>${plain(one.name)}</code>`;
  const state = one.end !== null ? (one.failed ? ['bad', 'failed'] : null) : over ? ['off', 'no result'] : ['run', 'running'];
  return html`<li><div class="head">${STREAM.test(one.call) ? html`<a href=${link('stream', one.call)}>${title}</a>` : title}
      ${one.line ? html`<span class="dim small">line ${one.line}</span>` : null}${state ? html`<${Badge} kind=${state[0]}>${state[1]}<//>` : null}
      <span class="end num dim small">${one.end === null && over ? '–' : duration(Math.max(end - one.at, 0))}</span></div>
    <div class="span" aria-hidden="true"><i class=${one.failed ? 'bad' : ''} style=${{ marginLeft: `${Math.min(left, 99)}%`, width: `${Math.min(Math.max((100 * (end - one.at)) / whole, 1), 100 - Math.min(left, 99))}%` }}></i></div>
    <div class="small dim given">${plain(cut(JSON.stringify(one.arguments ?? {}), 200))}</div></li>`;
}

function Lines({ text, lines }) {
  const all = text.trimEnd().split('\n'), shown = all.slice(0, MOST_LINES);
  return html`<pre class="out script" tabindex="0" aria-label="Script">${shown.map((line, at) => html`<span class=${lines.has(at + 1) ? 'line here' : 'line'} aria-current=${lines.has(at + 1) ? 'step' : undefined}><span class="no" aria-hidden="true">${at + 1}</span>${plain(line)}${'\n'}</span>`)}</pre>
    ${all.length > MOST_LINES ? html`<p class="small dim">${plural(all.length - MOST_LINES, 'more line')}</p>` : null}`;
}
