// Event types of servers, and what happens of one: a list that grows while it is looked at.
import { html, useEffect, useRef, useState } from '../lib/ui.js';
import { events as stream, get, pause, segment } from '../lib/api.js';
import { link } from '../lib/router.js';
import { cut, exact, plain, plural, quoted } from '../lib/format.js';
import { useStore } from '../lib/store.js';
import { SchemaForm } from '../lib/form.js';
import { Text } from '../lib/content.js';
import { Command, Docs, Empty, Panel } from '../lib/parts.js';
import { Table } from '../lib/table.js';

const MOST = 500; // occurrences that are kept here, the newest

// The types of all servers or of one, loaded again when the lists of the servers change: {types, problem}.
function useTypes(server = '') {
  const { tools: version } = useStore();
  const [found, set] = useState({ types: null, problem: '' });
  useEffect(() => {
    let isHere = true;
    get(`v1/events${server ? `?server=${segment(server)}` : ''}`).then(({ events }) => isHere && set({ types: events, problem: '' }), (error) => isHere && set((old) => ({ ...old, problem: error.message })));
    return () => { isHere = false; };
  }, [server, version]);
  return found;
}

export function EventTypes({ server, folded = false }) {
  const { types, problem } = useTypes(server);
  if (problem) return html`<p role="alert">Event types are not known now: ${plain(problem)}</p>`;
  if (!types?.length) return null;
  const list = html`<ul class="list">${types.slice(0, 300).map((type) => html`
    <li key=${type.name}><a class="what" href=${link('event', type.name)}>${plain(type.name)}</a><span class="dim">${plain(cut(String(type.description ?? ''), 200))}</span></li>`)}</ul>`;
  const title = plural(types.length, 'event type');
  return folded ? html`<details class="panel"><summary class="body">${title}</summary>${list}</details>` : html`<${Panel} title=${title}>${list}<//>`;
}

export function EventType({ name }) {
  const { types, problem } = useTypes();
  const [given, setGiven] = useState(null);
  const type = types?.find((one) => one.name === name);
  if (!type) return html`<div class="screen"><h1>${plain(name)}</h1><${Empty}>${problem ? plain(problem) : types ? 'There is no event type of this name, or it is hidden.' : 'Loading…'}<//></div>`;
  const command = `mcp-hub events ${quoted(name)} --follow${given && Object.keys(given).length ? ` --args ${quoted(JSON.stringify(given))}` : ''}`;
  return html`<div class="screen"><div class="head"><h1>${plain(name)}</h1><span class="tag">event type</span><${Docs} page="events.md" /></div>
    <div class="two"><${Panel} title="Follow it"><div class="body"><${SchemaForm} id="event" allowsEmpty=${true} schema=${type.inputSchema} action=${given ? 'Follow these' : 'Follow'} onSubmit=${setGiven} />
        <p></p><${Command}>${command}<//></div><//>
      <${Panel} title="Description"><div class="body"><${Text} text=${String(type.description ?? 'It has no description.')} label="Description" />
        <h3>Definition</h3><${Text} text=${JSON.stringify(type, null, 2)} label="Definition" /></div><//></div>
    ${given ? html`<${Happening} key=${JSON.stringify(given)} ...${{ name, given }} />` : null}</div>`;
}

// A lost connection continues behind the last cursor.
function useHappening(name, given) {
  const found = useRef({ rows: [], state: 'connecting', trouble: '' });
  const [, again] = useState(0);
  useEffect(() => {
    const stop = new AbortController(), own = found.current;
    let cursor = '', count = 0, timer = 0;
    const show = () => { timer ||= setTimeout(() => { timer = 0; again((n) => n + 1); }, 50); };
    const add = (row) => { own.rows = [{ ...row, at: ++count }, ...own.rows].slice(0, MOST); };
    const take = ({ id, type, data }) => {
      const one = JSON.parse(data);
      if (id) cursor = id;
      if (type === 'problem') throw Object.assign(new Error(one.detail), { isOver: one.status < 500 });
      if (type === 'active' && one.truncated) add({ gap: true });
      if (type === 'event') add({ event: one });
      own.state = 'live';
      own.trouble = type === 'error' ? one.message : type === 'event' ? '' : own.trouble;
      show();
    };
    (async () => {
      while (!stop.signal.aborted) {
        try {
          const headers = cursor ? { 'last-event-id': cursor } : {};
          for await (const event of stream(`v1/events?${new URLSearchParams({ name, arguments: JSON.stringify(given) })}`, stop.signal, headers)) take(event);
        } catch (error) {
          if (stop.signal.aborted) return;
          own.state = 'over';
          own.trouble = error.message;
          show();
          if (error.isOver || (error.status && error.status < 500)) return;
        }
        await pause(1000);
      }
    })();
    return () => { stop.abort(); clearTimeout(timer); };
  }, []);
  return found.current;
}

function Happening({ name, given }) {
  const { rows, state, trouble } = useHappening(name, given);
  const [open, setOpen] = useState(null);
  const shown = rows.find((row) => row.at === open && row.event);
  const columns = [
    { key: 'time', title: 'Time', width: '108px', cell: ({ event }) => (event ? html`<span class="dim num">${plain(exact(event.timestamp))}</span>` : '') },
    { key: 'id', title: 'Event', width: 'minmax(90px, .5fr)', card: 'title', cell: ({ at, gap, event }) => (gap ? html`<span class="tag bad">gap</span>` : html`<button type="button" class="plain" aria-expanded=${open === at} onClick=${() => setOpen(open === at ? null : at)}>${plain(cut(String(event.eventId), 60))}</button>`) },
    { key: 'data', title: 'Data', width: 'minmax(0, 2fr)', card: 'whole', cell: ({ gap, event }) => html`<span class="dim">${gap ? 'Events may be missing before this.' : plain(cut(JSON.stringify(event.data), 300))}</span>` },
  ];
  return html`<${Panel} title=${plural(rows.filter((row) => row.event).length, 'event')} className="events" end=${html`<span class="badge ${state === 'live' ? 'ok' : ''}" role="status">${state === 'live' ? 'live' : state === 'over' ? 'ended' : 'connecting'}</span>`}>
    ${trouble ? html`<p role="alert">${plain(trouble)}</p>` : null}
    <${Table} label="Events" className="short" rows=${rows} rowKey=${(row) => row.at} columns=${columns} empty="Nothing has happened yet." />
    ${shown ? html`<div class="body raw"><h3>Event</h3><${Text} text=${JSON.stringify(shown.event, null, 2)} label="Event as JSON" /></div>` : null}<//>`;
}
