"""Extensions that the hub serves (2026-07-28, basic/index "Extensions")."""

import re
from typing import Final

import msgspec

from mcp_hub.protocol import eras
from mcp_hub.protocol.capabilities import APP_SETTINGS, APP_TYPE, SKILLS
from mcp_hub.protocol.capabilities import APPS as APPS
from mcp_hub.protocol.capabilities import STREAMS as STREAMS
from mcp_hub.protocol.capabilities import TASKS as TASKS
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.types import CallId, Era, JsonObject, RawJson

has_mark: Final = re.compile(rb'"dev\.mcp-hub/streams"').search
"""Finds the mark that a server which streams may have put on a result."""


_RELAYED: Final[tuple[JsonObject, JsonObject]] = (
    {APPS: APP_SETTINGS},
    {APPS: APP_SETTINGS, SKILLS: {"directoryRead": True}},
)
"""Extensions of servers that the hub serves to handshake clients and to modern ones, with its settings."""
EVERYTHING: Final[JsonObject] = {
    "resources": {"subscribe": True}, "prompts": {}, "logging": {}, "completions": {}, "extensions": _RELAYED[True],
}  # fmt: skip
"""Capabilities of servers that the hub serves."""
_ONE_HOP: Final = frozenset({*EVERYTHING, "tools", "tasks", "events", "experimental"})
"""Capabilities that the hub declares by rules of its own, or not at all."""
_HUBS: Final = ("io.modelcontextprotocol/", "dev.mcp-hub/")
"""The beginnings of extensions that are the hub's to serve, or not."""


def served_by_hub(capability: str, settings: JsonObject) -> JsonObject | None:
    """Settings of a server's capability that the hub can serve without a `passthrough`; None: nothing."""
    if capability == "extensions":
        return {name: value for name, value in settings.items() if name in _RELAYED[True]}
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
    """The hub's capabilities: its own, which are tools, streams and tasks, and what its servers have."""
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
    extensions = {name: settings for name, settings in _RELAYED[is_modern].items() if name in theirs}
    declared["extensions"] = {STREAMS: {}, **({TASKS: {}} if is_modern else {}), **extensions, **_foreign(theirs)}
    return declared


def with_mark(result: RawJson, stream: CallId, cursor: int, status: str) -> RawJson:
    """Adds a call's stream and cursor to `_meta`, if that is an object."""
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


def without_mark(result: RawJson, mark: str = STREAMS) -> RawJson:
    """Removes a member of `_meta` that belongs to one hop."""
    members = raw_object(result) or {}
    meta = raw_object(members.get("_meta", msgspec.UNSET)) or {}
    if meta.pop(mark, None) is None:
        return result
    del members["_meta"]
    return object_bytes({**members, "_meta": msgspec.Raw(object_bytes(meta))} if meta else members)
