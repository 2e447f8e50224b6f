"""Reserved `_meta` keys of requests, and the extensions that the hub serves.

Source: specification 2026-07-28, basic/index "_meta" and "Extensions"; before, `progressToken` only.
"""

import re
from typing import Annotated, Final, Literal

import msgspec

from mcp_hub.errors import InvalidParams
from mcp_hub.protocol import eras
from mcp_hub.protocol.capabilities import APP_SETTINGS, APP_TYPE, SKILLS
from mcp_hub.protocol.capabilities import APPS as APPS
from mcp_hub.protocol.capabilities import EVENTS as EVENTS
from mcp_hub.protocol.capabilities import STREAMS as STREAMS
from mcp_hub.protocol.capabilities import TASKS as TASKS
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object, read_as
from mcp_hub.types import CallId, Era, JsonObject, RawJson, RawObject

VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
PROGRESS_TOKEN: Final = "progressToken"
PATH: Final = "dev.mcp-hub/path"
"""A JSON path: the result of the tool is what it selects."""
_NULL: Final = msgspec.Raw(b"null")
_COMPLETE: Final = msgspec.Raw(b'"complete"')


class RequestMeta(msgspec.Struct, frozen=True, gc=False):
    """A split `_meta`: encoded reserved keys, and the `rest`. `takes_events`: the caller reads events, not messages."""

    token: bytes | None
    version: RawJson | None
    client_info: RawJson | None
    capabilities: RawJson | None
    log_level: RawJson | None
    rest: RawObject
    takes_events: bool = False
    path: str | None = None

    @property
    def envelope(self) -> tuple[RawJson | None, ...]:
        return self.version, self.client_info, self.capabilities, self.log_level

    @property
    def is_modern(self) -> bool:
        return self.version is not None


_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_EMPTY = RequestMeta(token=None, version=None, client_info=None, capabilities=None, log_level=None, rest={})
_ABSENT: Final = re.compile(rb"null|\[\s*\]")
"""Forms in which clients write an object without members: languages without objects of their own have empty arrays."""
_TOKEN: Final = re.compile(rb'".*|-?[0-9]+(?:\.0+)?', re.DOTALL)


def is_absent(raw: RawJson) -> bool:
    """Whether null or an empty array stands for an object."""
    return _ABSENT.fullmatch(bytes(raw).strip()) is not None


def take_params(raw: RawJson | msgspec.UnsetType) -> tuple[RawObject, RequestMeta]:
    """Params without `_meta`, and `_meta`. Raises `InvalidParams`."""
    try:
        params = _decode_object(raw) if raw is not msgspec.UNSET else {}
    except (msgspec.DecodeError, RecursionError):
        if not is_absent(raw):  # type: ignore[arg-type]  # what is absent is not decoded
            raise InvalidParams("params must be an object") from None
        params = {}
    return (params, take_meta(params)) if "_meta" in params else (params, _EMPTY)


def take_meta(params: RawObject) -> RequestMeta:
    """Removes and splits `_meta`. Raises `InvalidParams`."""
    raw = params.pop("_meta", None)
    if raw is None:
        return _EMPTY
    members = raw_object(raw)
    if members is None:
        if is_absent(raw):
            return _EMPTY
        raise InvalidParams("params._meta must be an object")
    pop = members.pop
    token = pop(PROGRESS_TOKEN, None)
    version, client, capabilities, log_level = envelope = (
        pop(VERSION, None), pop(CLIENT_INFO, None), pop(CAPABILITIES, None), pop(LOG_LEVEL, None),
    )  # fmt: skip
    if _NULL in envelope:
        version, client, capabilities, log_level = (None if raw == _NULL else raw for raw in envelope)
    text = None if token is None or token == _NULL else bytes(token)
    if text is not None and _TOKEN.fullmatch(text) is None:
        raise InvalidParams("params._meta.progressToken must be a string or an integer")
    return RequestMeta(
        token=text, version=version, client_info=client, capabilities=capabilities, log_level=log_level, rest=members,
        path=path_of(members),
    )  # fmt: skip


def path_of(members: RawObject) -> str | None:
    """Takes the JSON path out of the members of a `_meta`. Raises `InvalidParams`."""
    if (raw := members.pop(PATH, None)) is None:
        return None
    try:
        return msgspec.json.decode(raw, type=str | None)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidParams(f"params._meta[{PATH!r}] must be a string: a JSON path") from None


def modern_meta(version: str, client: JsonObject, capabilities: JsonObject, log_level: str | None) -> RawObject:
    """Reserved keys for a modern upstream."""
    meta = {VERSION: version, CLIENT_INFO: client, CAPABILITIES: capabilities}
    if log_level is not None:
        meta[LOG_LEVEL] = log_level
    return {key: msgspec.Raw(object_bytes(value)) for key, value in meta.items()}


has_mark: Final = re.compile(rb'"dev\.mcp-hub/streams"').search
"""Finds the mark that a server which streams may have put on a result."""


