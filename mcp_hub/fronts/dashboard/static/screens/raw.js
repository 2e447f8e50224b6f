// The messages of one server as they are on the wire, for five minutes: only while somebody has asked for them.
import { html, useEffect, useRef, useState } from '../lib/ui.js';
import { ask, get, segment } from '../lib/api.js';
import { clock, duration, plain, plural } from '../lib/format.js';
import { attempt, operates } from '../lib/store.js';
import { Text } from '../lib/content.js';
import { Empty, Panel } from '../lib/parts.js';

const MOST = 1000;

export function Raw({ name }) {
  const [messages, set] = useState([]);
  const [left, setLeft] = useState(0);
  const [problem, setProblem] = useState('');
  const last = useRef(0);
  const look = async () => {
    try {
      const found = await get(`raw?server=${segment(name)}${last.current ? `&after=${last.current}` : ''}`);
      setLeft(found.left);
      if (!found.messages.length) return;
      last.current = found.messages.at(-1).seq;
      set((old) => [...old, ...found.messages].slice(-MOST));
    } catch (error) {
      setProblem(error.message);
    }
  };
  useEffect(() => { look(); }, [name]);
  useEffect(() => {
    if (!left) return undefined;
    const timer = setInterval(look, 1000);
    return () => clearInterval(timer);
  }, [left > 0]);
  const turn = (action) => attempt(async () => {
    await ask('POST', 'raw', { server: name, action });
    if (action === 'start') { set([]); last.current = 0; }
    await look();
  });
  if (problem || (!operates() && !messages.length)) return null;
  return html`<${Panel} title="Raw messages" end=${operates() ? (left ? html`<span class="dim num small">${duration(left)} left </span><button type="button" onClick=${() => turn('stop')}>Stop recording</button>`
    : html`<button type="button" onClick=${() => turn('start')}>Record for five minutes</button>`) : null}>
    ${messages.length ? html`<div class="tbody free" tabindex="0" aria-label="Raw messages">${messages.map((one) => html`<details class="rawline" key=${one.seq}><summary><span class="tag">${one.incoming ? 'from it' : 'to it'}</span> <span class="num dim small">${clock(one.at)}, ${plural(one.size, 'byte')}</span> <code>${plain(one.text.slice(0, 160))}</code></summary>
        <${Text} text=${one.text} label=${`Message ${one.seq}`} />${one.cut ? html`<p class="dim small">The beginning of ${plural(one.size, 'byte')}.</p>` : null}</details>`)}</div>`
      : html`<${Empty}>${left ? 'No message yet.' : 'Messages between the hub and this server, as they are on the wire. They are kept for five minutes in memory, with secrets masked.'}<//>`}<//>`;
}
