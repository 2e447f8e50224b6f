"""Extensions that the hub serves (2026-07-28, basic/index "Extensions")."""

import re
from typing import Final

import msgspec

from mcp_hub.protocol.capabilities import APP_SETTINGS, APP_TYPE, SKILLS
from mcp_hub.protocol.capabilities import APPS as APPS
from mcp_hub.protocol.capabilities import EVENTS as EVENTS
from mcp_hub.protocol.capabilities import STREAMS as STREAMS
from mcp_hub.protocol.capabilities import TASKS as TASKS
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.types import CallId, Era, JsonObject, RawJson

has_mark: Final = re.compile(rb'"dev\.mcp-hub/streams"').search
"""Finds the mark that a server which streams may have put on a result."""


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


def offered(era: Era) -> JsonObject:
    """Extensions in the hub's capabilities."""
    if era is Era.MODERN:
        return {"extensions": {STREAMS: {}, TASKS: {}, APPS: APP_SETTINGS, SKILLS: {"directoryRead": True}}}
    return {"experimental": {STREAMS: {}}, "extensions": {STREAMS: {}, APPS: APP_SETTINGS}}


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
