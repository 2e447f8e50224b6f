"""Tools whose answers, notifications and definitions are odd on purpose: what is relayed must arrive as it is.

JSON text in an argument goes out byte for byte, so it must be one line on stdio. A whole result: `raw` in `tools`.
"""

from typing import Any

from tests.upstreams.definitions import registering, text
from tests.upstreams.eras import Request
from tests.upstreams.instance import Result, Session, Tool
from tests.upstreams.wire import Raw, encode

TOOLS: dict[str, Tool] = {}
tool = registering(TOOLS)

Arguments = dict[str, Any]


@tool("Answers with exactly this text as the JSON-RPC error.", json="string")
def fails(session: Session, request: Request, arguments: Arguments) -> Result:
    session.fail(request, Raw(arguments["json"]))
    return None


@tool("Sends notifications/message with exactly this text as params, whatever the level, then answers.", json="string")
def logs_raw(session: Session, request: Request, arguments: Arguments) -> Result:
    session.notify("notifications/message", Raw(arguments["json"]), request.channel)
    return text("logged")


@tool(
    'Sends notifications/progress with exactly this text as params, "$TOKEN" replaced by the token, then answers.',
    json="string",
)
def progress_raw(session: Session, request: Request, arguments: Arguments) -> Result:
    """Nothing is sent where the request carries no token."""
    if "progressToken" in request.meta:
        token = encode(request.meta["progressToken"]).decode()
        session.notify("notifications/progress", Raw(arguments["json"].replace('"$TOKEN"', token)), request.channel)
    return text("progressed")


@tool("Answers with links to these URIs, and with these URIs embedded.", uris="array?", embedded="array?")
def links(session: Session, request: Request, arguments: Arguments) -> Result:
    linked = [{"type": "resource_link", "uri": uri, "name": f"link {uri}"} for uri in arguments.get("uris", ())]
    embedded = [
        {"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": f"text of {uri}"}}
        for uri in arguments.get("embedded", ())
    ]
    return {"content": [*linked, *embedded]}


@tool("Echoes; its definition has everything that a definition may have, and more.")
def odd(session: Session, request: Request, arguments: Arguments) -> Result:
    return text(arguments, structuredContent=arguments)


TOOLS["odd"].definition.update(
    title="Odd ✓\u2028",
    icons=[{"src": "data:image/png;base64,AAAA", "mimeType": "image/png", "sizes": ["48x48", "any"], "theme": "dark"}],
    annotations={"title": "Odd", "readOnlyHint": True, "openWorldHint": False, "x-unknown": {"deep": [1, None]}},
    inputSchema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "node": {"$anchor": "node", "type": "object", "properties": {"next": {"$ref": "#node"}}},
            "count": {"type": "integer", "maximum": 12345678901234567890123},
        },
        "properties": {
            "count": {"$ref": "#/$defs/count"},
            "tree": {"$ref": "#node"},
            "spelled": Raw(r'{"type":"number","minimum":1.50,"maximum":1E+2,"description":"\u0041\/"}'),
        },
        "additionalProperties": True,
        "x-unknown": [None, {"big": 2**80}],
    },
    outputSchema={"type": "object", "$defs": {"any": {"$anchor": "any"}}, "additionalProperties": {"$ref": "#any"}},
    _meta={"example.org/odd": {"nested": [1.5, None, True]}},
)
TOOLS["odd"].definition["x-unknown"] = {"tags": ["a", "b"], "big": -(2**70)}
