"""What no client should send, and how to send it."""

import json
from typing import Any

import httpx2

from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import MODERN

LIMIT = 200_000
ALICE, BOB = "alice-secret-token", "bob-secret-token"
TOKENS = [{"token": ALICE, "principal": "alice"}, {"token": BOB, "principal": "bob"}]
BOTH = "application/json, text/event-stream"
VERSION = "2026-07-28"


def line(id_: Any, method: str = "ping", **fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, **fields}).encode()


MALFORMED = {
    "text": b"hello",
    "cut": b'{"jsonrpc":"2.0","id":1,"method":"ping"',
    "nan": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "comma": b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
    "control": b'{"jsonrpc":"2.0","id":1,"method":"pi\x01ng"}',
    "two": line(1) + line(2),
    "deep": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}}",
    "invalid": b"\xff\xfe\x00",
}
INVALID = {
    "number": b"5",
    "string": b'"ping"',
    "null": b"null",
    "empty": b"{}",
    "foreign": b'{"hello":"world"}',
    "no-version": b'{"id":1,"method":"ping"}',
    "old-version": b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    "number-version": b'{"jsonrpc":2.0,"id":1,"method":"ping"}',
    "number-method": b'{"jsonrpc":"2.0","id":1,"method":7}',
    "null-method": b'{"jsonrpc":"2.0","id":1,"method":null}',
    "null-id": line(None),
    "float-id": line(1.5),
    "exponent-id": b'{"jsonrpc":"2.0","id":1e3,"method":"ping"}',
    "true-id": line(True),
    "object-id": line({"a": 1}),
    "array-id": line([1]),
    "no-method": b'{"jsonrpc":"2.0","id":1}',
    "array": b"[" + line(1) + b"]",
    "empty-array": b"[]",
}
BAD = {
    **{name: (raw, -32700) for name, raw in MALFORMED.items()},
    **{name: (raw, -32600) for name, raw in INVALID.items()},
}
PARAMS = {
    "array-params": ("tools/call", [1]),
    "string-params": ("tools/list", "x"),
    "number-meta": ("tools/list", {"_meta": 5}),
    "float-token": ("tools/call", {"name": "a_echo", "_meta": {"progressToken": 1.5}}),
    "no-name": ("tools/call", {}),
    "number-name": ("tools/call", {"name": 5}),
    "array-arguments": ("tools/call", {"name": "a_echo", "arguments": [1]}),
    "no-uri": ("resources/read", {}),
    "no-ref": ("completion/complete", {"argument": {"name": "x", "value": ""}}),
    "odd-ref": ("completion/complete", {"ref": {"type": "ref/odd"}, "argument": {"name": "x", "value": ""}}),
    "bad-level": ("logging/setLevel", {"level": "loud"}),
    "no-level": ("logging/setLevel", {}),
}


def headers_of(era: str, client: HttpClient, method: str = "ping") -> dict[str, str | None]:
    if era == MODERN:
        return {"accept": BOTH, "mcp-protocol-version": VERSION, "mcp-method": method, "mcp-session-id": None}
    return {"accept": BOTH, "mcp-protocol-version": client.version, "mcp-session-id": client.session}


async def send(hub: Hub, method: str, headers: Any, body: bytes | None = None, path: str = "") -> httpx2.Response:
    """A request with exactly these headers (and those that HTTP itself needs)."""
    async with httpx2.AsyncClient(timeout=240, trust_env=False, verify=False) as client:
        for name in ("accept", "user-agent"):
            del client.headers[name]
        url = hub.url.removesuffix("/mcp") + path if path else hub.url
        return await client.request(method, url, headers=headers, content=body)


def bearer(token: str = ALICE, **headers: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", **{key.replace("_", "-"): value for key, value in headers.items()}}
