// The entry of a server as YAML: completion, what mcp-hub check finds, and what the edit would do, before it is made.
import { html, useEffect, useRef, useState } from '../lib/ui.js';
import { ask, get, segment } from '../lib/api.js';
import { go, isShown, link } from '../lib/router.js';
import { plain } from '../lib/format.js';
import { loadEdits, mayChange, operates, useStore } from '../lib/store.js';
import { complete } from '../lib/yaml.js';
import { Command, Docs, Empty, Panel } from '../lib/parts.js';
import { Registry } from './registry.js';

const CLASS = { '+': 'add', '-': 'del' };
export const Diff = ({ lines = [], label }) => html`<pre class="diff" tabindex="0" aria-label=${label}>${lines.map((line) => html`<div class=${CLASS[line[0]] ?? ''}>${plain(line) || ' '}</div>`)}</pre>`;

const EFFECTS = {
  none: 'Nothing changes.', now: 'It holds at once.',
  proposal: 'It is proposed, and starts nothing until you approve it on a terminal, because:',
};

export function Edit({ name, query }) {
  const store = useStore();
  const isNew = !name;
  const [server, setServer] = useState(name);
  const [text, setText] = useState(isNew ? `url: ${plain(query.url ?? 'https://')}` : null);
  const [digest, setDigest] = useState('');
  const [schema, setSchema] = useState(null);
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState('');
  const [done, setDone] = useState(null);
  const [busy, setBusy] = useState(false);
  const load = () => get(`entry?server=${segment(name)}`).then((entry) => { setText(entry.text ?? ''); setDigest(entry.digest ?? ''); setProblem(''); }, (error) => setProblem(error.message));
  useEffect(() => { loadEdits(); get('schema').then(setSchema, (error) => setProblem(`Keys cannot be proposed: ${error.message}`)); if (!isNew) load(); }, [name]);
  useEffect(() => {
    if (text === null || !operates() || (isNew && !server) || !store.edits?.possible) { setFound(null); return undefined; }
    let isHere = true;
    const timer = setTimeout(() => ask('POST', 'entry/check', { server, text, digest }).then(
      (judgement) => { if (isHere) { setFound(judgement); setProblem(''); } }, (error) => { if (isHere) { setFound(null); setProblem(error.message); } }), 400);
    return () => { isHere = false; clearTimeout(timer); };
  }, [text, server, digest, store.edits?.possible]);
  if (!operates() || (store.edits && !store.edits.possible)) return html`<div class="screen"><h1>${isNew ? 'Add a server' : plain(name)}</h1><${Empty}>${store.edits?.why || (mayChange() ? 'Only an operator changes servers.' : 'This page is read-only (hub.http.dashboard: read).')}<//></div>`;
  const save = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const outcome = await ask('POST', 'entry', { server, text, digest });
      loadEdits();
      if (outcome.effect === 'proposal') setDone(outcome);
      else if (isShown('edit', name)) go('server', server);
    } catch (error) {
      setProblem(error.message);
    }
    setBusy(false);
  };
  if (done) return html`<${Proposed} server=${server} command=${done.command} />`;
  const findings = found?.findings ?? [], hasError = findings.some((one) => one.error);
  return html`<div class="screen"><div class="head"><h1>${isNew ? 'Add a server' : `Edit ${plain(name)}`}</h1><${Docs} page="configuration.md" /></div>
    ${isNew && store.edits?.registry ? html`<${Registry} onTake=${(name, entry) => { setServer(name); setText(entry); }} />` : null}
    <form class="two" onSubmit=${save}>
      <${Panel} title="Its entry in the configuration"><div class="body form">
        ${isNew ? html`<div class="field"><label for="entry-name">Name</label><input id="entry-name" type="text" autocomplete="off" maxlength="64" value=${server} onInput=${(event) => setServer(event.target.value.trim())} /></div>` : null}
        <${Editor} text=${text ?? ''} waits=${text !== null ? '' : problem ? 'Not loaded.' : 'Loading…'} schema=${schema} onInput=${setText} />
        <p class="dim small">Secrets are shown as ***, which stays what it was. A secret that you write is kept in a file of its own.</p>
        <div class="head"><button class="go" disabled=${busy || !server || text === null || !found || hasError || found.effect === 'none'}>${found?.effect === 'proposal' ? 'Propose' : isNew ? 'Add' : 'Save'}</button>
          <a class="button" href=${isNew ? link('servers') : link('server', name)}>Cancel</a></div></div><//>
      <${Panel} title="What it does"><div class="body" role="status">
        ${problem ? html`<p role="alert">${plain(problem)}</p>` : null}
        ${findings.length ? html`<ul class="plain">${findings.map((one) => html`<li><span class="tag ${one.error ? 'bad' : ''}">${one.error ? 'error' : 'note'}</span> ${one.line ? `line ${one.line}: ` : ''}${plain(one.message)} <code class="dim">${one.code}</code></li>`)}</ul>` : null}
        ${found && !hasError ? html`<p>${EFFECTS[found.effect]}</p>${(found.reasons ?? []).map((reason) => html`<p class="reason">${plain(reason)}</p>`)}` : null}
        ${found?.diff && !hasError ? html`<${Diff} lines=${found.diff} label="Difference of the entry" />` : null}
        ${found || problem ? null : html`<p class="dim">${isNew && !server ? 'Give it a name.' : text === null ? 'Loading…' : 'It is being checked…'}</p>`}</div><//></form></div>`;
}

