// The tools that a model would find, and what a kind of client is listed.
import { html, useEffect, useState } from '../lib/ui.js';
import { get, segment } from '../lib/api.js';
import { link, refine } from '../lib/router.js';
import { plain, plural, quoted } from '../lib/format.js';
import { useStore } from '../lib/store.js';
import { Command, Empty, Filter, Panel, Docs } from '../lib/parts.js';

const PARTS = [['a', 'accent'], ['b', 'run'], ['c', 'warn'], ['d', 'off'], ['e', 'bad']];
const part = (at) => PARTS[at % PARTS.length];

export function Search({ query }) {
  const { tools: version } = useStore();
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState('');
  const q = query.q ?? '';
  useEffect(() => {
    if (!q.trim()) { setFound(null); return undefined; }
    const stop = new AbortController();
    const timer = setTimeout(() => get(`v1/search?limit=20&q=${segment(q)}`, { signal: stop.signal }).then(
      (answer) => { setFound(answer); setProblem(''); }, (error) => { if (error.name !== 'AbortError') setProblem(error.message); }), 150);
    return () => { clearTimeout(timer); stop.abort(); };
  }, [q, version]);
  const best = found?.hits[0]?.score || 1;
  const parts = [...new Set((found?.hits ?? []).flatMap((hit) => Object.keys(hit.parts).filter((name) => hit.parts[name] > 0)))];
  return html`<div class="screen"><div class="head"><h1>Search</h1><${Docs} page="search.md" /><span class="dim">what find_tools answers to a model</span></div>
    <div class="filters"><${Filter} label="What is the tool needed for?" value=${q} onInput=${(text) => refine({ q: text })} /></div>
    ${problem ? html`<p role="alert">${plain(problem)}</p>` : null}
    <div class="two">
      <${Panel} title=${found ? plural(found.hits.length, 'hit') : 'Hits'} end=${found?.weak ? html`<span class="badge warn">no good match</span>` : null}>
        ${found?.hits.length ? html`<ul class="list">${found.hits.map((hit) => html`<li key=${hit.name}>
          <div class="what"><a href=${link('tool', hit.name)}>${plain(hit.name)}</a> <span class="dim small">${plain(hit.server)}</span>
            <div class="small dim">${plain(hit.description)}</div>
            <div class="stack" role="img" aria-label=${`score ${hit.score}`}>${parts.map((name, at) => html`<i class=${part(at)[0]} style=${{ width: `${Math.max(0, 100 * (hit.parts[name] ?? 0)) / best}%` }}></i>`)}</div>
            ${hit.also?.length ? html`<div class="small dim">much like it: ${hit.also.map(plain).join(', ')}</div>` : null}</div>
          <span class="num dim" title=${Object.entries(hit.parts).map(([name, n]) => `${name} ${n}`).join(', ')}>${hit.score.toFixed(2)}</span></li>`)}</ul>
          <p class="body small dim">${parts.map((name, at) => html`<span><i class="key" style=${{ background: `var(--${part(at)[1]})` }}></i>${name} </span>`)}</p>`
          : html`<${Empty}>${found ? 'No tool fits.' : 'Write what a tool is needed for, as a model would.'}<//>`}
        ${q ? html`<div class="body"><${Command}>${`mcp-hub search ${quoted(q)}`}<//></div>` : null}<//>
      <${Listed} kind=${query.client ?? 'unknown'} version=${version} /></div></div>`;
}

function Listed({ kind, version }) {
  const [found, set] = useState(null);
  const [problem, setProblem] = useState('');
  useEffect(() => { get(`v1/tokens?client=${segment(kind)}`).then((answer) => { set(answer); setProblem(''); }, (error) => setProblem(error.message)); }, [kind, version]);
  const [known, setKnown] = useState([]);
  const [unknown, setUnknown] = useState('');
  useEffect(() => { get('clients').then((answer) => setKnown(answer.kinds), (error) => setUnknown(error.message)); }, []);
  const kinds = known.includes(kind) ? known : [...known, kind];
  return html`<${Panel} title="What a client is listed" end=${html`<select aria-label="Kind of client" value=${kind} onChange=${(event) => refine({ client: event.target.value })}>${kinds.map((name) => html`<option value=${name}>${name}</option>`)}</select>`}>
    <div class="body">${problem || unknown ? html`<p role="alert">${plain(problem || unknown)}</p>` : null}${found && !problem ? html`
      <p>In mode <strong>${found.current.mode}</strong>: ${plural(found.current.listed, 'tool')}, ${plural(found.current.tokens, 'token')}${found.defers ? ', which the client keeps from its model until they are asked for' : ''}.
        The budget is ${plural(found.budget, 'token')}${found.max_tools ? `, and the client takes ${plural(found.max_tools, 'tool')}` : ''}.</p>
      <dl class="facts">${found.modes.map((mode) => html`<dt>${mode.expose}${mode.mode === mode.expose ? '' : ` → ${mode.mode}`}</dt><dd class="num">${plural(mode.listed, 'tool')}, ${plural(mode.tokens, 'token')}</dd>`)}</dl>
      <p class="dim small">${found.starting.length ? `Tools of ${found.starting.map(plain).join(', ')} are not known yet.` : ''}</p>
      <${Command}>${`mcp-hub tokens${kind === 'unknown' ? '' : ` --client ${quoted(kind)}`}`}<//>` : null}</div><//>`;
}
