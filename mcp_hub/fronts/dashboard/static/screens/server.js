// One server: its state and why, what it wrote, its tools.
import { html, useEffect, useState } from '../lib/ui.js';
import { ask, get, segment } from '../lib/api.js';
import { go, link } from '../lib/router.js';
import { duration, exact, plain, plural, quoted } from '../lib/format.js';
import { operates, toast, useStore } from '../lib/store.js';
import { advice, Command, Confirm, Docs, Empty, isLogin, Panel, ServerBadge, tags } from '../lib/parts.js';
import { ServerLogin } from './login_server.js';
import { EventTypes } from './event.js';
import { change } from './servers.js';
import { Raw } from './raw.js';
import { Sandbox } from './sandbox.js';

export function Server({ name }) {
  const store = useStore();
  const server = store.servers.find((one) => one.server === name);
  const [tools, setTools] = useState([]);
  const [details, setDetails] = useState(null);
  const [entry, setEntry] = useState(null);
  const [problems, setProblems] = useState({});
  const load = (key, path, set, nothing) => get(path).then((found) => { set(found); setProblems((old) => ({ ...old, [key]: '' })); },
    (error) => { set(nothing); setProblems((old) => ({ ...old, [key]: error.status === 404 ? '' : error.message })); });
  useEffect(() => { load('tools', `v1/tokens?server=${segment(name)}`, (found) => setTools(found.tools), { tools: [] }); }, [name, store.tools]);
  useEffect(() => {
    if (!store.hub.operator) return;
    load('log', `server?server=${segment(name)}`, setDetails, null);
    load('entry', `entry?server=${segment(name)}`, setEntry, null);
  }, [name, server]);
  if (!server) return html`<div class="screen"><h1>${plain(name)}</h1><${Empty}>There is no server of this name any more.<//></div>`;
  const restart = () => ask('POST', `v1/servers/${segment(name)}/restart`, {});
  const mayEdit = operates() && store.edits?.possible && entry?.digest;
  const waiting = store.edits?.proposals?.find((one) => one.server === name);
  const turn = async (action) => {
    const outcome = await change(name, action);
    if (outcome.effect === 'proposal') toast('It is proposed: approve it on a terminal.');
    if (action === 'remove') go('servers');
  };
  const lines = details?.lines ?? (server.stderr ?? []).map((text) => ({ text }));
  return html`<div class="screen">
    <div class="head"><h1>${plain(name)}</h1><${ServerBadge} server=${server} /><${Docs} page="supervision.md" />
      <div class="end">${operates() && server.state !== 'disabled' ? html`<${Confirm} onConfirm=${restart} sure="Restart it now" said="The server restarts.">Restart<//>` : null}
        ${mayEdit ? html`<a class="button" href=${link('edit', name)}>Edit</a>
          <${Confirm} onConfirm=${() => turn(server.state === 'disabled' ? 'enable' : 'disable')} sure=${server.state === 'disabled' ? 'Enable it now' : 'Disable it now'}>${server.state === 'disabled' ? 'Enable' : 'Disable'}<//>
          <${Confirm} className="bad" onConfirm=${() => turn('remove')} sure="Remove it now" said=${`${plain(name)} is removed.`}>Remove<//>` : null}
        <a class="button" href=${link('calls', '', { server: name })}>Its calls</a></div></div>
    ${Object.values(problems).some(Boolean) ? html`<p role="alert">Not all is known now: ${plain([...new Set(Object.values(problems).filter(Boolean))].join(' '))}</p>` : null}
    ${waiting ? html`<section class="panel"><div class="body"><strong>An edit waits for you on a terminal:</strong> ${(waiting.reasons ?? []).map(plain).join('; ')}<p></p><${Command}>${waiting.command}<//></div></section>` : null}
    ${server.reason ? html`<section class="panel"><div class="body"><strong>Why:</strong> ${plain(server.reason)} ${server.code ? html` <${Docs} page="errors.md"><span class="tag">${server.code}</span><//>` : null}
      ${details?.fix ? html`<p><strong>Fix:</strong> ${advice(details.fix)}</p>` : null}
      ${isLogin(server) ? null : html`<p class="dim small">More, with the steps that were tried:</p><${Command}>${`mcp-hub doctor ${quoted(name)}`}<//>`}</div></section>` : null}
    ${details?.login || isLogin(server) ? html`<${ServerLogin} key=${name} name=${name} needed=${isLogin(server)} />` : null}
    ${entry ? html`<${Panel} title="What it is"><div class="body"><dl class="facts">${described(entry.facts).map(([term, value]) => html`<dt>${term}</dt><dd>${value}</dd>`)}</dl></div><//>` : null}
    <div class="two">
      <${Panel} title="State"><div class="body"><dl class="facts">${facts(server).map(([what, value]) => html`<dt>${what}</dt><dd>${value}</dd>`)}</dl>
        ${server.state === 'disabled' || !store.hub.operator ? null : html`<p></p><${Command}>${`mcp-hub restart ${quoted(name)}`}<//>`}</div><//>
      <${Findings} server=${server} />
    </div>
    ${server.sandbox ? html`<${Sandbox} name=${name} sandbox=${server.sandbox} />` : null}
    <${Panel} title="Log: stderr, and what the hub says">${lines.length ? html`<div class="body"><pre class="out" tabindex="0" aria-label="Log">${lines.map((line) => html`<div class=${line.level ? `hub ${line.level}` : ''}>${line.at ? html`<span class="dim">${plain(exact(line.at))} </span>` : null}${line.level ? 'hub: ' : ''}${plain(line.text)}</div>`)}</pre>
      <p></p><${Command}>${`mcp-hub logs ${quoted(name)}`}<//></div>` : html`<${Empty}>${problems.log ? 'Not loaded.' : store.hub.operator ? 'The server has written nothing to stderr.' : 'Operators of the hub see its log.'}<//>`}<//>
    ${store.hub.operator && ['command', 'url'].includes(entry?.facts.kind) ? html`<${Raw} key=${name} name=${name} />` : null}
    <${Panel} title=${plural(tools.length, 'tool')}>${tools.length ? html`<ul class="list cols">${tools.slice(0, 300).map((tool) => html`<li key=${tool.name}><a class="what" href=${link('tool', tool.name)}>${plain(tool.name)}</a><span class="dim num">${plural(tool.tokens.full, 'token')}</span></li>`)}</ul>
      ${tools.length > 300 ? html`<p class="empty"><a href=${link('tools', '', { server: name })}>all of them</a></p>` : null}` : html`<${Empty}>${problems.tools ? 'Not loaded.' : isRead(server) ? 'The server offers no tools to you.' : unread('tools', server)}<//>`}<//>
    <${EventTypes} server=${name} />
  </div>`;
}

const KINDS = { command: 'Command', url: 'URL', local: 'Python functions', skills: 'Folder of skills', scripts: 'Folder of scripts' };
const isRead = (server) => server.state === 'ready' || Boolean(server.rests);
const unread = (lists, server) => (server.state === 'disabled' ? 'The server is disabled.' : `Its ${lists} are known once it is ready.`);
const LIMITS = { timeout: 'silence of a call', max_duration: 'a whole call', request_timeout: 'a list', start_timeout: 'a start', idle_stop: 'idle until it sleeps' };

// The entry in the configuration: names of variables and headers, never their values.
function described({ kind, text, variables = [], headers = [], folder, scope, start, limits = {}, client }) {
  return [
    [KINDS[kind], html`<code>${plain(text)}</code>`],
    ...(variables.length ? [['Variables', tags(variables)]] : []),
    ...(headers.length ? [['Headers', tags(headers)]] : []),
    ...(folder ? [['Folder', html`<code>${plain(folder)}</code>`]] : []),
    ...(scope ? [['Scope', html`${scope}${scope === 'shared' ? ': one process for all' : `: a process for each ${scope}`}`]] : []),
    ...(start ? [['Starts', start === 'lazy' ? 'when it is needed' : 'with the hub']] : []),
    ['Time limits', Object.entries(limits).map(([key, seconds]) => `${LIMITS[key] ?? key} ${duration(seconds)}`).join(', ') || 'none'],
    ['Came from', client ? `the client ${plain(client)}` : 'the configuration file'],
  ];
}

function facts(server) {
  const entries = Object.entries(server.offered ?? {}).map(([kind, n]) => plural(n, kind)).join(', ');
  return [
    ['Software', plain(server.software ?? '–')],
    ['Protocol', [server.version, server.era].filter(Boolean).map(plain).join(', ') || '–'],
    ['Process', server.pid ?? '–'],
    ['Restarts', server.restarts],
    ['Offers', entries || '–'],
    ...(server.given_up ? [['Webhooks', html`<span class="badge warn">${plural(server.given_up, 'message')} given up</span>`]] : []),
    ...(server.second ? [['Second connection', `${server.second.era ?? ''} ${server.second.state}`]] : []),
  ];
}

function Findings({ server }) {
  const { warnings = [], flags = [], unapproved = [] } = server;
  const all = [
    ...unapproved.map((one) => html`<li><span class="tag">${one.kind}</span><a class="what" href=${link('tools', '', { show: 'changed' })}>${plain(one.tool)} ${one.held ? 'is held back until it is approved' : 'is not what was approved'}</a></li>`),
    ...flags.map((one) => html`<li><span class="tag bad">${one.kind}</span><span class="what"><bdi>${plain(one.tool)}</bdi>, <bdi>${plain(one.where)}</bdi>: ${plain(one.why)} <code>${plain(one.text)}</code></span></li>`),
    ...warnings.map((text) => html`<li><span class="tag">warning</span><span class="what">${plain(text)}</span></li>`),
  ];
  return html`<${Panel} title="Findings">${all.length ? html`<ul class="list">${all}</ul>` : html`<${Empty}>${isRead(server) ? 'Nothing was found in its lists.' : unread('lists', server)}<//>`}<//>`;
}
