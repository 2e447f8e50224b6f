// The events of a stream: each opens to its JSON.
import { html, useState } from '../lib/ui.js';
import { refine } from '../lib/router.js';
import { cut, exact, plain, plural, reasonOf } from '../lib/format.js';
import { Text } from '../lib/content.js';
import { Panel } from '../lib/parts.js';
import { Table } from '../lib/table.js';

function summary({ type, data = {} }) {
  if (type === 'progress' && data._meta?.['dev.mcp-hub/progress']?.by === 'hub') return data.message ?? 'still running';
  if (type === 'progress') return joined(`${data.progress}${data.total == null ? '' : ` of ${data.total}`}`, data.message);
  if (type === 'delta') return (data.content ?? []).map((block) => (block.type === 'text' ? cut(block.text, 300) : block.type)).join('');
  if (type === 'log') return `${data.level}: ${typeof data.data === 'string' ? cut(data.data, 300) : JSON.stringify(data.data ?? '').slice(0, 300)}`;
  if (type === 'input-required') return joined(data.method, cut(String(data.params?.message ?? ''), 300));
  if (type === 'input-received') return data.action ?? '';
  if (type === 'end') return data.outcome;
  if (type === 'error') return joined(data.code, cut(reasonOf(data), 300));
  if (type === 'start') return data.name;
  return cut(JSON.stringify(data), 300);
}

const joined = (head, text) => (text ? `${head}: ${text}` : String(head));

export function Log({ events, after }) {
  const [open, setOpen] = useState(null);
  const shown = events.find((event) => event.seq === open);
  const columns = [
    { key: 'seq', title: 'No.', width: '52px', right: true, cell: (event) => event.seq },
    { key: 'ts', title: 'Time', width: '108px', cell: (event) => html`<span class="dim num">${exact(event.ts)}</span>` },
    { key: 'type', title: 'Event', width: '116px', card: 'title', cell: (event) => html`<button type="button" class="plain" aria-expanded=${open === event.seq} onClick=${() => setOpen(open === event.seq ? null : event.seq)}>${plain(event.type)}</button>` },
    { key: 'what', title: 'What', width: 'minmax(0, 1fr)', card: 'whole', cell: (event) => html`<span class="dim">${plain(summary(event))}</span>` },
    { key: 'from', title: '', width: '76px', right: true, cell: (event) => html`<button type="button" class="plain" onClick=${() => refine({ after: String(event.seq - 1) })} aria-label=${`from here: event ${event.seq} on`}>from here</button>` },
  ];
  return html`<${Panel} title=${plural(events.length, 'event')} className="events" end=${after ? html`<button type="button" onClick=${() => refine({ after: '' })}>from the first one</button>` : null}>
    <${Table} label="Events" className="short" rows=${events} rowKey=${(event) => event.seq} columns=${columns} empty="No event yet." />
    ${shown ? html`<div class="body raw"><h3>Event ${shown.seq}</h3><${Text} text=${JSON.stringify(shown, null, 2)} label=${`Event ${shown.seq} as JSON`} /></div>` : null}<//>`;
}
