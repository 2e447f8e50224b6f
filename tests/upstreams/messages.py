"""JSON-RPC messages as tests write them, for both eras."""

from collections.abc import Mapping
from typing import Any

Message = dict[str, Any]
Params = Mapping[str, Any] | None
Id = str | int

MODERN_VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
CLIENT = {"name": "raw-client", "version": "1"}


def modern(
    params: Params = None,
    *,
    version: str = MODERN_VERSION,
    capabilities: Params = None,
    token: str | int | None = None,
    log_level: str | None = None,
    **meta: Any,
) -> Message:
    """Request params with the `_meta` envelope of 2026-07-28; `token` is the progressToken, `meta` goes in as it is."""
    given = dict(params or {})
    envelope: Message = {
        PREFIX + "protocolVersion": version,
        PREFIX + "clientInfo": CLIENT,
        PREFIX + "clientCapabilities": dict(capabilities or {}),
    }
    optional = {"progressToken": token, PREFIX + "logLevel": log_level}
    envelope |= {key: value for key, value in optional.items() if value is not None}
    return {**given, "_meta": {**envelope, **given.get("_meta", {}), **meta}}


def rpc(method: str, params: Params, **fields: Any) -> Message:
    """A request (with `id=`) or a notification."""
    body = {} if params is None else {"params": dict(params)}
    return {"jsonrpc": "2.0", **fields, "method": method, **body}
