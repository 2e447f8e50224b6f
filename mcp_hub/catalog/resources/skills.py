"""Skills under exported URIs. If two servers have a skill's folder, the later one's becomes `skill://<server>/<old
path>`, with everything in it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final
from urllib.parse import quote

import msgspec

from mcp_hub.errors import UnknownEntry
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.skills import MAIN, SERVER, above, children, root_of
from mcp_hub.types import Origin, RawJson, RawObject

_LONGEST: Final = 8192  # characters; longer URIs are data, not addresses
_SCHEME: Final = "skill://"
_DYNAMIC: Final = b'"dynamic"'
_text = msgspec.json.Decoder(str).decode
_files = msgspec.json.Decoder(list[RawObject]).decode


class SkillRoots:
    """The outermost folders; `skills` are main files' URIs, `resources` all listed URIs, in the order of `servers`."""

    def __init__(
        self, skills: Iterable[Origin] = (), resources: Iterable[Origin] = (), servers: Sequence[str] = ()
    ) -> None:
        self._exported: dict[Origin, str] = {}
        self._origins: dict[str, Origin] = {}
        self._taken: set[str] = set()  # URIs that are somebody's, and all folders above them
        mains = [
            *skills,
            *(origin for origin in resources if origin[1].startswith(_SCHEME) and origin[1].endswith(f"/{MAIN}")),
        ]
        roots = {server: _outermost(root_of(uri) for owner, uri in mains if owner == server) for server in servers}
        moved: list[Origin] = []
        for server in servers if mains else ():
            folders = roots[server]
            unmoved = [root for root in folders if not self._clashes(root)]
            moved += ((server, root) for root in folders if root not in unmoved)
            outside = [uri for owner, uri in resources if owner == server and folders.isdisjoint(above(uri))]
            for uri in (*unmoved, *outside):
                self._taken.update(above(uri))
            for root in unmoved:
                self._add(server, root, root)
        for server, root in moved:
            self._add(server, root, next(name for name in _names(server, root) if not self._clashes(name)))

    def _clashes(self, root: str) -> bool:
        return root in self._taken or any(folder in self._origins for folder in above(root))

    def _add(self, server: str, root: str, name: str) -> None:
        self._exported[server, root] = name
        self._origins[name] = server, root
        self._taken.update(above(name))

    def exported(self, server: str, uri: str) -> str | None:
        """The client's URI; None outside of skills."""
        if self._exported and len(uri) <= _LONGEST:
            for folder in above(uri):
                if (name := self._exported.get((server, folder))) is not None:
                    return name + uri[len(folder) :]
        return None

    def resolve(self, uri: str) -> Origin | None:
        """The server and its own URI; None outside of skills."""
        if self._origins and len(uri) <= _LONGEST:
            for folder in above(uri):
                if (origin := self._origins.get(folder)) is not None:
                    return origin[0], origin[1] + uri[len(folder) :]
        return None


def _outermost(roots: Iterable[str]) -> set[str]:
    folders = set(roots)
    return {root for root in folders if not any(folder in folders for folder in above(root) if folder != root)}


def _names(server: str, root: str) -> Iterator[str]:
    scheme, path = (_SCHEME, root[len(_SCHEME) :]) if root.startswith(_SCHEME) else ("hub://", root)
    host = quote(server, safe="", errors="surrogatepass")
    yield f"{scheme}{host}/{path}"
    yield from (f"{scheme}{host}!{number}/{path}" for number in count(1))


def exported_skill(fields: RawObject, server: str, exported: Callable[[str], str | None]) -> bytes:
    """The exported entry; files for which `exported` is None are left out."""
    members = {**fields, "uri": _raw(exported(_text(fields["uri"])) or _text(fields["uri"]))}
    if bytes(fields["resources"]) != _DYNAMIC:
        members["resources"] = _raw(list(_exported(_files(fields["resources"]), exported)))
    return object_bytes({**members, "_meta": _with_server(members, server)})


def files_of(raw: RawJson) -> list[str]:
    """URIs of the files of an entry; empty if it is generated."""
    resources = (raw_object(raw) or {}).get("resources", _DYNAMIC)
    return [] if bytes(resources) == _DYNAMIC else [_text(file["uri"]) for file in _files(resources)]


def directory_result(uri: str, entries: Iterable[RawJson], server: str) -> bytes:
    """The result of `resources/directory/read`. Raises `UnknownEntry`."""
    listed = children(dict.fromkeys(file for raw in entries for file in files_of(raw)), uri)
    if not listed:
        raise UnknownEntry(f"Directory not found: {hide_head(uri, 500)}", data={"uri": uri})
    caching = {"ttlMs": 0, "cacheScope": "private"}
    return object_bytes({"resultType": "complete", "resources": listed, **caching, "_meta": {SERVER: server}})


def _exported(files: list[RawObject], exported: Callable[[str], str | None]) -> Iterator[RawObject]:
    for file in files:
        if (name := exported(_text(file["uri"]))) is not None:
            yield {**file, "uri": _raw(name)}


def marked(raw: RawJson, server: str) -> RawJson:
    """Adds the server's name to `_meta`."""
    members = raw_object(raw)
    if members is None:
        return raw
    return object_bytes({**members, "_meta": _with_server(members, server)})


def _with_server(members: RawObject, server: str) -> dict[str, object]:
    return {**(raw_object(members.get("_meta", msgspec.UNSET)) or {}), SERVER: server}


def of_skill(
    method: str, result: RawJson, server: str, exported: Callable[[str], str], can_read: Callable[[str], bool]
) -> RawJson:
    """A result with its server, and without unreadable files."""
    members = raw_object(result) or {}
    with suppress(msgspec.DecodeError, KeyError, RecursionError):
        match method:
            case "skills/get":
                readable = partial(_if, can_read, exported)
                return object_bytes({**members, "skill": _raw_skill(members["skill"], server, readable)})
            case "resources/directory/read":
                files = [file for file in _files(members["resources"]) if can_read(_text(file["uri"]))]
                return marked(object_bytes({**members, "resources": files}), server)
            case _ if "contents" in members:
                return marked(result, server)
    return result


def _if(can_read: Callable[[str], bool], exported: Callable[[str], str], uri: str) -> str | None:
    return name if can_read(name := exported(uri)) else None


def _raw_skill(raw: msgspec.Raw, server: str, exported: Callable[[str], str | None]) -> msgspec.Raw:
    return msgspec.Raw(exported_skill(msgspec.json.decode(raw, type=RawObject), server, exported))


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(object_bytes(value))
