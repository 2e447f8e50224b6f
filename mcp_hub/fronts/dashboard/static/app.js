// The frame around all screens: navigation, the state of the connection, keys.
import { html, render, useEffect, useRef, useState } from './lib/ui.js';
import { hasToken, logOut, takeToken } from './lib/api.js';
import { parse, useRoute, link } from './lib/router.js';
import { hubNow, run, useStore } from './lib/store.js';
import { duration, member, plain } from './lib/format.js';
import { Docs } from './lib/parts.js';
import { Login } from './screens/login.js';
import { Overview, needs } from './screens/overview.js';
import { Servers } from './screens/servers.js';
import { Server } from './screens/server.js';
import { Edit } from './screens/edit.js';
import { Tools } from './screens/tools.js';
import { Tool } from './screens/tool.js';
import { Calls } from './screens/calls.js';
import { Figures } from './screens/figures.js';
import { Stream } from './screens/stream.js';
import { EventType } from './screens/event.js';
import { Offer, Offers } from './screens/offers.js';
import { Profiles } from './screens/profiles.js';
import { Search } from './screens/search.js';
import { Clients } from './screens/clients.js';
import { Settings } from './screens/settings.js';

const SCREENS = {
  overview: ['Overview', Overview], servers: ['Servers', Servers], tools: ['Tools', Tools], offers: ['Resources', Offers], calls: ['Calls', Calls], figures: ['Figures', Figures], search: ['Search', Search],
  clients: ['Clients', Clients], profiles: ['Profiles', Profiles], settings: ['Settings', Settings],
};
const INNER = { server: ['servers', 'Server', Server], edit: ['servers', 'Edit', Edit], tool: ['tools', 'Tool', Tool], stream: ['calls', 'Call', Stream],
  event: ['tools', 'Event type', EventType], prompt: ['offers', 'Prompt', Offer], resource: ['offers', 'Resource', Offer] };

function Side({ current, place, store }) {
  const counts = { calls: store.live.length, overview: needs(store).length };
  const shown = Object.entries(SCREENS).filter(([key]) => !['settings', 'profiles'].includes(key) || store.hub.operator)
    .filter(([key]) => key !== 'figures' || (store.keeping && store.keeping !== 'off'));
  const [isOpen, open] = useState(false);
  const button = useRef(null);
  useEffect(() => { open(false); }, [place]);
  const leave = () => { if (isOpen) document.getElementById('main').focus(); open(false); };
  const close = (event) => {
    if (event.key !== 'Escape' || !isOpen) return;
    open(false);
    button.current.focus();
  };
  return html`<header class="side" onKeyDown=${close}>
    <div class="brand"><img src="dashboard/icon.svg" alt="" /><span>${plain(store.hub.name)}</span></div>
    <button type="button" class="menu" ref=${button} aria-expanded=${String(isOpen)} aria-controls="nav" onClick=${() => open(!isOpen)}>Menu${counts.overview ? html`<span class="count alert">${counts.overview}<span class="hidden"> need you</span></span>` : null}</button>
    <nav id="nav" aria-label="Screens" class=${isOpen ? 'open' : ''} onClick=${leave}>${shown.map(([key, [title]]) => html`
      <a key=${key} href=${link(key)} aria-current=${key === current ? 'page' : undefined}>${title}
        ${counts[key] ? html`<span class="count ${key === 'overview' ? 'alert' : ''}">${counts[key]}<span class="hidden"> ${key === 'overview' ? 'need you' : 'running'}</span></span>` : null}</a>`)}</nav>
    <div class="foot"><${Status} store=${store} /></div></header>`;
}

function Status({ store }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 10000);
    return () => clearInterval(timer);
  }, []);
  const { hub, online } = store;
  return html`<div class="state"><span class="badge ${online ? 'ok' : 'bad'}">${online ? 'connected' : 'offline'}</span></div>
    <div>version ${hub.version}</div><div>up ${duration(Math.max(hubNow() - hub.started, 0))}</div>
    ${hub.mode === 'read' ? html`<div>read-only</div>` : null}
    ${hub.operator ? null : html`<div>your calls only</div>`}
    ${hub.profile != null ? html`<div>profile ${plain(hub.profile)}</div>` : null}
    ${hasToken() ? null : html`<div><button type="button" class="plain" onClick=${logOut}>Log out</button></div>`}
    <div><${Docs} page="README.md">Documentation<//></div>`;
}

function App() {
  const store = useStore();
  const route = useRoute();
  useEffect(() => { run(); }, []);
  const [parent, title, Screen] = member(INNER, route.screen) ?? [route.screen, ...(member(SCREENS, route.screen) ?? ['Not found', Missing])];
  useEffect(() => { document.title = `${plain(route.name || title)} · mcp-hub`; }, [title, route.name]);
  if (store.phase === 'login') return html`<${Login} problem=${store.problem} provider=${store.provider} />`;
  if (!store.hub) return html`<p class="first" role="status">${store.problem || 'Loading…'}</p>`;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById('main').focus(); }}>Skip to the content</a>
    <div class="frame"><${Side} current=${parent} place=${`${route.screen}/${route.name}`} store=${store} />
    <div class="main">
      ${store.online ? null : html`<div class="note bad" role="status">Not connected: what you see may be old. ${plain(store.problem)} The page tries again.</div>`}
      ${store.outdated ? html`<div class="note" role="status">The hub is another version now. Reload the page.</div>` : null}
      <main id="main" tabindex="-1" class="main"><${Screen} key=${`${route.screen}/${route.name}`} ...${route} /></main>
    </div></div>
    <div aria-live="polite">${store.toast ? html`<div class="toast">${plain(store.toast)}</div>` : null}</div>`;
}

const Missing = () => html`<div class="screen"><h1>Not found</h1><p class="empty">There is no such screen. <a href=${link('overview')}>Overview</a></p></div>`;

document.addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.target.closest('input, textarea, select')) return;
  const filter = document.getElementById('filter');
  if (filter) { filter.focus(); event.preventDefault(); }
  else if (parse().screen !== 'calls') location.hash = link('calls');
});

// `mcp-hub open` may come to a tab that is open already: the hub was started again
addEventListener('hashchange', (event) => {
  if (!location.hash.startsWith('#token=')) return;
  event.stopImmediatePropagation();
  takeToken();
  location.reload();
});
takeToken();

const place = document.getElementById('app');
place.textContent = '';
render(html`<${App} />`, place);
