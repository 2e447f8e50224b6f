// The screen and its filters, in the fragment of the address: #/calls?server=git
import { useEffect, useState } from './ui.js';
import { decoded, encoded } from './format.js';

export function parse(hash = location.hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [screen, ...rest] = path.split('/').map(decoded);
  return { screen: screen || 'overview', name: rest.join('/'), query: Object.fromEntries(new URLSearchParams(query)) };
}

export function link(screen, name = '', query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value);
  const path = name ? `${screen}/${encoded(name)}` : screen;
  return `#/${path}${kept.length ? `?${new URLSearchParams(kept)}` : ''}`;
}

export const go = (...place) => { location.hash = link(...place); };

// Whether a screen is the one that is shown: an answer that comes late takes nobody away from another one.
export function isShown(screen, name) {
  const route = parse();
  return route.screen === screen && route.name === name;
}

// Changes filters in place: they are in the address, and not in the history.
export function refine(change) {
  const now = parse();
  history.replaceState(null, '', link(now.screen, now.name, { ...now.query, ...change }));
  dispatchEvent(new HashChangeEvent('hashchange'));
}

export function useRoute() {
  const [route, set] = useState(parse());
  useEffect(() => {
    const listen = () => set(parse());
    addEventListener('hashchange', listen);
    return () => removeEventListener('hashchange', listen);
  }, []);
  return route;
}
