// Preact 10.29.8 and htm 3.1.1, as their packages have them; ./vendor has their licences.
import { h, render, Fragment } from '../vendor/preact.js';
import htm from '../vendor/htm.js';

export { h, render, Fragment };
export { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback } from '../vendor/hooks.js';
export const html = htm.bind(h);
