// The state of the hub in this tab: a snapshot, and the feed that continues behind it.
import { events, get, pause, setToken, takeToken } from './api.js';
import { followAsks, loadAsks } from './asks.js';
import { useEffect, useState } from './ui.js';

const MOST = 10000; // calls
export const store = {
  phase: 'loading', // login, loading, ready
  online: false,
  problem: '',
  provider: false, // whether people log in at an OpenID provider
  hub: null, // the snapshot without its lists
  servers: [],
  reload: null,
  calls: [], // the newest first
  live: [],
  tools: 0, // changes with the lists of tools
  approvals: [],
  asks: [], // calls that wait for a yes
  keeping: '', // what the hub keeps of calls that are over
  edits: null, // {possible, why, proposals}
  installs: [],
  toast: '',
  outdated: false,
};

const listeners = new Set();
let isDue = false;
export function changed() {
  if (isDue) return;
  isDue = true;
  setTimeout(() => {
    isDue = false;
    for (const listener of listeners) listener((n) => n + 1);
  }, 16);
}

export function useStore() {
  const [, again] = useState(0);
  useEffect(() => {
    listeners.add(again);
    return () => listeners.delete(again);
  }, []);
  return store;
}

let toasts = 0;
export function toast(text) {
  const mine = ++toasts;
  store.toast = text;
  changed();
  setTimeout(() => {
    if (mine === toasts) { store.toast = ''; changed(); }
  }, 5000);
}

// Runs an action and says how it went; true if it did.
export async function attempt(action, said) {
  try {
    await action();
    if (said) toast(said);
    return true;
  } catch (error) {
    toast(error.message);
    return false;
  }
}

// Seconds since the epoch, by the clock of the hub.
export const hubNow = () => Date.now() / 1000 + (store.hub?.skew ?? 0);
export const mayChange = () => store.hub?.mode === 'full';
export const operates = () => mayChange() && Boolean(store.hub?.operator);

// The mistakes of a configuration that an operator has to correct.
export const refused = () => (store.hub?.operator && store.reload && !store.reload.applied ? store.reload.findings : []);

export async function loadApprovals() {
  if (!store.hub?.operator) return;
  try {
    store.approvals = (await get('approvals')).waiting;
  } catch { /* the next change tries again */ }
  changed();
}

// Whether servers can be changed here, and the edits that wait for a terminal.
export async function loadEdits() {
  if (!store.hub?.operator) return;
  try {
    store.edits = await get('edits');
  } catch { /* the next change tries again */ }
  changed();
}

async function loadKeeping() {
  try {
    store.keeping = (await get('v1/history?limit=1')).keeping ?? '';
  } catch {
    store.keeping = '';
  }
  changed();
}

// The client programs on the machine of the hub; the reason if they are not known now, which the next look may end.
export async function loadInstalls() {
  if (!store.hub?.operator) return '';
  let problem = '';
  try {
    store.installs = (await get('installs')).clients;
  } catch (error) {
    problem = error.message;
  }
  changed();
  return problem;
}

async function snapshot() {
  const state = await get('state');
  const { calls, live, servers, ...hub } = state;
  store.outdated ||= store.hub !== null && store.hub.version !== hub.version;
  store.hub = { ...hub, skew: hub.now - Date.now() / 1000 };
  Object.assign(store, { calls, live, servers: servers.servers, reload: servers.reload ?? null, tools: hub.tools, phase: 'ready', problem: '' });
  changed();
  loadAsks();
  loadApprovals();
  loadEdits();
  loadKeeping();
  loadInstalls();
  return hub.cursor;
}

function take(batch) {
  if (batch.ended) store.calls = [...batch.ended.reverse(), ...store.calls].slice(0, MOST);
  if (batch.live) store.live = batch.live;
  if (batch.live) followAsks();
  if (batch.servers) Object.assign(store, { servers: batch.servers.servers, reload: batch.servers.reload ?? null });
  if (batch.tools !== undefined && batch.tools !== store.tools) {
    store.tools = batch.tools;
    loadApprovals();
    loadEdits();
  }
  changed();
}

async function follow(cursor) {
  for await (const event of events(`feed?after=${cursor}&answers=1`)) {
    if (!store.online) { store.online = true; changed(); }
    if (event.type === 'reset') return null;
    if (event.type === 'batch') {
      take(JSON.parse(event.data));
      cursor = event.id;
      place = cursor;
    }
  }
  return cursor;
}

let place = null;
let isRunning = false;
export async function run() {
  if (isRunning) return;
  isRunning = true;
  let wait = 300;
  for (;;) {
    const token = takeToken();
    try {
      place ??= await snapshot();
      wait = 300;
      place = await follow(place);
    } catch (error) {
      store.online = false;
      if (error.status === 401) {
        place = null;
        if (token) {
          store.problem = 'The hub does not accept this token. It is mistyped, or of an earlier start of the hub.';
          setToken('');
          continue; // without it the hub says how else one can log in
        }
        Object.assign(store, { phase: 'login', provider: error.code === 'login_required' });
        break;
      }
      store.problem = error.status ? error.message : 'The hub does not answer.';
      if (error.status === 404) place = null;
    }
    changed();
    await pause(wait);
    wait = Math.min(wait * 2, 5000);
  }
  isRunning = false;
  changed();
}
