// Without a token: how to get one.
import { html, useState } from '../lib/ui.js';
import { setToken } from '../lib/api.js';
import { Command } from '../lib/parts.js';
import { run, store, changed } from '../lib/store.js';

export function Login({ problem, provider }) {
  const [token, set] = useState('');
  const enter = (event) => {
    event.preventDefault();
    setToken(token.trim());
    Object.assign(store, { phase: 'loading', problem: '' });
    changed();
    run();
  };
  return html`<main class="login panel"><header><h1>mcp-hub</h1></header><div class="body">
    ${provider ? html`<p>This page is for people of your organisation.</p><div><a class="button go" href="dashboard/login">Log in</a></div>
      <p class="dim small">Without an account there, use a token:</p>` : null}
    <p>${provider ? null : 'This page needs a token. '}The easiest way to get one, on the machine of the hub:</p>
    <${Command}>mcp-hub open<//>
    <p class="dim small">It opens this page with the operator token of the hub. If the hub was started again since, run it again.</p>
    <form class="form" onSubmit=${enter}>
      <div class="field"><label for="token">Or a token of hub.tokens</label>
        <input id="token" type="password" autocomplete="off" value=${token} onInput=${(event) => set(event.target.value)} /></div>
      ${problem ? html`<p role="alert" class="small">${problem}</p>` : null}
      <div><button class="go" disabled=${!token.trim()}>Continue</button></div>
    </form></div></main>`;
}
