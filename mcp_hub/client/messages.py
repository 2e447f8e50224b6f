"""What the client of a hub sends and what the answers mean. No I/O.

Source: specification 2026-07-28, basic/transports/streamable-http.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from mcp_hub import __version__
from mcp_hub.errors import (
    Busy,
    ConfigError,
    ConfigFinding,
    DeadlineExceeded,
    HubError,
    HubStopping,
    RpcError,
    UnknownEntry,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.events import CallEvent, Completed, Failed, Log, Progressed
from mcp_hub.protocol import eras
from mcp_hub.protocol.headers import header_value
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import Envelope, Unset, object_bytes, raw_object
from mcp_hub.protocol.jsonrpc.event_stream import EventParser
from mcp_hub.protocol.jsonrpc.framing import TooLong
from mcp_hub.protocol.meta import PROGRESS_TOKEN, modern_meta
from mcp_hub.protocol.rpc_errors import INVALID_PARAMS, from_wire
from mcp_hub.protocol.shape.results import COALESCED
from mcp_hub.types import Era, JsonObject, RawJson, RawObject

__all__ = ["LIMIT", "AnswerReader", "HubRequest", "endpoint", "progress_of", "refusal", "request"]

LIMIT: Final = 128 << 20
"""Bytes of one message: four times what a hub takes from a server unless it is told otherwise."""
_CLIENT: Final[JsonObject] = {"name": "mcp-hub-client", "version": __version__}
_LOG_LEVEL: Final = "debug"
"""Everything: a hub of this era sends no log messages unless it is asked to."""
_REASON: Final = 500
"""Characters of a foreign text that go into a message."""
_OWN: Final[dict[int, type[RpcError]]] = {
    kind.code: kind for kind in (UpstreamUnavailable, UpstreamLost, DeadlineExceeded, Busy, HubStopping)
}


def endpoint(url: str) -> str:
    """The MCP endpoint that `url` names; one without a path means `/mcp`. Raises `ConfigError`."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not url.isprintable() or " " in url:
        said = f"not the URL of a hub: {url[:_REASON]!r}; write it as http://127.0.0.1:8765"
        raise ConfigError(ConfigFinding("invalid_hub_url", said))
    if "@" in parts.netloc:  # not shown: it may be a secret
        said = "the URL of a hub takes no user and no password; give a token with --token or MCP_HUB_TOKEN"
        raise ConfigError(ConfigFinding("invalid_hub_url", said))
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/mcp", parts.query, ""))


class HubRequest(msgspec.Struct, frozen=True):
    """One POST."""

    id: int
    headers: Mapping[str, str]
    body: bytes


def request(
    id_: int, method: str, params: Mapping[str, object], name: str | None = None, more: Mapping[str, str] | None = None
) -> HubRequest:
    """A request with its envelope; `name` is what it is about, `more` are headers for its parameters."""
    meta: dict[str, object] = {**modern_meta(eras.LATEST_MODERN, _CLIENT, {}, _LOG_LEVEL), PROGRESS_TOKEN: id_}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": eras.LATEST_MODERN,
        "mcp-method": method,
        **({} if name is None else {"mcp-name": header_value(name)}),
        **(more or {}),
    }
    return HubRequest(id_, headers, envelope.request_frame(id_, method, object_bytes({**params, "_meta": meta})))


