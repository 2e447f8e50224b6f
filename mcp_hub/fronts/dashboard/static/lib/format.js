// Numbers, times and states as people read them; names of strangers as keys and in addresses.
const whole = new Intl.NumberFormat('en');
export const count = (n) => whole.format(n ?? 0);
export const plural = (n, noun) => `${count(n)} ${n === 1 ? noun : /[^aeiou]y$/.test(noun) ? `${noun.slice(0, -1)}ies` : `${noun}s`}`;

export function duration(seconds) {
  if (seconds < 0.0995) return `${Math.max(seconds * 1000, 0).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return joined(minutes, 'min', Math.floor(seconds % 60), 's');
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? joined(hours, 'h', minutes % 60, 'min') : `${Math.floor(hours / 24)} d`;
}

const joined = (large, unit, small, part) => `${large} ${unit}${small ? ` ${small} ${part}` : ''}`;

// What a call waits for, and for how long; else what it asks, or its last message.
export const saying = (call, now) => (call.waits_for ? `waits for ${call.waits_for}, ${lasting(Math.max(now - call.waits_since, 0))}` : call.question || (call.message ?? ''));
const lasting = (seconds) => (seconds < 60 ? `${Math.floor(seconds)} s` : duration(seconds));

export function ago(seconds) {
  if (seconds < 5) return 'now';
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

const two = (n) => String(n).padStart(2, '0');
export function clock(at) {
  const date = new Date(at * 1000), today = new Date();
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return date.toDateString() === today.toDateString() ? time : `${date.getMonth() + 1}/${date.getDate()} ${time}`;
}

export const exact = (ts) => { const at = Date.parse(ts) / 1000; return Number.isNaN(at) ? String(ts ?? '') : `${clock(at)}.${String(Math.floor((at % 1) * 1000)).padStart(3, '0')}`; };

const CALLS = {
  working: ['run', 'running'], waiting: ['off', 'waiting'], input_required: ['warn', 'asks'],
  completed: ['ok', 'done'], tool_error: ['bad', 'tool error'], failed: ['bad', 'failed'], cancelled: ['off', 'cancelled'],
  timed_out: ['bad', 'timed out'],
};
export const callState = (status) => member(CALLS, status) ?? ['off', status];
export const CALL_STATES = Object.entries(CALLS).map(([value, [, text]]) => [value, text]);
// The reason in an event `error`, or in the ending that it is.
export const reasonOf = (error) => String(error.message ?? error.error?.message ?? error.detail ?? '');
export const isOver = (status) => !['working', 'waiting', 'input_required'].includes(status);

const SERVERS = { ready: 'ok', starting: 'run', backing_off: 'warn', draining: 'run', failed: 'bad', incompatible: 'bad' };
export function serverState(server) {
  if (server.rests) return ['off', 'sleeps'];
  return [member(SERVERS, server.state) ?? 'off', server.state.replace('_', ' ')];
}

// One argument of a command line, safe to paste into a shell.
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);
// Characters that a browser would hide, or that turn the direction of text, spelled out.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
export const plain = (text) => String(text).replace(UNSEEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
export const cut = (text, most) => (text.length > most ? `${text.slice(0, most)}…` : text);

// What a table has under a key: names such as `constructor` and `toString` are in every object, and in no table.
export const member = (table, key) => (table != null && Object.hasOwn(table, key) ? table[key] : undefined);
// An object that takes any name as a key, `__proto__` too.
export const table = (members = {}) => Object.assign(Object.create(null), members);

// An address may have been cut or typed: what is no escape stays as it is.
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
export const encoded = (text) => encodeURIComponent(String(text).replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, '\ufffd'));
