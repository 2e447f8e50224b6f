"""Every way into a hub over HTTP, as a second principal tries it with the ids of the first.

A route, method or tool that is new fails `test_principals.py` until it is listed here, with the request that would show
or change something of somebody else's.
"""

from typing import Any, Final

import msgspec

CANARY: Final = "canary-of-alice"


class Ids(msgspec.Struct):
    """What the first principal has. The ids of `UNKNOWN` were never given to anybody."""

    running: str
    ended: str
    asking: str
    question: str
    result: str
    session: str
    event: str
    sse: str
    executor: str
    call: str
    mine: str = "one"
    code: str = "000000"
    """Of a login that awaits it."""
    ticket: str = f"{0:032}.none"
    proof: str = f"{0:032}.never"

    @property
    def all(self) -> list[str]:
        return [self.running, self.ended, self.asking, self.session, self.sse, self.call, self.result, self.executor]


UNKNOWN: Final = Ids(
    running="st_00000000000000000000000000",
    ended="st_00000000000000000000000001",
    asking="st_00000000000000000000000002",
    question="q1",
    result="rs_0000000000000000",
    session="A" * 26,
    event="st_00000000000000000000000000:1",
    sse="B" * 26,
    executor="worker-0",
    call="tc_00000000000000000000000000",
    mine="two",
)

Ask = tuple[str, object, dict[str, str]]
"""Path, body, headers."""


def _stream(rest: str = "", body: object = None) -> list[Ask]:
    return [(f"/streams/{{{name}}}{rest}", body, {}) for name in ("running", "ended", "asking")]


_INPUT: Final = {"key": "{question}", "action": "accept", "content": {}}
_PRODUCER: Final = {"producer-epoch": "1", "producer-seq": "1"}
_TOOL: Final = {"name": "tool_{mine}", "inputSchema": {"type": "object"}}
_MODELS_CALL: Final = {"id": "k1", "type": "function", "function": {"name": "echo", "arguments": "{}"}}
MARK: Final = {"x-mcp-hub": "1"}

