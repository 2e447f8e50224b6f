// The steps that every JavaScript driver takes; the same as in steps.py, where their protocol is described.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const STEP_MS = 25_000;
export const ANSWER = "Zoë's answer ✓"; // as steps.py has it
export const ROOT = "file:///tmp/a-root-of-the-client";
const PROGRESS = 50;
const LARGE = 5_000_000;
// JSON.parse of JavaScript has no larger integers
const ECHOED = { text: 'naïve 日本 😀 \u2028 \\ "', big: Number.MAX_SAFE_INTEGER, float: 0.1, none: null };

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");

// packages are installed elsewhere than this file
export const packages = createRequire(process.argv[2] + "/any.js");

// A JSON-RPC error as the library told it.
export class Refused extends Error {
  constructor(code, message, data) {
    super(message);
    Object.assign(this, { code, data });
  }
}

// An answer that fits the flat schema of a form.
export function form(schema) {
  const byType = { integer: 7, number: 7.5, boolean: true };
  const value = (field) => field.enum?.[0] ?? byType[field.type] ?? ANSWER;
  return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, field]) => [name, value(field)]));
}

// A step saw something else than it should.
class Failed extends Error {}

function check(isTrue, otherwise) {
  if (!isTrue) throw new Failed(otherwise);
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

async function until(condition, ms) {
  const end = performance.now() + ms;
  while (!condition() && performance.now() < end) await sleep(20);
  return condition();
}

function journal(task) {
  const text = readFileSync(task.journal, "utf8");
  return text.slice(0, text.lastIndexOf("\n") + 1).split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

// -- the steps of one session

async function names(session, task) {
  const found = await session.names();
  const expected = {
    tools: ["echo", "progress", "wait_cancel", "big", "error", "add_tool"].map((tool) => task.prefix + tool),
    prompts: [`${task.prefix}greet`, `${task.prefix}fixed`],
    resources: [`test://${task.name}/readme`, `test://${task.name}/blob`, "test://shared/info"],
    templates: [`test://${task.name}/item/{id}`],
  };
  for (const [kind, wanted] of Object.entries(expected)) {
    const missing = wanted.filter((name) => !found[kind].includes(name));
    check(missing.length === 0, `${kind} lack ${missing}`);
    check(new Set(found[kind]).size === found[kind].length, `${kind} are listed twice: ${found[kind]}`);
  }
  return Object.keys(expected).map((kind) => `${found[kind].length} ${kind}`).join(", ");
}

async function echo(session, task, sent = { text: "hi" }) {
  const answer = await session.call(task.prefix + "echo", sent);
  check(same(answer.structured, sent), `came back as ${JSON.stringify(answer.structured)}`);
  check(same(JSON.parse(answer.text), sent) && !answer.isError, `came back as ${answer.text}`);
  return "";
}

const call = (session, task) => echo(session, task, ECHOED);

const range = (n) => Array.from({ length: n }, (_, i) => i + 1);

// The progress that the server sent: where servers are shared, the hub has messages of its own between (`of_server`).
function ofServer(values, task) {
  if (!task.shares) return values;
  const numbers = values.filter((value) => typeof value === "number");
  check(numbers.every((value, i) => i === 0 || numbers[i - 1] < value), `out of order: ${values}`);
  return values.filter((value) => typeof value !== "number" || (value >= 1 && Number.isInteger(value)));
}

async function progress(session, task) {
  const seen = [];
  const onprogress = (value) => seen.push(value);
  session.heard.length = 0;
  await session.call(task.prefix + "progress", { n: PROGRESS, nonce: "p" }, { onprogress });
  const inTime = ofServer(seen, task).length;
  if (!(await until(() => ofServer(seen, task).length >= PROGRESS, 500))) {
    const wasRead = same(ofServer(session.heard, task), [...range(PROGRESS), "result"]);
    const where = wasRead ? "all were read, in order, before the result" : `read: ${session.heard}`;
    throw new Failed(`${ofServer(seen, task).length} of ${PROGRESS} arrived; ${where}`);
  }
  check(same(ofServer(seen, task), range(PROGRESS)), `out of order: ${seen}`);
  check(inTime === PROGRESS, `${PROGRESS - inTime} of ${PROGRESS} were told after the result`);
  return "";
}

async function refused(session, task) {
  for (const code of [4242, -32603]) {
    const sent = { code, message: `no ${code} ✓`, data: { deep: [1, null] } };
    const answer = await session.call(task.prefix + "error", sent).catch((refusal) => refusal);
    check(answer instanceof Refused, `instead of an error: ${answer.stack ?? JSON.stringify(answer)}`);
    check(answer.message.endsWith(sent.message), `message ${answer.message}`);
    check(answer.code === code, `code ${answer.code} instead of ${code}`);
    check(same(answer.data, sent.data), `data ${JSON.stringify(answer.data)}`);
  }
  return "";
}

async function failed(session, task) {
  const answer = await session.call(task.prefix + "tool_error", { text: "no ✓" });
  check(answer.isError && answer.text === "no ✓", `isError came as ${JSON.stringify(answer)}`);
  return "";
}

async function error(session, task) {
  await refused(session, task);
  return failed(session, task);
}

async function large(session, task) {
  const answer = await session.call(task.prefix + "big", { bytes: LARGE });
  check(answer.text === "x".repeat(LARGE), `${answer.text.length} characters arrived`);
  return "";
}

const ask = (tool, expected) => async (session, task) => {
  const answer = await session.call(task.prefix + tool, {});
  check(!answer.isError && answer.text.includes(expected), `the server was told ${answer.text.slice(0, 300)}`);
  return "";
};

async function cancel(session, task) {
  const nonce = `cancel-${process.pid}`;
  const isCall = ({ received }) => received?.method === "tools/call" && received.params.arguments?.nonce === nonce;
  const isCancelled = ({ event, nonce: seen }) => event === "cancelled" && seen === nonce;
  const giveUp = new AbortController();
  const calling = session.call(task.prefix + "wait_cancel", { nonce }, { signal: giveUp.signal });
  const outcome = calling.then(() => "an answer", () => "an error");
  check(await until(() => journal(task).some(isCall), 10_000), "the call did not arrive");
  giveUp.abort();
  check((await outcome) === "an error", "a cancelled call was answered");
  check(await until(() => journal(task).some(isCancelled), 5000), "the server was not told");
  return echo(session, task);
}

// -- the deep checks, as in deep.py: they need the reference server, and a session that also has `news`,
// `prompt(name, args)`, `read(uri)`, `complete(prompt, argument, typed)`, `ping()`, `setLevel(level)` and
// `watch(uris, work)`, which does the work while it is subscribed

const WATCHED = "test://watched-resource";
const LOGGED = ["log first", "log second ✓", "log third"];
const TOGETHER = 20;
const NEWS_MS = 5000;
const QUIET_MS = 300;
export const TOOLS_CHANGED = "tools changed";
let grown = 0;

async function lists(session, task) {
  const listed = await session.names();
  const named = (names) => names.map((name) => task.prefix + name);
  const expected = {
    tools: named(["echo", "progress", "big", "ask_form", "test_simple_text"]),
    prompts: named(["test_simple_prompt", "test_prompt_with_arguments"]),
    resources: ["test://static-text", WATCHED],
    templates: ["test://template/{id}/data"],
  };
  for (const [kind, names] of Object.entries(expected)) {
    const missing = names.filter((name) => !listed[kind].includes(name));
    check(missing.length === 0, `${kind} lack ${missing}`);
    check(new Set(listed[kind]).size === listed[kind].length, `${kind} are listed twice: ${listed[kind]}`);
  }
  return Object.keys(expected).map((kind) => `${listed[kind].length} ${kind}`).join(", ");
}

async function prompt(session, task) {
  const text = await session.prompt(task.prefix + "test_prompt_with_arguments", { arg1: "å", arg2: "b" });
  check(text === "Prompt with arguments: arg1='å', arg2='b'", `it says ${text}`);
  return "";
}

async function read(session) {
  for (const [uri, part] of [["test://static-text", "static text"], ["test://template/7/data", "Data for ID: 7"]]) {
    const text = await session.read(uri);
    check(text.includes(part), `${uri} says ${text.slice(0, 200)}`);
  }
  return "";
}

async function complete(session, task) {
  const values = await session.complete(task.prefix + "test_prompt_with_arguments", "arg1", "par");
  check(same(values, ["paris", "park", "party"]), `it proposes ${values}`);
  return "";
}

async function log(session, task) {
  await session.setLevel("info");
  session.news.length = 0;
  await session.call(task.prefix + "log", {});
  const logged = () => session.news.filter((text) => text.startsWith("log "));
  await until(() => logged().length >= LOGGED.length, NEWS_MS);
  check(same(logged(), LOGGED), `it heard ${session.news}`);
  return "";
}

async function changed(session, task) {
  const name = `grown_${++grown}`;
  await session.watch([], async () => {
    session.news.length = 0;
    const before = (await session.names()).tools;
    check(!before.includes(task.prefix + name), "it was listed before");
    await session.call(task.prefix + "grow", { name });
    check(await until(() => session.news.includes(TOOLS_CHANGED), NEWS_MS), `it heard ${session.news}`);
    const after = (await session.names()).tools;
    const counts = `${before.length} before, ${after.length} after`;
    check(after.includes(task.prefix + name), `the new tool is not listed: ${counts}`);
    const answer = await session.call(task.prefix + name, { a: 1 });
    check(!answer.isError, `the new tool answers ${JSON.stringify(answer)}`);
  });
  return "";
}

// Changes the resource, and reads what was written.
async function touch(session, task) {
  const { text: count } = await session.call(task.prefix + "touch", {});
  const text = await session.read(WATCHED);
  check(text === `touched ${count} times`, `a read after the ${count}th change says ${text}`);
}

async function updates(session, task) {
  const update = `updated ${WATCHED}`;
  await session.watch([WATCHED], async () => {
    for (let i = 0; i < 2; i++) {
      session.news.length = 0;
      await touch(session, task);
      check(await until(() => session.news.includes(update), NEWS_MS), `it heard ${session.news}`);
    }
    const heard = session.news.filter((text) => text === update).length;
    check(heard === 1, `one change was announced ${heard} times`);
  });
  session.news.length = 0;
  await touch(session, task);
  check(!(await until(() => session.news.includes(update), QUIET_MS)), "an update came after it unsubscribed");
  return "";
}

async function written(session, task) {
  for (let i = 0; i < 3; i++) await touch(session, task);
  return "";
}

async function unknown(session, task) {
  const answer = await session.call(task.prefix + "no_such_tool", {}).catch((refusal) => refusal);
  if (answer instanceof Error) {
    check(answer instanceof Refused && answer.code === -32602, `code ${answer.code}: ${answer.stack}`);
    check(answer.message.includes("no_such_tool"), `message ${answer.message}`);
  } else {
    check(answer.isError && answer.text.includes("no_such_tool"), `a call of it brings ${JSON.stringify(answer)}`);
  }
  return "";
}

async function ping(session) {
  for (let i = 0; i < 3; i++) await session.ping();
  return "";
}

async function together(session, task) {
  const sent = range(TOGETHER).map((number) => ({ number, delay: (TOGETHER - number) / 100 }));
  await Promise.all(sent.map((args) => echo(session, task, args)));
  return "";
}

// -- steps with sessions of their own

async function using(connect, task, target, work) {
  const session = await connect(task, target);
  try {
    return await work(session);
  } finally {
    await session.close();
  }
}

async function again(connect, task) {
  for (let i = 0; i < 2; i++) await using(connect, task, task.target, (session) => echo(session, task));
  return "";
}

async function restart(connect, task) {
  let isRestarted = false;
  await using(connect, task, task.target, async (session) => {
    await echo(session, task);
    say({ want: "restart" });
    isRestarted = !(await lines.next()).done;
  }).catch(() => undefined); // what the library makes of the old one is not judged, as long as it ends
  check(isRestarted, "it did not come to a restart");
  return using(connect, task, task.target, (session) => echo(session, task));
}

async function resume(connect, task) {
  const { target, marker, delay } = task.resume;
  const seen = [];
  await using(connect, task, target, async (session) => {
    const onprogress = (value) => seen.push(value);
    const answer = await session.call(task.prefix + "progress", { n: PROGRESS, nonce: marker, delay }, { onprogress });
    check(JSON.parse(answer.text).n === PROGRESS, `answered ${answer.text}`);
    await until(() => seen.length >= PROGRESS, 2000);
  });
  check(same(seen, range(PROGRESS)), `progress: ${seen}`);
  return "";
}

async function moved(connect, task) {
  const { tool, arguments: args } = task.moved;
  await using(connect, task, task.target, async (session) => {
    const answer = await session.call(tool, args);
    check(same(JSON.parse(answer.text), args) && !answer.isError, `answered ${answer.text}`);
  });
  return "";
}

const SESSION_STEPS = {
  list: names,
  call,
  progress,
  error,
  large,
  elicit: ask("ask_form", ANSWER),
  sample: ask("ask_sampling", ANSWER),
  roots: ask("ask_roots", ROOT),
  cancel,
  lists,
  prompt,
  read,
  complete,
  log,
  changed,
  updates,
  written,
  refused,
  failed,
  unknown,
  ping,
  together,
};
const OWN_STEPS = { reconnect: again, restart, resume, moved };

// Do the first step of `rest`, say how it went and take it off; whether it went well.
async function report(rest, work) {
  const begun = performance.now();
  const timer = new AbortController();
  const tooLong = sleep(STEP_MS, undefined, { signal: timer.signal }).then(() => {
    throw new Failed(`not done in ${STEP_MS / 1000} s`);
  });
  let ok = true;
  let detail;
  try {
    detail = await Promise.race([work(), tooLong]);
  } catch (wrong) {
    [ok, detail] = [false, wrong.message];
    if (!(wrong instanceof Failed || wrong instanceof Refused)) console.error(wrong);
  }
  timer.abort();
  tooLong.catch(() => undefined);
  say({ step: rest.shift(), ok, detail, ms: Math.round(performance.now() - begun) });
  return ok;
}

// Take steps off `rest` on one session until one fails; all of them if no session can be had.
async function oneSession(connect, task, rest) {
  const opened = [];
  const open = async () => {
    opened.push(await connect(task, task.target));
    const { server, version } = opened[0];
    check(version === task.expect.version, `it speaks ${version}`);
    check(server === task.expect.server, `it is ${server}`);
    return version;
  };
  // a session that is opened anew for the next step counts into that step's time
  let ok = rest[0] !== "connect" || (await report(rest, open));
  while (ok && rest.length > 0) {
    ok = await report(rest, async () => {
      if (opened.length === 0) await open();
      return SESSION_STEPS[rest[0]](opened[0], task);
    });
  }
  if (opened.length === 0) {
    while (rest.length > 0) await report(rest, () => Promise.reject(new Failed("no session could be had")));
    return;
  }
  await Promise.race([opened[0].close(), sleep(STEP_MS, undefined, { ref: false })]).catch(console.error);
}

// Read the task, take its steps, say how each went. `connect(task, target)` opens a session:
// `{ server, version, names(), call(tool, args, { onprogress, signal }), close() }`.
export async function main(connect) {
  const task = JSON.parse((await lines.next()).value);
  const rest = task.steps.filter((step) => !(step in OWN_STEPS));
  while (rest.length > 0) await oneSession(connect, task, rest);
  const own = task.steps.filter((step) => step in OWN_STEPS);
  while (own.length > 0) await report(own, () => OWN_STEPS[own[0]](connect, task));
  say({ end: true });
  process.stdin.destroy(); // or it would be waited for
  setTimeout(() => process.exit(0), 2000).unref();
}
