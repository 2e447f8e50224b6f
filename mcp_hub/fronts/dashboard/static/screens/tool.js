// One tool: its description and definition, and a form that calls it.
import { html, useState } from '../lib/ui.js';
import { ask, segment } from '../lib/api.js';
import { go, isShown, link } from '../lib/router.js';
import { member, plain, plural, quoted } from '../lib/format.js';
import { mayChange, operates, toast, useStore } from '../lib/store.js';
import { hints, useTools } from '../lib/tools.js';
import { SchemaForm } from '../lib/form.js';
import { Text } from '../lib/content.js';
import { Command, Docs, Empty, Panel } from '../lib/parts.js';
import { Listing } from './listing.js';

export function Tool({ name }) {
  const store = useStore();
  const { tools, overrides, problem, reload } = useTools();
  const [busy, setBusy] = useState(false);
  const [given, setGiven] = useState(null);
  const tool = tools?.find((one) => one.name === name);
  if (!tool) return html`<div class="screen"><h1>${plain(name)}</h1><${Empty}>${problem || (tools ? 'There is no tool of this name, or it is hidden.' : 'Loading…')}<//></div>`;
  const own = member(member(overrides, tool.server), tool.tool) ?? {};
  const listed = (isGone) => { reload(); if (isGone && isShown('tool', name)) go('tools', '', { server: tool.server }); };
  const call = async (values) => {
    setBusy(true);
    setGiven(values);
    try {
      const made = await ask('POST', `v1/tools/${segment(name)}/call`, { arguments: values }, { headers: { prefer: 'wait=0' } });
      if (isShown('tool', name)) go('stream', made.stream);
      else toast(`${plain(name)} was called: see Calls.`);
    } catch (error) {
      toast(error.message);
    }
    setBusy(false);
  };
  const command = `mcp-hub call ${quoted(name)}${given && Object.keys(given).length ? ` --args-json ${quoted(JSON.stringify(given))}` : ''}`;
  return html`<div class="screen"><div class="head"><h1>${plain(name)}</h1>${hints(tool.definition).map(([kind, text]) => html`<span class="tag ${kind}">${text}</span>`)}<${Docs} page="profiles.md" />
      <div class="end"><a class="button" href=${link('calls', '', { tool: name })}>Its calls</a></div></div>
    <div class="small dim">of server <a href=${link('server', tool.server)}>${plain(tool.server)}</a>${tool.tool === name ? '' : html`, there <code>${plain(tool.tool)}</code>`}, ${plural(tool.tokens, 'token')}${tool.pinned ? ', pinned' : ''}</div>
    <div class="two"><${Panel} title="Call it">
      <div class="body">${mayChange() ? html`<${SchemaForm} id="call" allowsEmpty=${true} schema=${tool.definition.inputSchema} action="Call" busy=${busy || !store.online} onSubmit=${call} />` : html`<p class="dim">This page is read-only (hub.http.dashboard: read).</p>`}
        <p></p><${Command}>${command}<//></div><//>
    <${Panel} title="Description"><div class="body"><${Text} text=${String(tool.definition.description ?? 'It has no description.')} label="Description" />
      <h3>Definition</h3><${Text} text=${JSON.stringify(tool.definition, null, 2)} label="Definition" /></div><//></div>
    ${operates() ? html`<${Listing} key=${JSON.stringify([tool.tool, own])} ...${{ tool, own }} onDone=${listed} />` : null}</div>`;
}