REST: Final[dict[str, list[Ask]]] = {
    # before calls of its own that have the ids of the first among their arguments
    "GET /v1/history": [("/history?details=1&principal=alice", None, {}), ("/history?limit=1000", None, {})],
    "DELETE /v1/history": [("/history", None, {})],
    "GET /v1/history/figures": [("/history/figures?span=7d", None, {})],
    "GET /v1/history/{id}": [("/history/{ended}", None, {})],
    "POST /v1/history/{id}/run": [("/history/{ended}/run", {}, {})],
    "POST /v1/code": [
        ("/code", {"code": "await hub_calls(id='{ended}')"}, {"idempotency-key": "k1"}),
        ("/code?again=1", {"code": "1", "again": True}, {}),
    ],
    "GET /v1/tools": [("/tools", None, {})],
    "GET /v1/tools/losses": [("/tools/losses?format=openai", None, {})],
    "POST /v1/search": [("/search", {"query": CANARY[:6]}, {})],
    "GET /v1/search": [("/search?q=run", None, {})],
    "GET /v1/resources": [("/resources", None, {})],
    "GET /v1/prompts": [("/prompts", None, {})],
    "GET /v1/tokens": [("/tokens", None, {})],
    "POST /v1/tools/{name}/call": [
        ("/tools/echo/call", {"arguments": {"text": "mine"}}, {"idempotency-key": "k1"}),
        ("/tools/echo/call", {"arguments": {"text": "mine"}}, {"idempotency-key": "k2"}),
        ("/tools/hub_calls/call", {"arguments": {"id": "{ended}"}}, {}),
        ("/tools/read_result/call", {"arguments": {"id": "{result}"}}, {}),
    ],
    "POST /v1/tools/call": [
        ("/tools/call?format=openai", [_MODELS_CALL], {})
    ],
    "GET /v1/prompted": [("/prompted?format=hermes", None, {})],
    "POST /v1/prompted": [("/prompted?format=hermes", {"text": "nothing"}, {})],
    "POST /v1/prompts/{name}/get": [("/prompts/none/get", {"arguments": {}}, {})],
    "POST /v1/resources/read": [("/resources/read", {"uri": "mcp-hub://result/{result}"}, {})],
    "GET /v1/events": [("/events", None, {}), ("/events?name=none&wait=0", None, {})],
    "GET /v1/streams": [("/streams?limit=1000", None, {})],
    "GET /v1/streams/{id}": _stream(),
    "DELETE /v1/streams/{id}": _stream(),
    "GET /v1/streams/{id}/events": [
        *_stream("/events?after=0&wait=0"),
        *((path, None, {"accept": "text/event-stream"}) for path, _, _ in _stream("/events")),
        *((path, None, {"accept": "application/x-ndjson"}) for path, _, _ in _stream("/events")),
    ],
    "POST /v1/streams/{id}/input": _stream("/input", _INPUT),
    "DELETE /v1/executors/{id}": [("/executors/{executor}", None, {})],
    "GET /v1/executors/{id}/calls": [("/executors/{executor}/calls?epoch=1&wait=0", None, MARK)],
    "POST /v1/tool-results/stream": [
        ("/tool-results/stream", {"tool_call_id": "{call}", "content": "forged", "complete": True}, {}),
        ("/tool-results/stream", {"tool_call_id": "{call}", "events": [], "complete": True}, _PRODUCER),
    ],
    "GET /v1/servers": [("/servers", None, {})],
    "GET /v1/servers/{name}": [("/servers/local", None, {})],
    "POST /v1/servers/{name}/restart": [("/servers/local/restart", {}, {})],
    "POST /v1/reload": [("/reload", {}, {})],
    "GET /v1/openapi.json": [("/openapi.json", None, {})],
    "GET /v1/accounts": [("/accounts", None, {}), ("/accounts?principal=alice", None, {})],
    "POST /v1/accounts/{server}/confirm": [("/accounts/own/confirm", {"code": "{code}"}, {})],
    "POST /v1/accounts/{server}/login": [("/accounts/own/login", {}, {})],
    "PUT /v1/accounts/{server}/values/{name}": [
        ("/accounts/own/values/KEY?principal=alice", {"value": "forged"}, {}),
        ("/accounts/own/values/KEY", {"value": "of-another"}, {}),
    ],
    "DELETE /v1/accounts/{server}": [("/accounts/own?principal=alice", None, {}), ("/accounts/own", None, {})],
    "PUT /v1/executors/{id}": [("/executors/{executor}", {"tools": [_TOOL]}, {})],  # then it has one of its own
}  # fmt: skip
"""Below `/v1`, and below `/api/v1` as far as the dashboard passes them on."""

OPERATES: Final = ("POST /v1/servers/{name}/restart", "POST /v1/reload", "DELETE /v1/history")

DASHBOARD: Final[dict[str, list[Ask]]] = {
    "GET /state": [("/state", None, {})],
    "GET /feed": [],  # is open during the whole walk
    "GET /clients": [("/clients", None, {})],
    "GET /installs": [("/installs", None, {})],
    "GET /tools": [("/tools", None, {})],
    "GET /settings": [("/settings", None, {})],
    "GET /approvals": [("/approvals", None, {})],
    "POST /approvals": [("/approvals", {"server": "local", "tool": "echo", "digest": "", "action": "reject"}, {})],
    "GET /asks": [("/asks", None, {})],
    "POST /asks": [
        ("/asks", {"id": "{running}", "answer": "once"}, {}),
        ("/asks", {"id": "{asking}", "answer": "once"}, {}),
    ],
    "POST /overrides": [("/overrides", {"servers": {"local": {"echo": {"hide": True}}}}, {})],
    "GET /server": [("/server?server=local", None, {})],
    "POST /login": [("/login", {"server": "local"}, {})],
    "GET /entry": [("/entry?server=local", None, {})],
    "POST /entry": [("/entry", {"server": "{mine}", "text": "url: http://127.0.0.1:9/mcp"}, {})],
    "POST /entry/check": [("/entry/check", {"server": "{mine}", "text": "url: http://127.0.0.1:9/mcp"}, {})],
    "GET /edits": [("/edits", None, {})],
    "POST /edits": [("/edits", {"server": "local", "action": "remove"}, {})],
    "GET /schema": [("/schema", None, {})],
    "GET /registry": [("/registry?q=x", None, {})],
    "GET /profiles": [("/profiles", None, {})],
    "GET /raw": [("/raw?server=local", None, {})],
    "POST /raw": [("/raw", {"server": "local", "action": "start"}, {})],
}
FOR_ALL: Final = {
    **dict.fromkeys(("GET /state", "GET /clients", "GET /tools", "GET /asks"), 200),
    "POST /asks": 404,
}
"""What everybody may ask, each for their own; everything else on the dashboard is for operators."""

