// Runs the script of a page as a browser would: node browser.mjs PAGE ORIGIN '{"hub": …}' [CUT]
// fetch sends the origin, asks first where a browser asks, and hides an answer that the page may not read. The body of
// the first answer breaks off after CUT bytes. Prints what the page shows.
import { readFileSync } from "node:fs";

const [page, origin, fields, cut] = process.argv.slice(2);
const plain = new Set(["accept", "accept-language", "content-language", "range"]);
let cutAt = Number(cut ?? Infinity);

function allows(response) {
  return response.headers.get("access-control-allow-origin") === origin;
}

const network = globalThis.fetch;
globalThis.fetch = async (url, { method = "GET", headers = {}, body } = {}) => {
  const asked = Object.keys(headers).filter((name) => !plain.has(name));
  if (asked.length || !["GET", "POST"].includes(method)) {
    const preflight = await network(url, {
      method: "OPTIONS",
      headers: { origin, "access-control-request-method": method, "access-control-request-headers": asked.join(",") },
    });
    const may = (name) => preflight.headers.get(`access-control-allow-${name}`)?.toLowerCase().split(/, ?/) ?? [];
    const isAllowed = asked.every((name) => may("headers").includes(name)) && may("methods").includes(method.toLowerCase());
    if (!preflight.ok || !allows(preflight) || !isAllowed) throw new TypeError("the preflight was refused");
  }
  const response = await network(url, { method, headers: { ...headers, origin }, body });
  if (!allows(response)) throw new TypeError("the page may not read the answer");
  const limit = cutAt;
  cutAt = Infinity;
  return limit === Infinity ? response : new Response(response.body.pipeThrough(broken(limit)), response);
};

function broken(limit) {
  let passed = 0;
  return new TransformStream({
    transform(chunk, stream) {
      stream.enqueue(chunk.slice(0, limit - passed));
      passed += chunk.length;
      if (passed >= limit) stream.error(new TypeError("the connection was lost"));
    },
  });
}

let submit;
const form = { addEventListener: (_, listener) => (submit = listener) };
const output = { textContent: "" };
globalThis.document = { querySelector: (name) => ({ form, pre: output })[name] };
globalThis.FormData = class {
  [Symbol.iterator]() {
    return Object.entries(JSON.parse(fields))[Symbol.iterator]();
  }
};

const [, script] = readFileSync(page, "utf8").match(/<script type="module">(.*)<\/script>/s);
await import(`data:text/javascript,${encodeURIComponent(script)}`);
await submit({ preventDefault() {} });
process.stdout.write(output.textContent);
