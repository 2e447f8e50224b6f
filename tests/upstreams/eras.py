"""Which era a request belongs to, what that era refuses, and what its results look like on the wire.

Specification: 2026-07-28 basic/index (`_meta`), basic/versioning; 2025-11-25 basic/lifecycle.
"""

import json
import threading
from dataclasses import dataclass, field
from typing import Any, Protocol

HANDSHAKE = "handshake"
MODERN = "modern"
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
UNSUPPORTED_VERSION = -32022

PREFIX = "io.modelcontextprotocol/"
VERSION = PREFIX + "protocolVersion"
CAPABILITIES = PREFIX + "clientCapabilities"
LOG_LEVEL = PREFIX + "logLevel"
SERVER_INFO = PREFIX + "serverInfo"
SUBSCRIPTION_ID = PREFIX + "subscriptionId"

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

ONLY_HANDSHAKE = {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
ONLY_HANDSHAKE |= {"tasks/result", "tasks/list"}
ONLY_MODERN = {"server/discover", "subscriptions/listen", "tasks/update"}
CACHEABLE = {
    *("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"),
    "resources/read",
}


class RpcError(Exception):
    """A JSON-RPC error answer; `data` is left out when it is None."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


class Channel(Protocol):
    """Where messages go: the one pipe, the stream of one POST, the stream of a session."""

    def send(self, message: dict[str, Any], answered: "Request | None" = None) -> None:
        """Send from any thread; `answered` is the request whose result this is."""

    def raw(self, data: bytes) -> None:
        """Send these bytes, which need be no message, in place of the answer."""


@dataclass
class Request:
    """One request in flight; `cancelled` is set when its client gives it up. What belongs to it goes to `channel`."""

    id: Any
    method: str
    params: dict[str, Any]
    channel: Channel
    era: str = HANDSHAKE
    headers: dict[str, str] = field(default_factory=dict)
    """Of HTTP, by lower-case name."""
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}


def key_of(request_id: Any) -> str:
    """Key of an id in a dict: 1 and "1" are different requests."""
    return json.dumps(request_id)


def supported(era: str) -> list[str]:
    """Versions that a server of this `--era` names in -32022 and in discovery, newest first."""
    handshake = [] if era == MODERN else list(reversed(HANDSHAKE_VERSIONS))
    return [*(() if era == HANDSHAKE else MODERN_VERSIONS), *handshake]


def era_of(request: Request, served: str, is_initialized: bool) -> str:
    """The era of this request on a server of era `served`.

    Raises: `RpcError` as that era asks: -32601, -32602 or -32022.
    """
    if served == HANDSHAKE or (served == "both" and (request.method == "initialize" or VERSION not in request.meta)):
        _check_handshake(request, is_initialized)
        return HANDSHAKE
    _check_envelope(request, served)
    return MODERN


def _check_handshake(request: Request, is_initialized: bool) -> None:
    if request.method in ONLY_MODERN:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")
    if not is_initialized and request.method not in ("initialize", "ping"):
        raise RpcError(INVALID_PARAMS, "Received request before initialization was complete")


def _check_envelope(request: Request, served: str) -> None:
    if request.method == "initialize":
        requested = request.params.get("protocolVersion", "")
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", _versions(served, requested))
    missing = [key for key in (VERSION, CAPABILITIES) if key not in request.meta]
    if missing:
        raise RpcError(INVALID_PARAMS, f"params._meta is missing {', '.join(missing)}")
    version = request.meta[VERSION]
    if not isinstance(version, str) or not isinstance(request.meta[CAPABILITIES], dict):
        raise RpcError(INVALID_PARAMS, "params._meta has a field of the wrong type")
    if version not in MODERN_VERSIONS:
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", _versions(served, version))
    if request.method in ONLY_HANDSHAKE:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")
    if request.meta.get(LOG_LEVEL, "info") not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"Unknown log level: {request.meta[LOG_LEVEL]!r}")


def _versions(served: str, requested: Any) -> dict[str, Any]:
    return {"supported": supported(served), "requested": requested}


def shaped(
    request: Request, result: dict[str, Any], server_info: dict[str, Any], hint: tuple[int, str]
) -> dict[str, Any]:
    """The result as the request's era has it; `hint` is (ttlMs, cacheScope)."""
    if request.era == HANDSHAKE:
        return result
    is_cacheable = request.method in CACHEABLE and "resultType" not in result
    caching = {"ttlMs": hint[0], "cacheScope": hint[1]} if is_cacheable else {}
    meta = {SERVER_INFO: server_info, **result.get("_meta", {})}
    return {"resultType": "complete", **caching, **result, "_meta": meta}
