// A question of a tool, with a form for its answer.
import { html, useState } from '../lib/ui.js';
import { ask as send, segment } from '../lib/api.js';
import { plain } from '../lib/format.js';
import { loadAsks } from '../lib/asks.js';
import { attempt, mayChange } from '../lib/store.js';
import { SchemaForm } from '../lib/form.js';
import { Text } from '../lib/content.js';

export function Question({ id, question }) {
  const [busy, setBusy] = useState(false);
  const answer = async (body) => {
    setBusy(true);
    if (!(await attempt(() => send('POST', `v1/streams/${segment(id)}/input`, { key: question.key, ...body }), 'The answer is passed on.'))) setBusy(false);
  };
  const params = question.params ?? {};
  const Form = question.method === 'elicitation/create' ? Elicitation : question.method === 'sampling/createMessage' ? Sampling : Other;
  return html`<section class="panel" aria-label="Question of the tool"><header><span class="badge warn">the tool asks</span><span class="dim small">${plain(question.method)}</span></header>
    <div class="body">${mayChange() ? html`<${Form} ...${{ params, answer, busy, id: question.key }} />` : html`<p>${plain(params.message ?? '')}</p><p class="dim">This page is read-only.</p>`}</div></section>`;
}

// A call that waits for a yes, with what would be sent.
export function Asked({ ask }) {
  const [busy, setBusy] = useState(false);
  const give = async (answer) => {
    setBusy(true);
    if (!(await attempt(() => send('POST', 'asks', { id: ask.id, answer }), answer === 'no' ? 'The call was refused.' : 'The call goes to its server.'))) setBusy(false);
    loadAsks();
  };
  const may = ask.may_answer && mayChange();
  return html`<section class="panel" aria-label="A call waits for a yes"><header><span class="badge warn">waits for a yes</span><span class="dim small">${plain(ask.rule)}</span></header>
    <div class="body"><p>${plain(ask.tool)} of ${plain(ask.server)}, for ${plain(ask.principal)}${ask.client ? ` by ${plain(ask.client)}` : ''}. No answer until ${new Date(ask.expires * 1000).toLocaleString()} is no.</p>
      <${Text} text=${ask.arguments} label="Arguments" />
      ${may ? html`<div class="head answers">${Object.entries(ask.choices).map(([answer, text]) => html`<button key=${answer} type="button" class=${{ no: 'bad', yes: 'go' }[answer] ?? ''} disabled=${busy} onClick=${() => give(answer)}>${text[0].toUpperCase() + text.slice(1)}</button>`)}</div>`
        : html`<p class="dim">${ask.may_answer ? 'This page is read-only.' : 'It waits for somebody else: an operator, or who has got its link.'}</p>`}</div></section>`;
}

const others = (answer, busy) => html`<button type="button" disabled=${busy} onClick=${() => answer({ action: 'decline' })}>Decline</button>
  <button type="button" disabled=${busy} onClick=${() => answer({ action: 'cancel' })}>Cancel the question</button>`;

function Elicitation({ params, answer, busy, id }) {
  if (params.mode === 'url' || params.url) {
    const isWeb = /^https?:\/\//.test(params.url ?? '');
    return html`<p>${plain(params.message ?? '')}</p><p>The tool wants you to visit: ${isWeb ? html`<a href=${params.url} target="_blank" rel="noopener noreferrer">${plain(params.url)}</a>` : html`<code>${plain(params.url)}</code>`}</p>
      <div class="head"><button class="go" type="button" disabled=${busy} onClick=${() => answer({ action: 'accept' })}>I was there</button>${others(answer, busy)}</div>`;
  }
  return html`<p>${plain(params.message ?? '')}</p><${SchemaForm} id=${`answer-${id}`} schema=${params.requestedSchema ?? {}} action="Answer" busy=${busy} onSubmit=${(content) => answer({ action: 'accept', content })} extra=${others(answer, busy)} />`;
}

function Sampling({ params, answer, busy, id }) {
  const [text, set] = useState('');
  const send = (event) => {
    event.preventDefault();
    answer({ result: { role: 'assistant', content: { type: 'text', text }, model: 'human', stopReason: 'endTurn' } });
  };
  return html`<p>The tool wants a model to continue this:</p><${Text} text=${JSON.stringify(params.messages ?? params, null, 2)} label="Messages" />
    <form class="form" onSubmit=${send}><div class="field"><label for=${`sample-${id}`}>Your text in place of the model's</label><textarea id=${`sample-${id}`} rows="4" value=${text} onInput=${(event) => set(event.target.value)}></textarea></div>
      <div class="head"><button class="go" disabled=${busy || !text}>Answer</button><button type="button" disabled=${busy} onClick=${() => answer({ error: { code: -1, message: 'refused by a person' } })}>Refuse</button></div></form>`;
}

function Other({ params, answer, busy, id }) {
  const [text, set] = useState('{"roots": []}');
  const send = (event) => {
    event.preventDefault();
    attempt(() => answer({ result: JSON.parse(text) }));
  };
  return html`<${Text} text=${JSON.stringify(params, null, 2)} label="Question" /><form class="form" onSubmit=${send}>
    <div class="field"><label for=${`other-${id}`}>Result as JSON</label><textarea id=${`other-${id}`} rows="3" value=${text} onInput=${(event) => set(event.target.value)}></textarea></div>
    <div class="head"><button class="go" disabled=${busy}>Answer</button><button type="button" disabled=${busy} onClick=${() => answer({ error: { code: -1, message: 'refused by a person' } })}>Refuse</button></div></form>`;
}
