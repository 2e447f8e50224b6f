// A login to a remote server: it lasts as long as this screen waits for it.
import { html, useEffect, useRef, useState } from '../lib/ui.js';
import { events } from '../lib/api.js';
import { plain, quoted } from '../lib/format.js';
import { operates } from '../lib/store.js';
import { Badge, Command, Panel } from '../lib/parts.js';

export function ServerLogin({ name, needed }) {
  const [news, set] = useState(null); // {type: starting | page | ended, …}
  const stop = useRef(null);
  const end = () => { stop.current?.abort(); set(null); };
  useEffect(() => () => stop.current?.abort(), []);
  const start = async () => {
    const own = stop.current = new AbortController();
    set({ type: 'starting' });
    try {
      for await (const event of events('login', own.signal, {}, { server: name })) set(JSON.parse(event.data));
      if (!own.signal.aborted) set((last) => (last?.type === 'ended' ? last : { type: 'ended', text: 'The hub ended the login.', code: 'login_failed' }));
    } catch (error) {
      if (!own.signal.aborted) set({ type: 'ended', text: error.message, code: error.code || 'login_failed' });
    }
  };
  const runs = news && news.type !== 'ended';
  return html`<${Panel} title="Login" end=${needed ? html`<${Badge} kind="warn">needed<//>` : null}><div class="body">
    <div role="status">${news?.type === 'page' ? html`<p>The hub waits for you to log in at <strong>${plain(news.issuer)}</strong>. The login comes back to the machine of the hub, so open it in a browser there.</p>`
      : news?.type === 'ended' ? html`<p>${news.code ? html`<span class="badge bad">failed</span> ` : html`<span class="badge ok">done</span> `}${plain(news.text)}</p>`
        : news ? html`<p>Asking the server where to log in…</p>` : null}</div>
    ${operates() ? html`<div class="head">${news?.type === 'page' && /^https?:/.test(news.url) ? html`<a class="button" href=${news.url} target="_blank" rel="noopener noreferrer">Open the login page</a>` : null}
      ${runs ? html`<button type="button" onClick=${end}>Stop waiting</button>` : html`<button type="button" class=${needed ? 'go' : ''} onClick=${start}>Log in</button>`}</div><p></p>` : null}
    <${Command}>${`mcp-hub login ${quoted(name)}`}<//></div><//>`;
}
