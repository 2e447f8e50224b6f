"""One skill as clients are listed it: under their URIs, and with the server that it comes from."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from mcp_hub.errors import UnknownEntry
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.skills import SERVER, children
from mcp_hub.types import RawJson, RawObject

_DYNAMIC: Final = b'"dynamic"'
_text = msgspec.json.Decoder(str).decode
_files = msgspec.json.Decoder(list[RawObject]).decode


def exported_skill(fields: RawObject, server: str, exported: Callable[[str], str | None]) -> bytes:
    """The entry of a skill; digests and everything else stay. Files for which `exported` is None are left out."""
    made = {**fields, "uri": _raw(exported(_text(fields["uri"])) or _text(fields["uri"]))}
    if bytes(fields["resources"]) != _DYNAMIC:
        made["resources"] = _raw(list(_exported(_files(fields["resources"]), exported)))
    return object_bytes({**made, "_meta": _with_server(made, server)})


def files_of(raw: RawJson) -> list[str]:
    """The URIs of the files of an entry; none of one that is generated."""
    resources = (raw_object(raw) or {}).get("resources", _DYNAMIC)
    return [] if bytes(resources) == _DYNAMIC else [_text(own["uri"]) for own in _files(resources)]


def directory_result(uri: str, entries: Iterable[RawJson], server: str) -> bytes:
    """The result of `resources/directory/read` by the entries of a server's skills. Raises `UnknownEntry`."""
    found = children(dict.fromkeys(file for raw in entries for file in files_of(raw)), uri)
    if not found:
        raise UnknownEntry(f"Directory not found: {hide_head(uri, 500)}", data={"uri": uri})
    caching = {"ttlMs": 0, "cacheScope": "private"}
    return object_bytes({"resultType": "complete", "resources": found, **caching, "_meta": {SERVER: server}})


def _exported(files: list[RawObject], exported: Callable[[str], str | None]) -> Iterator[RawObject]:
    for own in files:
        if (name := exported(_text(own["uri"]))) is not None:
            yield {**own, "uri": _raw(name)}


def marked(raw: RawJson, server: str) -> RawJson:
    """An object with the name of a server in its `_meta`."""
    members = raw_object(raw)
    if members is None:
        return raw
    return object_bytes({**members, "_meta": _with_server(members, server)})


def _with_server(members: RawObject, server: str) -> dict[str, object]:
    return {**(raw_object(members.get("_meta", msgspec.UNSET)) or {}), SERVER: server}


def of_skill(
    method: str, result: RawJson, server: str, exported: Callable[[str], str], can_read: Callable[[str], bool]
) -> RawJson:
    """A result about a skill, with its server, and without files that may not be read; a question stays as it is."""
    members = raw_object(result) or {}
    with suppress(msgspec.DecodeError, KeyError, RecursionError):
        match method:
            case "skills/get":
                own = partial(_if, can_read, exported)
                return object_bytes({**members, "skill": _raw_skill(members["skill"], server, own)})
            case "resources/directory/read":
                kept = [own for own in _files(members["resources"]) if can_read(_text(own["uri"]))]
                return marked(object_bytes({**members, "resources": kept}), server)
            case _ if "contents" in members:
                return marked(result, server)
    return result


def _if(can_read: Callable[[str], bool], exported: Callable[[str], str], uri: str) -> str | None:
    return name if can_read(name := exported(uri)) else None


def _raw_skill(raw: msgspec.Raw, server: str, exported: Callable[[str], str | None]) -> msgspec.Raw:
    return msgspec.Raw(exported_skill(msgspec.json.decode(raw, type=RawObject), server, exported))


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(object_bytes(value))
