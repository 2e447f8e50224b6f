// Tools and other texts that are not what was approved: the difference, approve; reject, for tools.
import { html, useState } from '../lib/ui.js';
import { ask } from '../lib/api.js';
import { plain, plural, quoted } from '../lib/format.js';
import { attempt, loadApprovals, operates, useStore } from '../lib/store.js';
import { Command } from '../lib/parts.js';

export function Changed({ isOpen, onDone }) {
  const { approvals } = useStore();
  if (!approvals.length) return null;
  return html`<details class="panel" open=${isOpen}><summary class="body"><span class="badge warn">${plural(approvals.length, 'text')} changed since the approval</span></summary>
    <div class="tbody free">${approvals.map((one) => html`<${Waiting} key=${`${one.server} ${one.tool} ${one.digest}`} one=${one} onDone=${onDone} />`)}</div></details>`;
}

const CLASS = { '+': 'add', '-': 'del' };

function Waiting({ one, onDone }) {
  const [busy, set] = useState(false);
  const judge = async (action, said) => {
    set(true);
    if (await attempt(() => ask('POST', 'approvals', { server: one.server, tool: one.tool, digest: one.digest, action }), said)) onDone();
    await loadApprovals();
    set(false);
  };
  return html`<article class="body raw"><div class="head"><h2>${plain(one.server)}: ${plain(one.tool)}</h2><span class="dim small">${plain(one.text)}${one.held ? ', held back' : ''}</span>
    ${operates() ? html`<div class="end"><button type="button" class="go" disabled=${busy || !one.digest} onClick=${() => judge('approve', `${one.tool} is approved.`)}>Approve</button>
      ${one.subject ? null : html`<button type="button" class="bad" disabled=${busy} onClick=${() => judge('reject', `${one.tool} is hidden.`)}>Reject and hide</button>`}</div>` : null}</div>
    ${one.flags?.length ? html`<div class="small"><span class="badge bad">suspicious</span>${one.flags.map((flag) => html`<p>${plain(flag)}</p>`)}</div>` : null}
    <pre class="diff" tabindex="0" aria-label=${`Difference of ${plain(one.tool)}`}>${(one.diff ?? []).map((line) => html`<div class=${/^\S/.test(line) ? 'top' : CLASS[line.trim()[0]] ?? ''}>${plain(line) || ' '}</div>`)}</pre>
    <${Command}>${`mcp-hub approve ${quoted(one.server)} ${quoted(one.tool)}`}<//></article>`;
}
