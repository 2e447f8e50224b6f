// All tools with their tokens and places, loaded once for each change of the lists.
import { get } from './api.js';
import { useEffect, useState } from './ui.js';
import { store } from './store.js';

let loaded = { version: -1, promise: null };
export function forgetTools() { loaded = { version: -1, promise: null }; }

async function definitionsNow() {
  try { return await get('v1/tools'); } catch (error) {
    if (error.code !== 'starting') throw error;
    return { tools: [] };  // no server is up yet
  }
}

async function load() {
  const [places, listed, costs] = await Promise.all([get('tools'), definitionsNow(), get('v1/tokens')]);
  const definitions = new Map(listed.tools.map((tool) => [tool.name, tool]));
  const tokens = new Map(costs.tools.map((tool) => [tool.name, tool.tokens]));
  const tools = places.tools.map((place) => ({ ...place, definition: definitions.get(place.name) ?? {}, tokens: tokens.get(place.name)?.full ?? 0 }));
  return { tools, overrides: places.overrides ?? {} };
}

export function useTools() {
  const [found, set] = useState({ tools: null, overrides: {}, problem: '' });
  const [again, reload] = useState(0);
  useEffect(() => {
    let isHere = true;
    if (loaded.version !== store.tools) loaded = { version: store.tools, promise: load() };
    loaded.promise.then((tools) => isHere && set({ ...tools, problem: '' }), (error) => { forgetTools(); if (isHere) set((old) => ({ ...old, problem: error.message })); });
    return () => { isHere = false; };
  }, [store.tools, again]);
  return { ...found, reload: () => { forgetTools(); reload((n) => n + 1); } };
}

export function hints(definition) {
  const own = definition.annotations ?? {};
  return [own.readOnlyHint && ['ok', 'reads'], own.readOnlyHint === false && own.destructiveHint !== false && ['bad', 'destructive'],
    own.idempotentHint && ['', 'idempotent'], own.openWorldHint && ['', 'open world']].filter(Boolean);
}
