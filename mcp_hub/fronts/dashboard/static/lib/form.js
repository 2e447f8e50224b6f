// A form made from a JSON Schema: fields for plain values, JSON for everything else.
import { html, useState } from './ui.js';
import { plain, table } from './format.js';

const kindOf = (schema) => (Array.isArray(schema?.type) ? schema.type.find((one) => one !== 'null') : schema?.type);
const choices = (schema) => schema?.enum?.map((value) => [value, value]) ?? schema?.oneOf?.filter((one) => 'const' in one).map((one) => [one.const, one.title ?? one.const]) ?? null;

function initial(schema) {
  if (schema?.default === undefined) return kindOf(schema) === 'boolean' && schema.default === undefined ? null : '';
  return isPlain(schema) ? schema.default : JSON.stringify(schema.default);
}
const isPlain = (schema) => !!choices(schema)?.length || ['string', 'number', 'integer', 'boolean'].includes(kindOf(schema));

// The value of a field; undefined for one that is left out. Throws what is wrong with it.
function valueOf(text, schema, name) {
  const kind = kindOf(schema);
  if (text === '' || text === null) return undefined;
  const choice = choices(schema)?.find(([value]) => String(value) === String(text));
  if (choice) return choice[0];
  if (kind === 'boolean') return text === true || text === 'true';
  if (kind === 'string') return text;
  if (kind === 'number' || kind === 'integer') {
    const number = Number(text);
    if (!Number.isFinite(number) || (kind === 'integer' && !Number.isInteger(number))) throw new Error(`${name} has to be ${kind === 'integer' ? 'a whole number' : 'a number'}.`);
    return number;
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name} has to be JSON.`);
  }
}

export function SchemaForm({ schema, action, onSubmit, busy, extra, id, allowsEmpty = false, none = 'It takes no arguments.' }) {
  const properties = Object.entries(schema?.properties ?? {});
  const required = schema?.required ?? [];
  const [values, set] = useState(() => Object.fromEntries(properties.map(([name, own]) => [name, initial(own)])));
  const [whole, setWhole] = useState('');
  const [problem, setProblem] = useState('');
  const submit = (event) => {
    event.preventDefault();
    try {
      const given = table(whole.trim() ? JSON.parse(whole) : {});
      for (const [name, own] of properties) {
        const value = valueOf(values[name], own, name);
        if (value !== undefined) given[name] = value;
        else if (required.includes(name) && !(name in given)) {
          if (kindOf(own) !== 'string' || !allowsEmpty) throw new Error(`${own?.title ?? name} is required.`);
          given[name] = '';
        }
      }
      setProblem('');
      onSubmit(given);
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`<form class="form" onSubmit=${submit}>
    ${properties.map(([name, own]) => html`<${Field} key=${name} id=${`${id}-${name}`} ...${{ name, own, required: required.includes(name), value: values[name], onChange: (value) => set((old) => ({ ...old, [name]: value })) }} />`)}
    ${schema?.additionalProperties && !properties.length ? html`<div class="field"><label for="${id}-json">Arguments as JSON</label><textarea id="${id}-json" rows="4" value=${whole} onInput=${(event) => setWhole(event.target.value)}></textarea></div>` : null}
    ${properties.length || schema?.additionalProperties ? null : html`<p class="dim">${none}</p>`}
    ${problem ? html`<p role="alert">${plain(problem)}</p>` : null}
    <div class="head"><button class="go" disabled=${busy}>${action}</button>${extra}</div></form>`;
}

function Field({ id, name, own, required, value, onChange }) {
  const kind = kindOf(own), options = choices(own);
  const title = plain(own?.title ?? name), about = own?.description;
  const described = about ? `${id}-about` : undefined;
  const input = (event) => onChange(event.target.value);
  let control;
  if (kind === 'boolean') {
    control = html`<select id=${id} value=${value === null ? '' : String(value)} onChange=${input} aria-describedby=${described}><option value="">not given</option><option value="true">true</option><option value="false">false</option></select>`;
  } else if (options) {
    control = html`<select id=${id} value=${value} onChange=${input} aria-describedby=${described}><option value="">${required ? 'choose' : 'not given'}</option>${options.map(([key, text]) => html`<option value=${String(key)}>${plain(text)}</option>`)}</select>`;
  } else if (!isPlain(own)) {
    control = html`<textarea id=${id} rows="3" value=${value} onInput=${input} placeholder=${kind === 'array' ? '[]' : '{}'} aria-describedby=${described}></textarea>`;
  } else if (kind === 'string' && (own.maxLength === undefined || own.maxLength > 200) && (own.format === undefined) && String(about ?? name).match(/text|content|body|query|code|message/i)) {
    control = html`<textarea id=${id} rows="2" value=${value} onInput=${input} aria-describedby=${described}></textarea>`;
  } else {
    control = html`<input id=${id} type="text" inputmode=${kind === 'string' ? undefined : 'decimal'} autocomplete="off" value=${value} onInput=${input} aria-describedby=${described} />`;
  }
  return html`<div class="field"><label for=${id}>${title}${required ? html` <span class="dim">required</span>` : null}</label>${control}
    ${about ? html`<div class="dim small" id=${described}>${plain(about).slice(0, 600)}</div>` : null}</div>`;
}
