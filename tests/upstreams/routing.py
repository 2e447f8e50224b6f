"""The headers that a modern HTTP request must mirror from its body.

Specification: 2026-07-28 basic/transports/streamable-http, "Request Metadata".
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from tests.upstreams.eras import VERSION

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
NAMED_BY |= dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
START, END = "=?base64?", "?="


def mismatch(headers: Mapping[str, str], message: Mapping[str, Any], schema: Any) -> str | None:
    """What is wrong with the headers of this request, if anything; `schema` is the input schema of the tool called."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    expected = {
        "mcp-protocol-version": meta.get(VERSION) if isinstance(meta, dict) else None,
        "mcp-method": message["method"],
    }
    if message["method"] in NAMED_BY:
        expected["mcp-name"] = params.get(NAMED_BY[message["method"]])
    for name, value in expected.items():
        if not isinstance(value, str) or _decoded(headers.get(name)) != value:
            return f"{name} is {headers.get(name)!r}, the body says {value!r}"
    if message["method"] == "tools/call":
        for name, value in _mirrored(schema, params.get("arguments")):
            if _decoded(headers.get(name)) != value:
                return f"{name} is {headers.get(name)!r}, the body says {value!r}"
    return None


def _decoded(value: str | None) -> str | None:
    if value is None or not (value.startswith(START) and value.endswith(END)):
        return value
    try:
        return base64.b64decode(value[len(START) : -len(END)], validate=True).decode()
    except ValueError:
        return None


def _mirrored(schema: Any, arguments: Any) -> Iterator[tuple[str, str | None]]:
    """The header of each property that has one, and the value it must have: None where it must be absent."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for key, inner in (properties if isinstance(properties, dict) else {}).items():
        value = arguments.get(key) if isinstance(arguments, dict) else None
        if isinstance(inner, dict) and "x-mcp-header" in inner:
            spelled = str(value).lower() if isinstance(value, bool) else str(value)
            yield f"mcp-param-{inner['x-mcp-header'].lower()}", None if value is None else spelled
        yield from _mirrored(inner, value)
