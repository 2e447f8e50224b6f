// Preact 10.29.8 and htm 3.1.1, as their packages have them; ./vendor has their licences.
import { h, render, Fragment } from '../vendor/preact.js';
import { useEffect, useState } from '../vendor/hooks.js';
import htm from '../vendor/htm.js';

export { h, render, Fragment, useEffect, useState };
export { useLayoutEffect, useMemo, useRef, useCallback } from '../vendor/hooks.js';
export const html = htm.bind(h);

// Whether a media query holds now.
export function useMedia(query) {
  const [holds, set] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query), listen = () => set(list.matches);
    listen();
    list.addEventListener('change', listen);
    return () => list.removeEventListener('change', listen);
  }, [query]);
  return holds;
}
