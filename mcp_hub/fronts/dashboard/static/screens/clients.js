// Who is connected, what their lists cost, and how to connect another client.
import { html, useEffect, useState } from '../lib/ui.js';
import { get, root } from '../lib/api.js';
import { link } from '../lib/router.js';
import { ago, count, plain } from '../lib/format.js';
import { hubNow, loadInstalls, useStore } from '../lib/store.js';
import { Badge, Command, Copy, Empty, Panel, Docs } from '../lib/parts.js';
import { Table } from '../lib/table.js';

const INSTALLED = { installed: ['ok', 'installed'], lost: ['bad', 'entry lost'], missing: ['off', 'not installed'], unreadable: ['bad', 'file unreadable'] };
const INSTALLS = [
  { key: 'title', title: 'Client', width: 'minmax(120px, .7fr)', card: 'title', cell: (one) => plain(one.title) },
  { key: 'state', title: 'Hub', width: '136px', cell: (one) => { const [kind, text] = INSTALLED[one.state]; return html`<${Badge} kind=${kind}>${text}<//>`; } },
  { key: 'path', title: 'File', width: 'minmax(0, 1.6fr)', card: 'whole', cell: (one) => html`<code class="dim" title=${plain(one.path)}>${plain(one.path)}</code>` },
  { key: 'command', title: 'Command', width: 'minmax(220px, 1fr)', card: 'whole', cell: (one) => (one.command ? html`<code>${one.command}</code>` : html`<span class="dim">by hand: the entry below</span>`) },
  { key: 'copy', title: '', width: '66px', right: true, cell: (one) => (one.command ? html`<${Copy} text=${one.command} label=${`Copy the command ${one.command}`} />` : null) },
];

function Installs({ all }) {
  if (!all.length) return null;
  const here = all.filter((one) => one.state !== 'absent'), absent = all.filter((one) => one.state === 'absent');
  return html`<${Panel} title="On the machine of the hub" end=${html`<${Copy} text="mcp-hub install --all --http">Copy install command<//>`}>
    ${here.length ? html`<${Table} label="Clients on the machine of the hub" className="short" rows=${here} rowKey=${(one) => one.client} columns=${INSTALLS} />` : html`<${Empty}>No client that the hub knows was found.<//>`}
    ${absent.length ? html`<p class="body small dim">Not found: ${absent.map((one) => one.title).join(', ')}.</p>` : null}<//>`;
}

const STATE = { true: ['ok', 'connected'], false: ['off', 'gone'], undefined: ['run', 'by request'] };
const COLUMNS = [
  { key: 'name', title: 'Client', width: 'minmax(130px, 1.4fr)', card: 'title', cell: (one) => html`<a href=${link('calls', '', { client: one.name })}>${plain(one.name || 'without a name')}</a> <span class="dim">${plain(one.version)}</span>` },
  { key: 'state', title: 'State', width: '110px', cell: (one) => { const [kind, text] = STATE[one.connected]; return html`<${Badge} kind=${kind}>${text}<//>`; } },
  { key: 'era', title: 'Era', width: '92px', cell: (one) => one.era },
  { key: 'principal', title: 'Principal', width: 'minmax(70px, .8fr)', cell: (one) => plain(one.principal + (one.profile ? ` · ${one.profile}` : '')) },
  { key: 'mode', title: 'Listed as', width: '76px', cell: (one) => one.mode },
  { key: 'tools', title: 'Tools', width: '56px', right: true, cell: (one) => count(one.tools) },
  { key: 'tokens', title: 'Tokens', width: '70px', right: true, cell: (one) => count(one.tokens) },
  { key: 'calls', title: 'Calls', width: '60px', right: true, cell: (one) => count(one.calls) },
  { key: 'last', title: 'Last seen', width: '100px', right: true, cell: (one) => ago(Math.max(hubNow() - one.last, 0)) },
];

function links(name, url) {
  const config = encodeURIComponent(btoa(JSON.stringify({ url }))), named = encodeURIComponent(name);
  return [
    ['VS Code', `vscode:mcp/install?${encodeURIComponent(JSON.stringify({ name, type: 'http', url }))}`],
    ['Cursor', `cursor://anysphere.cursor-deeplink/mcp/install?name=${named}&config=${config}`],
    ['LM Studio', `lmstudio://add_mcp?name=${named}&config=${config}`],
  ];
}

export function Clients() {
  const store = useStore();
  const [clients, set] = useState(null);
  const [problems, setProblems] = useState({ seen: '', installs: '' });
  useEffect(() => {
    const note = (key, problem) => setProblems((old) => (old[key] === problem ? old : { ...old, [key]: problem }));
    const look = () => get('clients').then((found) => { set(found.clients); note('seen', ''); }, (error) => note('seen', error.message));
    const lookAround = () => loadInstalls().then((problem) => note('installs', problem));
    look();
    lookAround();
    const timers = [setInterval(look, 2000), setInterval(lookAround, 10000)];
    return () => timers.forEach(clearInterval);
  }, []);
  const url = new URL('mcp', root).href;
  const entry = JSON.stringify({ mcpServers: { [store.hub.name]: { type: 'http', url } } }, null, 2);
  return html`<div class="screen"><div class="head"><h1>Clients</h1><${Docs} page="clients.md" /><span class="dim">since the hub started</span></div>
    ${problems.seen ? html`<p role="alert">Who has come is not known now: ${plain(problems.seen)}</p>` : null}
    ${problems.installs ? html`<p role="alert">The clients of this machine are not known now: ${plain(problems.installs)}</p>` : null}
    <${Panel} title="Seen">${clients?.length ? html`<${Table} label="Clients" className="short" rows=${clients} rowKey=${(one) => `${one.name} ${one.first} ${one.principal}`} columns=${COLUMNS} />`
      : html`<${Empty}>${clients ? 'No client has come yet.' : problems.seen ? 'Not loaded.' : 'Loading…'}<//>`}<//>
    <${Installs} all=${store.installs} />
    <${Panel} title="Connect another client"><div class="body">
      <div class="two"><div><h3>Any client: the URL</h3><${Command}>${url}<//>
        <h3>Claude Code</h3><${Command}>${`claude mcp add --transport http ${store.hub.name} ${url}`}<//>
        <h3>By a click</h3><p class="head">${links(store.hub.name, url).map(([title, href]) => html`<a class="button" href=${href}>Install in ${title}</a>`)}</p></div>
      <div><h3>A configuration file</h3><pre class="out" tabindex="0" aria-label="Entry for a configuration file">${entry}</pre><p><${Copy} text=${entry} label="Copy the entry" /></p></div></div>
      <p class="dim small">If the hub has tokens, the client also needs a header: Authorization: Bearer TOKEN.</p></div><//></div>`;
}
