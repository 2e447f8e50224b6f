"""Extensions that the hub serves to clients, and who has declared them (2026-07-28, basic/index "Extensions")."""

import msgspec

from mcp_hub.protocol.capabilities import SKILLS
from mcp_hub.protocol.capabilities import STREAMS as STREAMS
from mcp_hub.protocol.capabilities import TASKS as TASKS
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.types import CallId, Era, JsonObject, RawJson


def declares(capabilities: JsonObject, era: Era, extension: str) -> bool:
    """Whether a client takes what the extension adds; one of the handshake era may declare it under `experimental`."""
    if era is Era.HANDSHAKE and extension != STREAMS:  # it never gets tasks
        return False
    places = ("extensions",) if era is Era.MODERN else ("extensions", "experimental")
    offers = (capabilities.get(place) for place in places)
    return any(isinstance(found, dict) and isinstance(found.get(extension), dict) for found in offers)


def offered(era: Era) -> JsonObject:
    """The hub's additions to its capabilities."""
    if era is Era.MODERN:
        return {"extensions": {STREAMS: {}, TASKS: {}, SKILLS: {"directoryRead": True}}}
    return {"experimental": {STREAMS: {}}, "extensions": {STREAMS: {}}}


def with_mark(result: RawJson, stream: CallId, cursor: int, status: str) -> RawJson:
    """The result of a logged call, with the place of its events in `_meta` unless that is not an object."""
    mark = msgspec.json.encode({"stream": stream, "cursor": str(cursor), "status": status})
    text = bytes(result)
    if b'"_meta"' not in text:
        rest = text.lstrip()[1:].lstrip()
        comma = b"" if rest.startswith(b"}") else b","
        return b'{"_meta":{"%b":%b}%b' % (STREAMS.encode(), mark, comma) + rest
    members = raw_object(result)
    meta = raw_object(members.get("_meta", msgspec.UNSET)) if members is not None else None
    if members is None or meta is None:
        return result
    meta[STREAMS] = msgspec.Raw(mark)
    return object_bytes({**members, "_meta": msgspec.Raw(object_bytes(meta))})