class AnswerReader:
    """Reads the answer to one request, JSON or an event stream, in whatever portions it comes.

    The ending, `Completed` or `Failed`, is the last event. An answer that is none of a hub raises `ConfigError`.
    `is_listed` says whether the tool that is called is one that the hub has listed.
    """

    def __init__(
        self, url: str, id_: int, status: int, content_type: str, *, is_listed: bool = True, limit: int = LIMIT
    ) -> None:
        self._url = url
        self._id = id_
        self._status = status
        self._content_type = content_type.partition(";")[0].strip().lower()
        self._is_listed = is_listed
        self._limit = limit
        is_stream = status == 200 and self._content_type == "text/event-stream"
        self._parser = EventParser(limit) if is_stream else None
        self._body = bytearray()
        self._has_ended = False

    def feed(self, chunk: bytes) -> list[CallEvent]:
        """What `chunk` tells; nothing after the ending."""
        if self._parser is None:
            self._body += chunk
            return self._upto_ending([self._too_long()] if len(self._body) > self._limit else [])
        return self._upto_ending([self._event(data) for data in self._parser.feed(chunk)])

    def finish(self) -> list[CallEvent]:
        """What the end of the answer tells. Raises `ConfigError`."""
        if self._has_ended:
            return []
        if self._parser is not None:
            return self._upto_ending([self._lost("ended its answer too early")])
        return self._upto_ending([self._whole()])

    def _upto_ending(self, events: list[CallEvent | None]) -> list[CallEvent]:
        told: list[CallEvent] = []
        for event in events:
            if event is not None and not self._has_ended:
                told.append(event)
                self._has_ended = isinstance(event, Completed | Failed)
        return told

    def _event(self, data: bytes | TooLong) -> CallEvent | None:
        if isinstance(data, TooLong):
            return self._too_long()
        message = envelope.decode(data)
        if not isinstance(message, Envelope):
            return None  # not for us: the answer would be missed at the end of the stream
        match message.method:
            case "notifications/progress":
                return progress_of(raw_object(message.params) or {})
            case "notifications/message":
                return _log_of(message.params)
            case _:
                return self._ending(message)

    def _whole(self) -> CallEvent:
        """The ending that the body is. Raises `ConfigError`."""
        message = envelope.decode(bytes(self._body))
        reason = ""
        if isinstance(message, Envelope):
            ending = self._ending(message)
            if ending is not None:
                return ending
            if message.error is not Unset:
                reason = from_wire(message.error).message[:_REASON]
        found = refusal(self._url, self._status, self._content_type, reason)
        if isinstance(found, RpcError):
            return Failed(found)
        raise found

    def _ending(self, message: Envelope) -> CallEvent | None:
        """The answer, if it is the one to our request."""
        id_ = envelope.usable_id(message.id)
        if id_ is None or envelope.id_key(id_) != self._id or message.method is not Unset:
            return None
        if message.error is not Unset:
            return Failed(_typed(from_wire(message.error), self._is_listed))
        if message.result is Unset or raw_object(message.result) is None:
            return self._lost("answered with a result that is no object")
        return Completed(message.result, Era.MODERN)

    def _too_long(self) -> Failed:
        return self._lost(f"sent a message of more than {self._limit} bytes")

    def _lost(self, what: str) -> Failed:
        return Failed(UpstreamLost(f"{self._url} {what}; the outcome is unknown", data={"outcome": "unknown"}))


def refusal(url: str, status: int, content_type: str, reason: str) -> HubError:
    """Why an HTTP answer is none to the request: `reason` is a JSON-RPC error's message, empty if there is none."""
    said = f": {reason}" if reason else ""
    if status == 401:
        why = f"{url} refused the request{said}; give the token with --token or MCP_HUB_TOKEN"
        return ConfigError(ConfigFinding("unauthorized", why))
    if status >= 500:
        return UpstreamUnavailable(f"{url} answered with HTTP {status}{said}")
    if reason and status != 404:
        return ConfigError(ConfigFinding("refused_by_hub", f"{url} refused the request with HTTP {status}{said}"))
    got = content_type or "nothing" if status == 200 else f"HTTP {status}{said}"
    return ConfigError(ConfigFinding("not_a_hub", f"{url} is no MCP endpoint of a hub: it answered with {got}"))


def _typed(error: RpcError, is_listed: bool) -> RpcError:
    """The hub's own errors as what they are; "invalid params" for a tool that it has not listed: there is none."""
    if error.code == INVALID_PARAMS and not is_listed:
        return UnknownEntry(error.message, raw=error.raw)
    kind = _OWN.get(error.code, RpcError)
    return kind(error.message, code=error.code, data=error.data, raw=error.raw)


class _Numbers(msgspec.Struct):
    progress: int | float
    total: int | float | None = None


def progress_of(params: RawObject) -> Progressed | None:
    """The event that `shape.progress_frame` wrote; None if it cannot be read."""
    try:
        numbers = msgspec.json.decode(object_bytes(params), type=_Numbers)
    except (msgspec.DecodeError, RecursionError):
        return None
    rest = {key: value for key, value in params.items() if key not in ("progress", "total", PROGRESS_TOKEN)}
    meta = raw_object(rest.get("_meta", Unset)) or {}
    skipped = bytes(meta.pop(COALESCED, b"0"))
    if skipped == b"0" or not skipped.isdigit() or len(skipped) > 9:
        return Progressed(numbers.progress, numbers.total, rest or None)
    del rest["_meta"]
    if meta:
        rest["_meta"] = msgspec.Raw(object_bytes(meta))
    return Progressed(numbers.progress, numbers.total, rest or None, int(skipped))


def _log_of(params: RawJson | msgspec.UnsetType) -> Log | None:
    members = raw_object(params)
    try:
        level = msgspec.json.decode((members or {}).get("level", b""), type=str)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Log(level, params) if params is not Unset else None