PAGES: Final = (
    *("/", "/v1", "/v1/", "/v1/docs", "/livez", "/healthz", "/readyz", "/livez?verbose", "/healthz?verbose"),
    *("/readyz?verbose", "/metrics", "/metrics/"),
    *("/login/own?t={ticket}", "/login-callback/own?state={proof}&code=c", "/login-form/own", "/login-cancel/own"),
    *("/ask", "/ask/question"),
    "/mcp/server-card",
)  # fmt: skip
FRONTS: Final = ("/mcp", "/mcp/", "/sse", "/sse/", "/messages", "/messages/")
MOUNTS: Final = ("/v1/", "/api/")

FORMS: Final = ("/login/own", "/login-form/own", "/login-cancel/own")

_DELIVERY: Final = {"mode": "webhook", "url": "https://example.com/hook", "secret": "whsec_" + "A" * 32}
_CALL: Final[dict[str, list[dict[str, Any]]]] = {
    "tools/call": [
        {"name": "hub_calls", "arguments": {"id": "{running}"}},
        {"name": "hub_calls", "arguments": {"id": "{ended}"}},
        {"name": "hub_cancel", "arguments": {"stream": "{running}"}},
        {"name": "read_result", "arguments": {"id": "{result}"}},
        {"name": "find_tools", "arguments": {"query": CANARY[:6]}},
        {"name": "run_tool", "arguments": {"name": "hub_calls", "arguments": {"id": "{ended}"}}},
        {"name": "read_tool", "arguments": {"name": "read_result", "arguments": {"id": "{result}"}}},
    ],
    "prompts/get": [{"name": "none"}],
    "resources/read": [{"uri": "mcp-hub://result/{result}"}],
    "completion/complete": [{"ref": {"type": "ref/prompt", "name": "none"}, "argument": {"name": "a", "value": ""}}],
    "tools/list": [{}],
    "prompts/list": [{}],
    "resources/list": [{}],
    "resources/templates/list": [{}],
    "events/list": [{}],
    "events/poll": [{"name": "none", "cursor": "{running}.1"}],
    "events/stream": [{"name": "none", "cursor": "{running}.1"}],
    "events/subscribe": [{"name": "none", "delivery": _DELIVERY, "cursor": "{running}.1"}],
    "events/unsubscribe": [{"name": "none", "delivery": _DELIVERY}],
}
HANDSHAKE_METHODS: Final[dict[str, list[dict[str, Any]]]] = {
    **_CALL,
    "initialize": [{}],
    "ping": [{}],
    "logging/setLevel": [{"level": "debug"}],
    "resources/subscribe": [{"uri": "mcp-hub://result/{result}"}],
    "resources/unsubscribe": [{"uri": "mcp-hub://result/{result}"}],
    "dev.mcp-hub/streams.read": [{"stream": "{ended}"}],
}
MODERN_METHODS: Final[dict[str, list[dict[str, Any]]]] = {
    **_CALL,
    "skills/list": [{}],
    "skills/get": [{"name": "none"}],
    "resources/directory/read": [{"uri": "skill://none"}],
    "server/discover": [{}],
    "subscriptions/listen": [],  # is open during the whole walk
    "tasks/get": [{"taskId": "{running}"}, {"taskId": "{ended}"}, {"taskId": "{asking}"}],
    "tasks/update": [{"taskId": "{asking}", "inputResponses": {"{question}": {"action": "accept", "content": {}}}}],
    "tasks/cancel": [{"taskId": "{running}"}, {"taskId": "{asking}"}],
    "dev.mcp-hub/streams.read": [{"stream": "{running}"}, {"stream": "{ended}"}],
}
OWN_TOOLS: Final = frozenset({"hub_calls", "hub_cancel", "read_result", "find_tools", "run_tool", "read_tool"})


def filled(template: Any, ids: Ids) -> Any:
    """The template with the ids in place of their names."""
    if isinstance(template, dict):
        return {filled(key, ids): filled(value, ids) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(item, ids) for item in template]
    if isinstance(template, str):
        for name in Ids.__struct_fields__:
            template = template.replace(f"{{{name}}}", str(getattr(ids, name)))
    return template
