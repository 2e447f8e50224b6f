// Calls that the hub keeps on disk, of earlier starts too: pages of them, by the filters of the address.
import { get, segment } from './api.js';
import { useEffect, useState } from './ui.js';
import { hubNow, store } from './store.js';

const PAGE = 200;
const DETAILS = 200; // calls of one answer with their arguments
const MOST = 10000; // calls that a page exports

// Midnight at the beginning of today, by the clock of this browser.
const today = () => new Date(new Date(hubNow() * 1000).setHours(0, 0, 0, 0)).getTime() / 1000;

// The time that a filter stands for: [since, until] in Unix seconds.
export function times(time) {
  if (time === 'yesterday') return [today() - 86400, today()];
  return [Number(time) > 0 ? hubNow() - Number(time) : 0, Infinity];
}

// A pattern that fits this name alone.
const literal = (name) => name.replace(/[*?[\]]/g, (char) => (char === ']' ? char : `[${char}]`));

function path({ server, tool, client, state, time }, more) {
  const [since, until] = times(time);
  const asked = { server, tool: tool && literal(tool), client, status: state, since: since > 0 ? since.toFixed(3) : '', until: until < Infinity ? until.toFixed(3) : '', ...more };
  return `v1/history?${Object.entries(asked).filter(([, value]) => value !== undefined && value !== '').map(([key, value]) => `${key}=${segment(String(value))}`).join('&')}`;
}

const RUNNING = ['working', 'waiting', 'input_required'];

// {calls, before, keeping, losses, failing, problem, more}; `more` loads the page behind the last one.
export function useHistory(query) {
  const { server, tool, client, state, time } = query;
  const [found, set] = useState({ calls: [] });
  const load = async (before, isHere = () => true) => {
    if (RUNNING.includes(state)) { set({ calls: [] }); return; }
    try {
      const page = await get(path({ server, tool, client, state, time }, { limit: PAGE, before }));
      if (isHere()) set((old) => ({ ...page, calls: before ? [...old.calls, ...(page.calls ?? [])] : page.calls ?? [] }));
    } catch (error) {
      if (isHere()) set((old) => ({ ...old, problem: error.status === 404 ? '' : error.message }));
    }
  };
  useEffect(() => {
    let isHere = true;
    load(undefined, () => isHere);
    return () => { isHere = false; };
  }, [server, tool, client, state, time, store.hub?.started]);
  return { ...found, more: () => load(found.before) };
}

// Hands a file with one call on each line to the person: those that fit, the newest ones first, with their arguments.
export async function download(query, onCount) {
  const lines = [];
  let before;
  do {
    const page = await get(path(query, { limit: DETAILS, details: 1, before }));
    lines.push(...(page.calls ?? []).map((call) => JSON.stringify(call)));
    before = page.before;
    onCount(lines.length);
  } while (before && lines.length < MOST);
  const url = URL.createObjectURL(new Blob([lines.map((line) => `${line}\n`).join('')], { type: 'application/jsonl' }));
  const link = document.createElement('a');
  Object.assign(link, { href: url, download: 'mcp-hub-calls.jsonl' });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
  return { count: lines.length, isWhole: !before };
}
