// The way a tool is listed: what servers.overrides.yaml says of it, to be changed.
import { html, useState } from '../lib/ui.js';
import { ask } from '../lib/api.js';
import { attempt } from '../lib/store.js';
import { Copy, Panel } from '../lib/parts.js';

const HINTS = [['readOnlyHint', 'Reads only'], ['destructiveHint', 'Destructive'], ['idempotentHint', 'Idempotent'], ['openWorldHint', 'Open world']];
const asText = (value) => (value === undefined || value === null ? '' : String(value));
const asBoolean = { '': null, true: true, false: false };

export function Listing({ tool, own, onDone }) {
  const [name, setName] = useState(own.name ?? '');
  const [description, setDescription] = useState(own.description ?? '');
  const [pin, setPin] = useState(asText(own.pin));
  const [hints, setHints] = useState(own.annotations ?? {});
  const [busy, setBusy] = useState(false);
  const given = Object.fromEntries(HINTS.map(([key]) => [key, hints[key]]).filter(([, value]) => typeof value === 'boolean'));
  const change = { name: name.trim() || null, description: description.trim() || null, pin: asBoolean[pin], annotations: Object.keys(given).length ? given : null };
  const kept = Object.fromEntries(Object.entries(change).filter(([, value]) => value !== null));
  const yaml = `servers: ${JSON.stringify({ [tool.server]: { per_tool: { [tool.tool]: kept } } })}`;
  const save = async (body, said) => {
    setBusy(true);
    if (await attempt(() => ask('POST', 'overrides', { servers: { [tool.server]: { [tool.tool]: body } } }), said)) onDone(body.hide || body.name !== (own.name ?? null));
    setBusy(false);
  };
  const submit = (event) => { event.preventDefault(); save(change, 'Saved in servers.overrides.yaml.'); };
  return html`<${Panel} title="What clients see"><div class="body"><form class="form" onSubmit=${submit}>
    <div class="field"><label for="listed-name">Name for clients</label><input id="listed-name" type="text" autocomplete="off" value=${name} placeholder=${tool.name} onInput=${(event) => setName(event.target.value)} /></div>
    <div class="field"><label for="listed-description">Description in place of the server's</label><textarea id="listed-description" rows="2" value=${description} onInput=${(event) => setDescription(event.target.value)}></textarea></div>
    <fieldset class="hints"><legend>Hints in place of the server's, and whether it is pinned</legend>${HINTS.map(([key, title]) => html`<${Choice} key=${key} id=${`listed-${key}`} title=${title} value=${asText(hints[key])} onChange=${(value) => setHints((old) => ({ ...old, [key]: asBoolean[value] }))} />`)}
      <${Choice} id="listed-pin" title="Pinned" value=${pin} onChange=${setPin} /></fieldset>
    <div class="head"><button class="go" disabled=${busy}>Save</button><button type="button" disabled=${busy} onClick=${() => save({ hide: true }, `${tool.name} is hidden.`)}>Hide</button>
      <${Copy} text=${yaml}>Copy as YAML<//></div></form></div><//>`;
}

const Choice = ({ id, title, value, onChange }) => html`<div class="field"><label for=${id}>${title}</label><select id=${id} value=${value} onChange=${(event) => onChange(event.target.value)}>
  <option value="">unchanged</option><option value="true">yes</option><option value="false">no</option></select></div>`;