function Proposed({ server, command }) {
  return html`<div class="screen"><div class="head"><h1>${plain(server)}</h1></div><${Panel} title="Waits for you on a terminal"><div class="body">
    <p>Nothing is started or changed yet. On the machine of the hub, run this: it shows the edit, and asks.</p><${Command}>${command}<//>
    <p><a href=${link('servers')}>All servers</a></p></div><//></div>`;
}

function Editor({ text, waits, schema, onInput }) {
  const area = useRef(null);
  const start = useRef(text);
  const [open, setOpen] = useState(null); // {from, options, at}
  const show = () => { const next = complete(schema, area.current.value, area.current.selectionStart); setOpen(next && { ...next, at: 0 }); };
  useEffect(() => { if (schema && document.activeElement === area.current && area.current.value !== start.current) show(); }, [schema]); // it may come late
  const take = (option) => {
    const at = area.current, end = at.selectionStart;
    at.setRangeText(option.insert, open.from, end, 'end');
    onInput(at.value);
    setOpen(null);
    at.focus();
  };
  const key = (event) => {
    if (event.key === ' ' && event.ctrlKey) { event.preventDefault(); show(); return; }
    if (!open) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setOpen({ ...open, at: (open.at + step + open.options.length) % open.options.length });
    else if (event.key === 'Enter') take(open.options[open.at]);
    else if (event.key === 'Escape') setOpen(null);
    else return;
    event.preventDefault();
  };
  const rows = Math.min(24, Math.max(10, text.split('\n').length + 1));
  return html`<div class="field editor"><label for="entry-text">YAML</label>
    <textarea id="entry-text" ref=${area} rows=${rows} spellcheck=${false} autocomplete="off" aria-autocomplete="list" aria-haspopup="listbox" aria-controls="entry-options"
      aria-activedescendant=${open ? `entry-option-${open.at}` : undefined} aria-describedby="entry-help" value=${text} readonly=${Boolean(waits)} placeholder=${waits}
      onInput=${(event) => { onInput(event.target.value); show(); }} onKeyDown=${key} onBlur=${() => setTimeout(() => setOpen(null), 200)}></textarea>
    <ul id="entry-options" role="listbox" aria-label="Keys that fit here" class="options">${(open?.options ?? []).map((option, at) => html`<li id=${`entry-option-${at}`} role="option" aria-selected=${String(at === open.at)} onMouseDown=${(event) => { event.preventDefault(); take(option); }}>${option.text}</li>`)}</ul>
    <div class="dim small" id="entry-help">Keys are proposed as you write: arrows and <kbd>Enter</kbd> take one, <kbd>Escape</kbd> closes, <kbd>Ctrl</kbd> <kbd>Space</kbd> opens.</div></div>`;
}
