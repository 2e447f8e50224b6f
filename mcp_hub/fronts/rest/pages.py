"""Public pages without data: where things are, and the REST API, also as an OpenAPI 3.1 document."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from html import escape
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_hub.errors import StoreUnavailable
from mcp_hub.fronts.http.admission import read_body
from mcp_hub.fronts.http.response import ClientGone
from mcp_hub.fronts.rest.exchange import answer
from mcp_hub.fronts.rest.routes import ROUTES, RestRoute
from mcp_hub.protocol.rest.calls import ProblemBody
from mcp_hub.types import JsonObject

STYLE: Final = """
:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{margin:2rem 0 .4rem}h3{margin:1.4rem 0 .2rem}p{margin:.4rem 0}
code,pre{font:.9em ui-monospace,monospace}pre{padding:.6rem;white-space:pre-wrap;background:#8882;border-radius:6px}
details{margin:.3rem 0;border:1px solid #8885;border-radius:6px}
summary{padding:.45rem .7rem;cursor:pointer}details>div{padding:0 .7rem .6rem}
summary span{margin-left:.6rem}.errors{opacity:.7}
b{display:inline-block;min-width:4.2rem;font:600 .8em ui-monospace,monospace}
.get{color:#15803d}.post{color:#b45309}.put{color:#6d28d9}.delete{color:#b91c1c}
table{border-collapse:collapse;width:100%;margin:.4rem 0}
th,td{padding:.25rem .6rem .25rem 0;text-align:left;vertical-align:top;border-bottom:1px solid #8883}
th{font-weight:600;font-size:.85em;opacity:.75}td:first-child{white-space:nowrap}
@media(prefers-color-scheme:dark){.get{color:#4ade80}.post{color:#fbbf24}.put{color:#c4b5fd}.delete{color:#f87171}}
"""
_PLACES: Final = {
    "mcp": ("/mcp", "MCP over Streamable HTTP: the URL for clients"),
    "sse": ("/sse", "MCP over HTTP+SSE, for clients of 2024"),
    "rest": ("/v1", "REST API, for programs that do not speak MCP"),
    "docs": ("/v1/docs", "its description to read"),
    "openapi": ("/v1/openapi.json", "its description for programs"),
    "ready": ("/readyz", "whether the hub is ready; with ?verbose its servers"),
    "metrics": ("/metrics", "figures for Prometheus"),
}
_STYLE: Final = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "vary": "Accept",
}


_MOST_EVENT: Final = 272 << 10
"""Bytes of one event of a server's webhook, with what is around it."""


def event_posts(
    takes: Callable[[str], bool], receive: Callable[[str, Mapping[bytes, bytes], bytes], Awaitable[tuple[int, bytes]]]
) -> Mapping[str, Route]:
    """The addresses of servers' webhooks. `takes` says whether an id is known, before anything of a body is read."""

    async def post(request: Request) -> Response:
        id_ = request.scope["path"].rpartition("/")[2]
        try:
            is_known = takes(id_)
        except StoreUnavailable:
            return Response(b'{"error":"try again"}', 503, {"retry-after": "2"}, "application/json")
        if not is_known:
            return Response(b'{"error":"this webhook is unknown"}', 404, media_type="application/json")
        try:
            body = await read_body(request.receive, _MOST_EVENT)
        except ClientGone:
            return Response(status_code=400)
        if body is None:
            return Response(b'{"error":"the body is too long"}', 413, {"connection": "close"}, "application/json")
        status, answer_body = await receive(id_, dict(request.scope["headers"]), body)
        headers = {"retry-after": "2"} if status == 503 else {}
        return Response(answer_body, status, headers, "application/json")

    return {"/v1/events/in/{id}": Route("/v1/events/in/{id}", post, methods=["POST"])}


def routes() -> Mapping[str, Route]:
    """Pages by path."""
    paths = {"/": index, "/v1": index, "/v1/": index, "/v1/docs": _docs}
    return {path: Route(path, endpoint, methods=["GET"]) for path, endpoint in paths.items()}


async def index(request: Request) -> Response:
    """HTML for browsers, else JSON."""
    root = request.scope.get("root_path", "").rstrip("/")
    if "text/html" not in request.headers.get("accept", ""):
        response = answer({"name": "mcp-hub", **{name: root + path for name, (path, _) in _PLACES.items()}})
        response.headers["vary"] = "Accept"
        return response
    links = [
        (f'<a href="{escape(root + path)}">{path}</a>', escape(description)) for path, description in _PLACES.values()
    ]
    description = "<p>One MCP server in front of many. Clients connect to <code>/mcp</code>.</p>"
    return HTMLResponse(page("mcp-hub", f"<h1>mcp-hub</h1>{description}{table(('path', ''), links)}"), headers=_HEADERS)


async def _docs(request: Request) -> Response:
    document = msgspec.json.decode(openapi_document(""))
    return HTMLResponse(docs(document, request.scope.get("root_path", "").rstrip("/")), headers=_HEADERS)


# -- the description as a page: HTML and a style, nothing to run or to load

_CODE: Final = re.compile(r"`([^`]+)`")
_REFERENCE: Final = "#/components/schemas/"


def page(title: str, body: str) -> str:
    """A whole page."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>'


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Cells are HTML."""
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>{cells}</table>"


def docs(document: JsonObject, root: str) -> str:
    """Every route and shape; `root` is the mount's path."""
    routes = "".join(
        _section(path, method, operation)
        for path, by_method in document["paths"].items()
        for method, operation in by_method.items()
    )
    shapes = "".join(_shape(name, schema) for name, schema in document["components"]["schemas"].items())
    intro = (
        "<p>For programs that do not speak MCP. If the hub has tokens, every request needs "
        "<code>Authorization: Bearer …</code>. A POST needs <code>Content-Type: application/json</code>, or an "
        "<code>Authorization</code> or <code>X-MCP-Hub</code> header. Errors are <code>application/problem+json</code> "
        "with a stable <code>code</code>. "
        f'The same for programs: <a href="{escape(root)}/v1/openapi.json">OpenAPI 3.1</a>.</p>'
    )
    return page("mcp-hub: REST API", f"<h1>REST API</h1>{intro}{routes}<h2>Shapes</h2>{shapes}")


def _section(path: str, method: str, operation: JsonObject) -> str:
    parts = [f"<pre>{escape(_curl(path, method, operation))}</pre>"]
    if parameters := operation.get("parameters"):
        parts.append(table(("parameter", "in", "type", ""), map(_parameter, parameters)))
    if body := operation.get("requestBody"):
        parts.append(f"<p>Body: {_content(body['content'])}</p>")
    answers = {status: response for status, response in operation["responses"].items() if status < "4"}
    rows = [
        (status, _content(response.get("content", {})), _text(response["description"]))
        for status, response in answers.items()
    ]
    parts.append(table(("answer", "body", ""), rows))
    errors = ", ".join(status for status in operation["responses"] if status not in answers)
    parts.append(f'<p class="errors">Errors: {errors}</p>')
    head = f'<b class="{method}">{method.upper()}</b><code>{escape(path)}</code>'
    summary = f"<summary>{head}<span>{_text(operation['summary'])}</span></summary>"
    return f'<details id="{escape(operation["operationId"])}">{summary}<div>{"".join(parts)}</div></details>'


def _curl(path: str, method: str, operation: JsonObject) -> str:
    needed = [
        parameter["name"]
        for parameter in operation.get("parameters", ())
        if parameter["required"] and parameter["in"] == "query"
    ]
    query = f"?{'&'.join(f'{name}=…' for name in needed)}" if needed else ""
    line = f'curl -H "Authorization: Bearer $TOKEN" "$HUB{path}{query}"'
    if method == "get":
        return line
    line = f"curl -X {method.upper()}{line.removeprefix('curl')}"
    if method == "delete":
        return line
    return f"{line} -H 'Content-Type: application/json'" + (" -d '{…}'" if "requestBody" in operation else "")


def _parameter(parameter: JsonObject) -> tuple[str, ...]:
    needed = ["required"] if parameter["required"] and parameter["in"] != "path" else []
    text = "; ".join([*needed, *([parameter["description"]] if "description" in parameter else [])])
    return f"<code>{escape(parameter['name'])}</code>", parameter["in"], _type(parameter["schema"]), _text(text)


def _content(content: Mapping[str, JsonObject]) -> str:
    return "<br>".join(
        f"<code>{escape(media)}</code> {_type(content_type['schema']) if content_type.get('schema') else ''}"
        for media, content_type in content.items()
    )


def _shape(name: str, schema: JsonObject) -> str:
    needed = schema.get("required", [])
    rows = [
        (f"<code>{escape(key)}</code>", _type(member), "required" if key in needed else "")
        for key, member in schema.get("properties", {}).items()
    ]
    text = "".join(f"<p>{_text(part)}</p>" for part in schema.get("description", "").split("\n\n"))
    return f'<h3 id="shape-{escape(name)}">{escape(name)}</h3>{text}{table(("member", "type", ""), rows)}'


def _type(schema: JsonObject) -> str:
    if reference := schema.get("$ref"):
        name = escape(reference.removeprefix(_REFERENCE))
        return f'<a href="#shape-{name}">{name}</a>'
    if choice := schema.get("anyOf"):
        return " or ".join(map(_type, choice))
    if values := schema.get("enum"):
        return " | ".join(f"<code>{escape(str(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    return escape(schema.get("type", "anything"))


def _text(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))


_PUBLISHED: Final = {"StreamStatus": "StreamInfo", "StreamPage": "EventPage"}
"""Names of components that are not those of the classes: clients are generated from the document."""
_EVERYWHERE: Final = (401, 403, 405, 421, 429, 503)
"""Problems of any route: authentication, a wrong method, a limit, a hub that stops."""
_NAME: Final = re.compile(r"{(\w+)}")
_IN_PATH: Final = {"type": "string", "minLength": 1}


def openapi_document(version: str) -> bytes:
    """The OpenAPI 3.1 document of a hub's version."""
    shapes = sorted(
        {route.body for route in ROUTES if route.body is not None}
        | {form for route in ROUTES for answer in route.answers for form in answer.forms.values() if form is not None}
        | {ProblemBody},
        key=lambda shape: shape.__name__,
    )
    references, schemas = msgspec.json.schema_components(shapes, ref_template=_REFERENCE + "{name}")
    for name, published in _PUBLISHED.items():
        schemas[published] = {**schemas.pop(name), "title": published}
    refer = dict(zip(shapes, references, strict=True))
    paths: dict[str, JsonObject] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refer)
    described = msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "mcp-hub", "version": version},
            "paths": paths,
            "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
            "security": [{}, {"token": []}],
        }
    )
    for name, published in _PUBLISHED.items():
        described = described.replace(_quoted(name), _quoted(published))
    return described


def _quoted(name: str) -> bytes:
    return msgspec.json.encode(_REFERENCE + name)


def _operation(route: RestRoute, refer: dict[type, JsonObject]) -> JsonObject:
    responses: JsonObject = {str(answer.status): answer.described(refer) for answer in route.answers}
    for status in sorted({*route.problems, *_EVERYWHERE}):
        content = {"application/problem+json": {"schema": refer[ProblemBody]}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    operation: JsonObject = {"operationId": route.operation, "summary": route.summary, "responses": responses}
    if parameters := [
        *({"name": name, "in": "path", "required": True, "schema": _IN_PATH} for name in _NAME.findall(route.path)),
        *(each.described() for each in route.parameters),
    ]:
        operation["parameters"] = parameters
    if route.body is not None:
        text: JsonObject = {} if route.text is None else {route.text: {"schema": {"type": "string"}}}
        operation["requestBody"] = {"content": {"application/json": {"schema": refer[route.body]}, **text}}
    return operation
