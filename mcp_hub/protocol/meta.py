"""The reserved `_meta` keys: what the hub reads from a request and what it puts on one of its own.

Source: specification 2026-07-28, basic/index "_meta"; earlier revisions reserve `progressToken` only.
"""

from typing import Final

import msgspec

from mcp_hub.errors import InvalidParams
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.types import JsonObject, RawJson, RawObject

VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
PROGRESS_TOKEN: Final = "progressToken"
_ENVELOPE: Final = (VERSION, CLIENT_INFO, CAPABILITIES, LOG_LEVEL)


class RequestMeta(msgspec.Struct, frozen=True, gc=False):
    """A request's `_meta`, split: reserved keys lifted out (still encoded), everything else in `rest`.

    `takes_events`: the caller reads the events of its call, not messages.
    """

    token: bytes | None
    version: RawJson | None
    client_info: RawJson | None
    capabilities: RawJson | None
    log_level: RawJson | None
    rest: RawObject
    takes_events: bool = False

    @property
    def envelope(self) -> tuple[RawJson | None, ...]:
        """All that describes the client."""
        return self.version, self.client_info, self.capabilities, self.log_level

    @property
    def is_modern(self) -> bool:
        """Whether the request carries the per-request envelope of the modern era."""
        return self.version is not None


_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_EMPTY = RequestMeta(None, None, None, None, None, {})


def take_params(raw: RawJson | msgspec.UnsetType) -> tuple[RawObject, RequestMeta]:
    """A request's params without `_meta`, and `_meta`; null counts as none. Raises `InvalidParams`."""
    try:
        params = _decode_object(raw) if raw is not msgspec.UNSET else {}
    except (msgspec.DecodeError, RecursionError):
        if bytes(raw) != b"null":  # type: ignore[arg-type]  # what is absent is not decoded
            raise InvalidParams("params must be an object") from None
        params = {}
    return (params, take_meta(params)) if "_meta" in params else (params, _EMPTY)


def take_meta(params: RawObject) -> RequestMeta:
    """Removes `_meta` from `params` and splits it. Raises `InvalidParams`."""
    raw = params.pop("_meta", None)
    if raw is None:
        return _EMPTY
    rest = raw_object(raw)
    if rest is None:
        raise InvalidParams("params._meta must be an object")
    token = rest.pop(PROGRESS_TOKEN, None)
    version, client_info, capabilities, log_level = (rest.pop(key, None) for key in _ENVELOPE)
    text = bytes(token) if token is not None else None
    if text is not None and text[:1] != b'"' and not text.lstrip(b"-").isdigit():
        raise InvalidParams("params._meta.progressToken must be a string or an integer")
    return RequestMeta(text, version, client_info, capabilities, log_level, rest)


def modern_meta(version: str, client: JsonObject, capabilities: JsonObject, log_level: str | None) -> RawObject:
    """The reserved keys of a request to a modern upstream."""
    meta = {VERSION: version, CLIENT_INFO: client, CAPABILITIES: capabilities}
    if log_level is not None:
        meta[LOG_LEVEL] = log_level
    return {key: msgspec.Raw(object_bytes(value)) for key, value in meta.items()}
