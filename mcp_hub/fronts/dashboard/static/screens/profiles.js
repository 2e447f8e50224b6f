// Who sees what: each profile with its servers and tools, and the people and clients that it is for.
import { html, useEffect, useState } from '../lib/ui.js';
import { get } from '../lib/api.js';
import { link, refine } from '../lib/router.js';
import { count, plain, plural } from '../lib/format.js';
import { useStore } from '../lib/store.js';
import { Command, Docs, Empty, Filter, Panel, tags } from '../lib/parts.js';

const MOST = 300;
const named = (names, none) => (names?.length ? tags(names) : html`<span class="dim">${none}</span>`);

export function Profiles({ query }) {
  const { tools: version } = useStore();
  const [found, set] = useState(null);
  const [problem, setProblem] = useState('');
  useEffect(() => { get('profiles').then(({ profiles }) => { set(profiles); setProblem(''); }, (error) => setProblem(error.message)); }, [version]);
  const words = (query.q ?? '').toLowerCase();
  const shown = (found ?? []).map((one) => ({ ...one, matching: one.tools.filter((name) => name.toLowerCase().includes(words)) })).filter((one) => !words || one.matching.length || (one.name ?? '').toLowerCase().includes(words));
  return html`<div class="screen"><div class="head"><h1>Profiles</h1><${Docs} page="profiles.md" /><span class="dim">who sees what</span></div>
    ${problem ? html`<p role="alert">${plain(problem)}</p>` : null}
    <div class="filters"><${Filter} label="Filter tools and profiles" value=${query.q} onInput=${(q) => refine({ q })} /></div>
    ${shown.length ? null : html`<${Empty}>${found ? 'No profile and no tool in one fits this filter.' : problem ? 'Not loaded.' : 'Loading…'}<//>`}
    ${shown.map((one) => html`<${Panel} key=${one.name ?? ''} title=${one.name == null ? 'Without a profile' : plain(one.name)} end=${html`<span class="dim num">${plural(one.tools.length, 'tool')}, ${plural(one.tokens, 'token')}</span>`}><div class="body">
      <dl class="facts"><dt>Servers</dt><dd>${named(one.servers, 'none')}</dd><dt>Tokens of</dt><dd>${named(one.principals, one.name == null ? 'the operator of this machine' : 'nobody in hub.tokens')}</dd>
        <dt>Clients seen</dt><dd>${named(one.clients, 'none since the start')}</dd>
        ${one.prompts || one.resources ? html`<dt>Also</dt><dd>${plural(one.prompts ?? 0, 'prompt')}, ${plural(one.resources ?? 0, 'resource')}</dd>` : null}</dl>
      <details open=${Boolean(words)}><summary>${plural(one.matching.length, 'tool')}${words ? ' by this filter' : ''}</summary><ul class="list cols">${one.matching.slice(0, MOST).map((name) => html`<li key=${name}><a class="what" href=${link('tool', name)}>${plain(name)}</a></li>`)}</ul>
        ${one.matching.length > MOST ? html`<p class="empty">and ${count(one.matching.length - MOST)} more: write into the filter</p>` : null}</details>
      <${Command}>${one.name == null ? 'mcp-hub tokens' : `mcp-hub tokens --profile ${/^[\w.-]+$/.test(one.name) ? one.name : `'${one.name.replaceAll("'", "'\\''")}'`}`}<//></div><//>`)}</div>`;
}