_RELAYED: Final[tuple[JsonObject, JsonObject]] = (
    {APPS: APP_SETTINGS},
    {APPS: APP_SETTINGS, SKILLS: {"directoryRead": True}},
)
"""Extensions of servers that the hub serves to handshake clients and to modern ones, with its settings."""
EVERYTHING: Final[JsonObject] = {
    "resources": {"subscribe": True}, "prompts": {}, "logging": {}, "completions": {}, "events": {},
    "extensions": _RELAYED[True],
}  # fmt: skip
"""Capabilities of servers that the hub serves."""
_ONE_HOP: Final = frozenset({*EVERYTHING, "tools", "tasks", "experimental"})
"""Capabilities that the hub declares by rules of its own, or not at all."""
_HUBS: Final = ("io.modelcontextprotocol/", "dev.mcp-hub/")
"""The beginnings of extensions that are the hub's to serve, or not."""


def served_by_hub(capability: str, settings: JsonObject) -> JsonObject | None:
    """Settings that the hub can serve without a `passthrough`; None: nothing."""
    if capability == "extensions":
        return {name: value for name, value in settings.items() if name in _RELAYED[True] or name == EVENTS}
    return settings if capability in EVERYTHING or capability == "tools" else None


def _foreign(settings: JsonObject) -> JsonObject:
    return {name: value for name, value in settings.items() if not name.startswith(_HUBS)}


def declares(capabilities: JsonObject, era: Era, extension: str) -> bool:
    """Whether the client declares the extension; apps need their media type.

    Handshake clients may declare the hub's own under `experimental`.
    """
    if era is Era.HANDSHAKE and extension not in (STREAMS, APPS):  # the hub serves the others in the modern era only
        return False
    places = ("extensions", "experimental") if era is Era.HANDSHAKE and extension == STREAMS else ("extensions",)
    offers = (capabilities.get(section) for section in places)
    settings = [offer.get(extension) for offer in offers if isinstance(offer, dict)]
    return any(isinstance(setting, dict) and (extension != APPS or _shows_apps(setting)) for setting in settings)


def _shows_apps(settings: JsonObject) -> bool:
    """Source: MCP Apps, "Client Capabilities"."""
    types = settings.get("mimeTypes")
    return isinstance(types, list) and APP_TYPE in types


def hub_capabilities(version: str, has: JsonObject) -> JsonObject:
    """The hub's own, which are tools, streams and tasks, and its servers'."""
    is_modern = eras.era_of(version) is Era.MODERN
    changes: JsonObject = {"listChanged": True}
    declared: JsonObject = {**{name: value for name, value in has.items() if name not in _ONE_HOP}, "tools": changes}
    if (resources := has.get("resources")) is not None:
        declared["resources"] = {**changes, "subscribe": True} if resources.get("subscribe") else changes
    if "prompts" in has:
        declared["prompts"] = changes
    if "logging" in has:
        declared["logging"] = {}
    if "completions" in has and version != eras.HANDSHAKE_VERSIONS[0]:  # 2024-11-05 has the method only
        declared["completions"] = {}
    experimental = {**_foreign(has.get("experimental", {})), **({} if is_modern else {STREAMS: {}})}
    if experimental:
        declared["experimental"] = experimental
    theirs = has.get("extensions", {})
    has_events = "events" in has or EVENTS in theirs
    if has_events:  # as the drafts of the extension had it
        declared["events"] = changes
    extensions = {name: settings for name, settings in _RELAYED[is_modern].items() if name in theirs}
    declared["extensions"] = {STREAMS: {}, **({TASKS: {}} if is_modern else {}), **extensions, **_foreign(theirs)}
    if has_events:
        declared["extensions"][EVENTS] = changes
    return declared


def with_mark(result: RawJson, stream: CallId, cursor: int, status: str) -> RawJson:
    """Adds stream and cursor to `_meta`, if that is an object."""
    mark = msgspec.json.encode({"stream": stream, "cursor": str(cursor), "status": status})
    text = bytes(result)
    if b'"_meta"' not in text:
        tail = text.lstrip()[1:].lstrip()
        comma = b"" if tail.startswith(b"}") else b","
        return b'{"_meta":{"%b":%b}%b' % (STREAMS.encode(), mark, comma) + tail
    members = raw_object(result)
    meta = raw_object(members.get("_meta", msgspec.UNSET)) if members is not None else None
    if members is None or meta is None:
        return result
    meta[STREAMS] = msgspec.Raw(mark)
    return object_bytes({**members, "_meta": msgspec.Raw(object_bytes(meta))})


class _Mark(msgspec.Struct):
    stream: Annotated[str, msgspec.Meta(max_length=128)]
    cursor: Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,14})$")]
    status: Literal["completed"]


def last_before(result: RawJson) -> tuple[str, int]:
    """The stream of a mark and the number before its ending; 0 without one, and on an early answer or a question."""
    if has_mark(result) is None:
        return "", 0
    members = raw_object(result) or {}
    meta = raw_object(members.get("_meta", msgspec.UNSET)) or {}
    mark = read_as(meta[STREAMS], _Mark) if STREAMS in meta else None
    is_result = members.get("resultType", _COMPLETE) == _COMPLETE
    return (mark.stream, int(mark.cursor) - 1) if mark is not None and is_result else ("", 0)


def without_mark(result: RawJson, mark: str = STREAMS) -> RawJson:
    """Removes a member of `_meta` that belongs to one hop."""
    members = raw_object(result) or {}
    meta = raw_object(members.get("_meta", msgspec.UNSET)) or {}
    if meta.pop(mark, None) is None:
        return result
    del members["_meta"]
    return object_bytes({**members, "_meta": msgspec.Raw(object_bytes(meta))} if meta else members)
