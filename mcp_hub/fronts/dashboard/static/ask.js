// The page of a link: one question, shown and answered once, after a login with a token of the hub.
const KEY = 'mcp-hub-token';
const place = document.getElementById('ask');
const ticket = decodeURIComponent(location.hash.slice(1));
history.replaceState(null, '', location.pathname + location.search);

function element(name, text, options = {}) {
  const made = Object.assign(document.createElement(name), options);
  if (text) made.textContent = text;
  return made;
}

function show(title, ...parts) {
  const head = element('header');
  head.append(element('h1', title));
  const body = element('div', '', { className: 'body' });
  body.append(...parts);
  place.replaceChildren(head, body);
}

async function send(body) {
  const response = await fetch('ask/question', {
    method: 'POST', cache: 'no-store', body: JSON.stringify({ ticket, ...body }),
    headers: { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ''}`, 'content-type': 'application/json', 'x-mcp-hub': 'ask' },
  });
  if (response.ok) return response.status === 204 ? null : response.json();
  let problem = {};
  try { problem = await response.json(); } catch { /* not from the hub */ }
  throw Object.assign(new Error(problem.detail ?? `The hub answered ${response.status}.`), { status: response.status });
}

function login(problem = '') {
  const form = element('form', '', { className: 'form' });
  const field = element('div', '', { className: 'field' });
  const label = element('label', 'Your token', { htmlFor: 'token' });
  const input = element('input', '', { id: 'token', type: 'password', autocomplete: 'current-password', required: true });
  field.append(label, input);
  const user = element('input', '', { type: 'text', autocomplete: 'username', value: location.host, hidden: true });
  form.append(user, field, element('button', 'Log in', { className: 'go' }));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, input.value.trim());
    open();
  });
  show('A call waits for a person', element('p', 'Log in with the token of the principal that makes the call, or of an operator.'),
    ...(problem ? [element('p', problem, { role: 'alert' })] : []), form);
  input.focus();
}

const time = (seconds) => new Date(seconds * 1000).toLocaleString();

function facts(ask) {
  const list = element('dl', '', { className: 'facts' });
  const rows = [['Tool', ask.tool], ['Server', ask.server], ['For', ask.client ? `${ask.principal}, by ${ask.client}` : ask.principal], ['Asked', time(ask.at)], ['Until', time(ask.expires)], ['Rule', ask.rule]];
  for (const [name, value] of rows) list.append(element('dt', name), element('dd', value));
  return list;
}

function question(ask) {
  const buttons = element('div', '', { className: 'choices' });
  for (const [answer, text] of Object.entries(ask.choices)) {
    const button = element('button', text[0].toUpperCase() + text.slice(1), { type: 'button', className: { no: 'bad', yes: 'go' }[answer] ?? '' });
    button.addEventListener('click', () => give(answer, buttons));
    buttons.append(button);
  }
  show(`Call ${ask.tool}?`, facts(ask), element('h2', 'Arguments'), element('pre', ask.arguments, { className: 'out', tabIndex: 0 }), buttons);
}

async function give(answer, buttons) {
  for (const button of buttons.children) button.disabled = true;
  try {
    await send({ answer });
    show(answer === 'no' ? 'The call was refused' : 'The call goes to its server', element('p', 'You can close this page.'));
  } catch (error) {
    failed(error);
  }
}

function failed(error) {
  if (error.status === 401) login(sessionStorage.getItem(KEY) ? 'The hub does not accept this token.' : '');
  else if (error.status === 403) login(error.message);
  else if (error.status === 404) show('No call waits', element('p', error.message));
  else show('That did not work', element('p', error.message, { role: 'alert' }), Object.assign(element('button', 'Try again', { type: 'button' }), { onclick: open }));
}

async function open() {
  if (!ticket) return show('No call waits', element('p', 'This address is not whole: open it from the message again.'));
  if (!sessionStorage.getItem(KEY)) return login();
  try {
    question(await send({}));
  } catch (error) {
    failed(error);
  }
}

open();
