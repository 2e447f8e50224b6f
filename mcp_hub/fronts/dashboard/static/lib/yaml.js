// Completion for the YAML of a server's entry, from the JSON Schema: the keys or words that fit where the cursor is.
import { member } from './format.js';

const MOST = 12;

// The schemas that a schema stands for: references followed, choices taken apart.
function parts(schema, root, depth = 0) {
  if (!schema || depth > 8) return [];
  const target = typeof schema.$ref === 'string' ? member(root.$defs, schema.$ref.replace('#/$defs/', '')) : null;
  const inner = [...(target ? [target] : []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [schema, ...inner.flatMap((one) => parts(one, root, depth + 1))];
}

// The schema below a key.
function below(schemas, key) {
  return schemas.flatMap((one) => [member(one.properties, key), member(one.properties, key) === undefined ? one.additionalProperties : null])
    .filter((one) => one && typeof one === 'object');
}

// The keys around a line, from the outermost, by their indentation.
function around(lines, at, indent) {
  const keys = [];
  let left = indent;
  for (let n = at - 1; n >= 0 && left > 0; n--) {
    const found = /^(\s*)(?:"((?:[^"\\]|\\.)*)"|([^\s#:][^:]*)):/.exec(lines[n]);
    if (!found || found[1].length >= left) continue;
    left = found[1].length;
    keys.unshift(found[2] ?? found[3]);
  }
  return keys;
}

const words = (schemas) => schemas.flatMap((one) => [...(one.enum ?? []), ...('const' in one ? [one.const] : []), ...(one.type === 'boolean' ? [true, false] : [])]);

// {from, options: [{text, insert, about}]} for the text and a position; null if nothing fits.
export function complete(root, text, position) {
  if (!root) return null;
  const before = text.slice(0, position), lines = text.split('\n');
  const at = before.split('\n').length - 1, line = before.slice(before.lastIndexOf('\n') + 1);
  const key = /^(\s*)([\w-]*)$/.exec(line), value = /^(\s*)([\w-]+):\s+([\w-]*)$/.exec(line);
  if (!key && !value) return null;
  const indent = (key ?? value)[1].length;
  const path = around(lines, at, indent);
  let schemas = parts(root, root);
  for (const one of value ? [...path, value[2]] : path) schemas = below(schemas, one).flatMap((inner) => parts(inner, root));
  const typed = (key ? key[2] : value[3]).toLowerCase();
  const names = key ? [...new Set(schemas.flatMap((one) => Object.keys(one.properties ?? {})))] : [...new Set(words(schemas).filter((one) => one !== null).map(String))];
  const there = new Set(lines.filter((other, n) => n !== at && other.startsWith(' '.repeat(indent))).map((other) => /^([\w-]+):/.exec(other.slice(indent))?.[1]));
  const options = names.filter((name) => name.toLowerCase().startsWith(typed) && name.toLowerCase() !== typed && !(key && there.has(name)))
    .sort().slice(0, MOST).map((name) => ({ text: name, insert: key ? `${name}: ` : name }));
  return options.length ? { from: position - typed.length, options } : null;
}
