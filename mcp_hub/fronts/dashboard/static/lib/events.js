// The events of one stream as they come, and what they add up to. A lost connection continues behind the last one.
import { events as stream, pause, segment } from './api.js';
import { member } from './format.js';
import { useEffect, useRef, useState } from './ui.js';

const MOST = 10000; // events that are kept here
const MOST_OUTPUT = 4 << 20; // characters of output
const STATUS = { ok: 'completed', tool_error: 'tool_error', cancelled: 'cancelled' };

const MOST_CALLS = 1000; // calls of a script
const fresh = () => ({ events: [], calls: new Map(), output: '', progress: null, questions: new Map(), ending: null, problem: '', asked: 0, gone: 0, cursor: 0 });

function add(found, event) {
  const { type, data, seq } = event;
  found.cursor = seq;
  found.events.push(event);
  if (found.events.length > MOST) found.events.splice(0, found.events.length - MOST);
  if (type === 'progress') found.progress = data;
  else if (type === 'delta' && data.channel !== 'aux') {
    found.output += (data.content ?? []).map((block) => (block.type === 'text' ? block.text : `[${block.type}]\n`)).join('');
    if (found.output.length > MOST_OUTPUT) found.output = found.output.slice(-MOST_OUTPUT);
  } else if (type === 'reset') found.output = '';
  else if (type === 'tool-call') {
    found.calls.set(data.call, { ...data, at: Date.parse(event.ts) / 1000, end: null, failed: false });
    if (found.calls.size > MOST_CALLS) found.calls.delete(found.calls.keys().next().value);
  } else if (type === 'tool-result' && found.calls.has(data.call)) {
    Object.assign(found.calls.get(data.call), { end: Date.parse(event.ts) / 1000, failed: data.isError === true });
  } else if (type === 'input-required') { found.questions.set(data.key, data); found.asked++; }
  else if (type === 'input-received') found.questions.delete(data.key);
  else if (type === 'end') found.ending = { status: member(STATUS, data.outcome) ?? 'completed', result: data.result, reason: data.reason };
  else if (type === 'error') found.ending = { status: 'failed', error: data };
  if (found.ending) found.questions.clear();
}

export function useEvents(id, after) {
  const found = useRef(null);
  const [, again] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const own = fresh();
    found.current = own;
    own.cursor = after;
    let isDue = false;
    const show = () => {
      if (isDue) return;
      isDue = true;
      setTimeout(() => { isDue = false; again((n) => n + 1); }, 50);
    };
    (async () => {
      while (!stop.signal.aborted && !own.ending) {
        try {
          for await (const event of stream(`v1/streams/${segment(id)}/events?after=${own.cursor}`, stop.signal)) {
            if (event.type === 'closed') return;
            if (event.type === 'problem') throw Object.assign(new Error(JSON.parse(event.data).detail), { status: JSON.parse(event.data).status });
            add(own, JSON.parse(event.data));
            own.problem = '';
            show();
          }
        } catch (error) {
          if (stop.signal.aborted) return;
          own.problem = error.message;
          show();
          if (error.status === 404) return;
        }
        await pause(700);
      }
    })();
    return () => stop.abort();
  }, [id, after]);
  return found.current ?? fresh();
}
