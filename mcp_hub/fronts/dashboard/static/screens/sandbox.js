// The sandbox of a server: its rule as the latest start has it, and what it refused, with the line that allows it, too.
import { html } from '../lib/ui.js';
import { ago, count, exact, member, plain, plural, quoted } from '../lib/format.js';
import { hubNow, useStore } from '../lib/store.js';
import { Badge, Command, Copy, Empty, Panel } from '../lib/parts.js';

const STATES = { on: ['ok', 'on'], absent: ['bad', 'absent'], pending: ['off', 'not started yet'] };
const NETS = { any: 'every host', none: 'no host' };
const MOST = 100; // paths and hosts; a hub lists no more paths
const COLUMN = { key: 'sandbox', title: 'Sandbox', width: '72px', cell: (one) => (one.sandbox ? (member(STATES, one.sandbox.state) ?? ['', one.sandbox.state])[1] : '') };

// The columns of a table of servers, behind the state with that of their sandbox if one of them has one.
export const withSandbox = (columns, servers) => (servers.some((one) => one.sandbox) ? columns.flatMap((one) => (one.key === 'state' ? [one, COLUMN] : [one])) : columns);

export function Sandbox({ name, sandbox }) {
  const store = useStore();
  const [kind, text] = member(STATES, sandbox.state) ?? ['off', sandbox.state];
  const latest = sandbox.latest ?? [], target = latest.map(tested).find(Boolean);
  return html`<${Panel} title="Sandbox" end=${html`<${Badge} kind=${kind}>${text}<//>`}><div class="body">
    ${sandbox.reason ? html`<p><strong>It runs without a sandbox:</strong> ${plain(sandbox.reason)}</p>` : null}
    ${sandbox.shrinks ? html`<p><strong>Not closed here:</strong> ${plain(sandbox.shrinks)}</p>` : null}
    <dl class="facts">${facts(sandbox, store.hub.operator).map(([what, value]) => html`<dt>${what}</dt><dd>${value}</dd>`)}</dl>
      <h3>${sandbox.refused ? `Refused: ${plural(sandbox.refused, 'attempt')}` : 'Nothing was refused'}</h3>
      ${sandbox.refused && !latest.length ? html`<${Empty}>Operators of the hub see the targets.<//>` : null}</div>
    ${latest.length ? html`<ul class="list">${latest.map((one) => html`<${Refused} key=${`${one.kind} ${one.target}`} one=${one} name=${name} lists=${sandbox.lists ?? {}} />`)}</ul>` : null}
    <div class="body"><p class="dim small">The rule in full, and a test of a path or host:</p><${Command}>${`mcp-hub sandbox ${quoted(name)}`}<//>
      ${target ? html`<p></p><${Command}>${`mcp-hub sandbox ${quoted(name)} test ${quoted(target)}`}<//>` : null}</div><//>`;
}

// A target that the command can test: not one that looks like an option, and none that was escaped or cut.
const tested = (one) => (one.entry && !one.target.startsWith('-') && one.kind !== 'socket' ? one.target : '');
const listed = (values) => values.slice(0, MOST).map((value) => html`<div class="mono">${plain(value)}</div>`);

function facts({ home, hosts = [], net, read = [], sockets = [], traffic, write = [] }, isOperator) {
  const named = isOperator ? 'nothing' : 'operators see them';
  return [
    ['Hosts', member(NETS, net) ?? (hosts.length ? listed(hosts) : named)],
    ...(traffic ? [['Connections', `${count(traffic.connections)}, ${count(traffic.open)} open; ${plural(traffic.sent, 'byte')} sent, ${count(traffic.received)} received`]] : []),
    ['Sockets', sockets.length ? listed(sockets) : isOperator ? 'none' : named],
    ...(home ? [['Private home', listed([home])]] : []),
    ['Writes', write.length ? listed(write) : named],
    ['Reads', read.length > 6 ? html`<details><summary>${plural(read.length, 'path')}</summary>${listed(read)}</details>` : read.length ? listed(read) : named],
  ];
}

// A list replaces what its key opens without one, and a pasted line the list: so the line repeats the entries.
function lineOf({ entry, key }, lists) {
  const entries = member(lists, key ?? '');
  return entry && entries ? `${key}: [${[...entries, entry].map((text) => JSON.stringify(text)).join(', ')}]` : '';
}

function Refused({ one, name, lists }) {
  const line = lineOf(one, lists);
  return html`<li><span class="tag">${one.kind}</span><span class="what"><code>${plain(one.target)}</code>: ${plain(one.reason)}</span>
    <span class="dim small num" title=${exact(one.at)}>${one.count > 1 ? `${count(one.count)} times, ` : ''}${ago(Math.max(hubNow() - Date.parse(one.at) / 1000, 0))}</span>
    ${line ? html`<div class="small" style=${{ flexBasis: '100%' }}><span class="dim">If it may, set under servers.${plain(name)}.sandbox:</span>
      <div class="cmd"><code>${plain(line)}</code><${Copy} text=${line} label=${`Copy the line ${plain(line)}`} /></div></div>` : null}</li>`;
}
