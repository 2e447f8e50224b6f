// The effective configuration, read only, with the origin of each value.
import { html, useEffect, useState } from '../lib/ui.js';
import { ask, get } from '../lib/api.js';
import { refine } from '../lib/router.js';
import { plain, plural, quoted } from '../lib/format.js';
import { operates, refused, useStore } from '../lib/store.js';
import { Command, Confirm, Filter, Select, Docs } from '../lib/parts.js';
import { Table } from '../lib/table.js';

const ORIGINS = [['file', 'file'], ['overrides', 'overrides'], ['default', 'default']];
const COLUMNS = [
  { key: 'path', title: 'Key', width: 'minmax(200px, 1fr)', card: 'title', cell: (one) => html`<code>${plain(one.path)}</code>` },
  { key: 'value', title: 'Value', width: 'minmax(0, 1.4fr)', card: 'whole', cell: (one) => html`<code title=${plain(one.value)}>${plain(one.value)}</code>` },
  { key: 'origin', title: 'From', width: '90px', cell: (one) => html`<span class="tag ${one.origin === 'overrides' ? 'ok' : ''}">${one.origin}</span>` },
];

export function Settings({ query }) {
  const store = useStore();
  const [found, set] = useState(null);
  const [problem, setProblem] = useState('');
  const load = () => get('settings').then((one) => { set(one); setProblem(''); }, (error) => setProblem(error.message));
  useEffect(() => { load(); }, [store.tools]);
  const words = (query.q ?? '').toLowerCase();
  const rows = (found?.settings ?? []).filter((one) => (!query.origin || one.origin === query.origin) && (!words || `${one.path} ${one.value}`.toLowerCase().includes(words)));
  const reload = async () => { await ask('POST', 'v1/reload', {}); await load(); };
  return html`<div class="screen fixed"><div class="head"><h1>Settings</h1><${Docs} page="configuration.md" /><span class="dim">hub ${store.hub.version}</span>
      <div class="end">${operates() ? html`<${Confirm} onConfirm=${reload} sure="Reload it now" said="The configuration was read again.">Reload the configuration<//>` : null}</div></div>
    ${found ? html`<div class="small dim"><code>${plain(found.file)}</code>${found.overrides ? html` with <code>${plain(found.overrides)}</code>` : null}. Read only: change the file; the hub notices.</div>` : null}
    ${refused().length ? html`<div class="note bad" role="alert">The file has a mistake. The hub keeps its settings from before.<ul>${refused().map((text) => html`<li key=${text}>${plain(text)}</li>`)}</ul></div>` : null}
    ${problem ? html`<p role="alert">${plain(problem)}</p>` : null}
    <div class="filters"><${Filter} label="Filter settings" value=${query.q} onInput=${(q) => refine({ q })} />
      <${Select} label="From" value=${query.origin} options=${ORIGINS} onChange=${(origin) => refine({ origin })} /><span class="dim num">${plural(rows.length, 'key')}</span></div>
    <section class="panel grow"><${Table} label="Settings" className="grow" rows=${rows} rowKey=${(one) => one.path} columns=${COLUMNS} empty=${found ? 'No key fits.' : problem ? 'Not loaded.' : 'Loading…'} /></section>
    <div class="two"><${Command}>${`mcp-hub check --config ${quoted(found?.file ?? 'servers.yaml')}`}<//><${Command}>${`mcp-hub reload --config ${quoted(found?.file ?? 'servers.yaml')}`}<//></div></div>`;
}
