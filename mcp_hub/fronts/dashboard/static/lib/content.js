// Results of tools: text as text, pictures of four kinds as pictures, everything else as JSON.
import { html, useEffect, useState } from './ui.js';
import { count, plain, plural } from './format.js';

const MOST = 16384; // characters that are shown at once
const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

export function Text({ text, label = 'Text' }) {
  const [shown, set] = useState(MOST);
  const part = plain(text.slice(0, shown));
  return html`<pre class="out" tabindex="0" aria-label=${label}>${part}</pre>
    ${text.length > shown ? html`<p class="small dim">${count(shown)} of ${count(text.length)} characters. <button class="plain" type="button" onClick=${() => set(shown + 16 * MOST)}>Show more</button></p>` : null}`;
}

function Picture({ data, type }) {
  const [url, set] = useState('');
  useEffect(() => {
    let made = '';
    try {
      const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
      made = URL.createObjectURL(new Blob([bytes], { type }));
      set(made);
    } catch { /* not base64 */ }
    return () => URL.revokeObjectURL(made);
  }, [data]);
  return url ? html`<img class="picture" src=${url} alt=${`Picture of the result, ${type}`} />` : html`<p class="dim">A picture that cannot be read.</p>`;
}

function Block({ block }) {
  if (block?.type === 'text') return html`<${Text} text=${String(block.text ?? '')} label="Text of the result" />`;
  if (block?.type === 'image' && PICTURES.includes(block.mimeType)) return html`<${Picture} data=${block.data} type=${block.mimeType} />`;
  if (block?.type === 'image' || block?.type === 'audio') return html`<p class="dim">${plain(block.mimeType ?? block.type)}, ${plural(String(block.data ?? '').length, 'character')} of Base64, not shown.</p>`;
  return html`<${Text} text=${JSON.stringify(block, null, 2)} label="Part of the result" />`;
}

export function Result({ result }) {
  const blocks = Array.isArray(result?.content) ? result.content : [];
  const { content, structuredContent, isError, _meta, ...rest } = result ?? {};
  return html`${isError ? html`<p><span class="badge bad">the tool says that it failed</span></p>` : null}
    ${blocks.slice(0, 200).map((block, at) => html`<${Block} key=${at} block=${block} />`)}
    ${structuredContent !== undefined ? html`<h3>Structured content</h3><${Text} text=${JSON.stringify(structuredContent, null, 2)} label="Structured content" />` : null}
    ${Object.keys(rest).length ? html`<${Text} text=${JSON.stringify(rest, null, 2)} label="The rest of the result" />` : null}
    ${!blocks.length && structuredContent === undefined && !Object.keys(rest).length ? html`<p class="dim">The result is empty.</p>` : null}`;
}
