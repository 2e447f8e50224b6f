// Resources and prompts of all servers: lists, and a form that reads or gets one.
import { html, useEffect, useState } from '../lib/ui.js';
import { ask, get, segment } from '../lib/api.js';
import { go, isShown, link, refine } from '../lib/router.js';
import { plain, plural, quoted } from '../lib/format.js';
import { mayChange, toast, useStore } from '../lib/store.js';
import { SchemaForm } from '../lib/form.js';
import { Text } from '../lib/content.js';
import { Command, Docs, Empty, Filter, Panel, Select } from '../lib/parts.js';
import { Table } from '../lib/table.js';

const KINDS = [['resource', 'resources'], ['template', 'templates'], ['prompt', 'prompts']];
const PLACES = { resource: 'resource', template: 'resource', prompt: 'prompt' };

// All of them, loaded again when the lists of the servers change: {offers, problem}.
function useOffers() {
  const { tools: version } = useStore();
  const [found, set] = useState({ offers: null, problem: '' });
  useEffect(() => {
    let isHere = true;
    Promise.all([get('v1/resources'), get('v1/prompts')]).then(([listed, { prompts }]) => {
      const of = (kind, key) => (one) => ({ kind, key: String(one[key]), title: String(one.title ?? one.name ?? ''), about: String(one.description ?? ''), definition: one });
      const offers = [...listed.resources.map(of('resource', 'uri')), ...listed.resourceTemplates.map(of('template', 'uriTemplate')), ...prompts.map(of('prompt', 'name'))];
      if (isHere) set({ offers, problem: '' });
    }, (error) => isHere && set((old) => ({ ...old, problem: error.message })));
    return () => { isHere = false; };
  }, [version]);
  return found;
}

const COLUMNS = [
  { key: 'key', title: 'Address or name', width: 'minmax(200px, 1.5fr)', card: 'title', cell: (one) => html`<a href=${link(PLACES[one.kind], one.key)}>${plain(one.key)}</a>` },
  { key: 'kind', title: 'Kind', width: '86px', cell: (one) => html`<span class="tag">${one.kind}</span>` },
  { key: 'title', title: 'Title', width: 'minmax(80px, .8fr)', cell: (one) => plain(one.title.slice(0, 200)) },
  { key: 'about', title: 'Description', width: 'minmax(0, 2fr)', card: 'whole', cell: (one) => plain(one.about.slice(0, 300)) },
];

export function Offers({ query }) {
  const { offers, problem } = useOffers();
  const words = (query.q ?? '').toLowerCase();
  const rows = (offers ?? []).filter((one) => (!query.kind || one.kind === query.kind) && (!words || `${one.key} ${one.title} ${one.about}`.toLowerCase().includes(words)));
  return html`<div class="screen fixed"><div class="head"><h1>Resources and prompts</h1><${Docs} page="cli.md" /><span class="dim num">${offers ? plural(rows.length, 'entry') : ''}</span></div>
    ${problem ? html`<p role="alert">${plain(problem)}</p>` : null}
    <div class="filters"><${Filter} label="Filter entries" value=${query.q} onInput=${(q) => refine({ q })} />
      <${Select} label="Kind" value=${query.kind} options=${KINDS} onChange=${(kind) => refine({ kind })} /></div>
    <section class="panel grow"><${Table} label="Resources and prompts" className="grow" rows=${rows} rowKey=${(one) => `${one.kind} ${one.key}`} columns=${COLUMNS}
      empty=${offers ? (offers.length ? 'Nothing fits this filter.' : 'No server offers resources or prompts.') : problem ? 'Not loaded.' : 'Loading…'} /></section></div>`;
}

// The variables of a template that are one text each, {name} and {+name}; null for another form.
function variables(template) {
  const parts = template.match(/\{[^{}]*\}/g) ?? [];
  return parts.every((part) => /^\{\+?\w+\}$/.test(part)) ? [...new Set(parts.map((part) => part.replace(/[{}+]/g, '')))] : null;
}
const expanded = (template, values) => template.replace(/\{(\+?)(\w+)\}/g, (_, plus, name) => (plus ? encodeURI(values[name] ?? '') : encodeURIComponent(values[name] ?? '')));
const text = (name, required) => [name, { type: 'string', maxLength: 200, title: name, required }];

function schemaOf(one) {
  if (one.kind === 'prompt') {
    const given = Array.isArray(one.definition.arguments) ? one.definition.arguments : [];
    return { properties: Object.fromEntries(given.map(({ name, description, title }) => [name, { ...text(name)[1], title: title ?? name, description }])), required: given.filter((own) => own.required).map((own) => own.name) };
  }
  const names = variables(one.key);
  if (one.kind === 'resource' || names === null) return one.kind === 'resource' ? {} : { properties: { uri: { type: 'string', maxLength: 200, title: 'URI', default: one.key } }, required: ['uri'] };
  return { properties: Object.fromEntries(names.map((name) => text(name))), required: names };
}

export function Offer({ screen, name }) {
  const { offers, problem } = useOffers();
  const [busy, setBusy] = useState(false);
  const one = offers?.find((other) => PLACES[other.kind] === screen && other.key === name);
  if (!one) return html`<div class="screen"><h1>${plain(name)}</h1><${Empty}>${problem ? plain(problem) : offers ? 'No server offers this now.' : 'Loading…'}<//></div>`;
  const isPrompt = one.kind === 'prompt';
  const uriOf = (values) => (one.kind === 'resource' ? one.key : values.uri ?? expanded(one.key, values));
  const run = async (values) => {
    setBusy(true);
    try {
      const [path, body] = isPrompt ? [`v1/prompts/${segment(name)}/get`, { arguments: values }] : ['v1/resources/read', { uri: uriOf(values) }];
      const made = await ask('POST', path, body, { headers: { prefer: 'wait=0' } });
      if (isShown(screen, name)) go('stream', made.stream);
      else toast('See Calls.');
    } catch (error) {
      toast(error.message);
    }
    setBusy(false);
  };
  const command = isPrompt ? `mcp-hub prompt ${quoted(name)}` : `mcp-hub read ${quoted(name)}`;
  return html`<div class="screen"><div class="head"><h1>${plain(one.title || name)}</h1><span class="tag">${one.kind}</span><${Docs} page="cli.md" /></div>
    <div class="small dim"><code>${plain(name)}</code></div>
    <div class="two"><${Panel} title=${isPrompt ? 'Get it' : 'Read it'}><div class="body">
        ${mayChange() ? html`<${SchemaForm} id="offer" allowsEmpty=${isPrompt} schema=${schemaOf(one)} none=${isPrompt ? 'It takes no arguments.' : 'Its address is complete.'} action=${isPrompt ? 'Get' : 'Read'} busy=${busy} onSubmit=${run} />` : html`<p class="dim">This page is read-only (hub.http.dashboard: read).</p>`}
        <p></p><${Command}>${command}<//></div><//>
      <${Panel} title="Definition"><div class="body">${one.about ? html`<${Text} text=${one.about} label="Description" />` : null}<h3>As clients get it</h3><${Text} text=${JSON.stringify(one.definition, null, 2)} label="Definition" /></div><//></div></div>`;
}
