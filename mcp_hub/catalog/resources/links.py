"""Resource URIs in results, and the server that mentioned an unlisted one first.

Source: specification 2025-11-25 and 2026-07-28, server/tools "Resource Links" and "Embedded Resources".
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.types import RawJson

MAX_REMEMBERED: Final = 4096  # URIs: the links of some hundred results, in at most some megabytes
_MAX_LENGTH: Final = 2048  # characters of a URI that is remembered; a longer one is wrapped, which needs no memory

# `uri` as a member's name or a whole value: inside of a text its quotes would be escaped. 5 MB take 1.3 ms;
# `bytes.find` needs a copy and twice the time.
mentions_uris: Callable[[RawJson], object] = re.compile(rb'"uri"').search
"""Whether a result may contain URIs; a quick test."""
_string = msgspec.json.Decoder(str).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode

_Exported = Callable[[str], str]
_Rewrite = Callable[[msgspec.Raw, _Exported], msgspec.Raw]  # gives back the very same object where nothing changes


class Remembered:
    """The first server that mentioned each unlisted URI; the least recently used is dropped."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._servers: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._servers)

    def owner(self, uri: str) -> str | None:
        """Asking counts as use."""
        server = self._servers.get(uri)
        if server is not None:
            self._servers.move_to_end(uri)
        return server

    def claim(self, uri: str, server: str) -> bool:
        """Records `uri` as this server's; False if it is another's or too long."""
        if len(uri) > _MAX_LENGTH or self._servers.setdefault(uri, server) != server:
            return False
        self._servers.move_to_end(uri)
        if len(self._servers) > self._limit:
            self._servers.popitem(last=False)
        return True


def readdress(method: str, result: RawJson, exported: Callable[[str], str]) -> RawJson:
    """The result of `method` with each resource URI exported; everything else is kept."""
    rewrite = _PLACES.get(method)
    if rewrite is None or not mentions_uris(result):
        return result
    whole = result if isinstance(result, msgspec.Raw) else msgspec.Raw(result)
    changed = rewrite(whole, exported)
    return result if changed is whole else changed


def _uri(raw: msgspec.Raw, exported: _Exported) -> msgspec.Raw:
    try:
        upstream_uri = _string(raw)
    except ValueError:
        return raw
    name = exported(upstream_uri)
    return raw if name == upstream_uri else msgspec.Raw(object_bytes(name))


def _member(name: str, rewrite: _Rewrite) -> _Rewrite:
    def rewritten(raw: msgspec.Raw, exported: _Exported) -> msgspec.Raw:
        members = raw_object(raw) or {}
        if name not in members:
            return raw
        changed = rewrite(members[name], exported)
        return raw if changed is members[name] else msgspec.Raw(object_bytes({**members, name: changed}))

    return rewritten


def _each(rewrite: _Rewrite) -> _Rewrite:
    def rewritten(raw: msgspec.Raw, exported: _Exported) -> msgspec.Raw:
        try:
            items = _array(raw)
        except (ValueError, RecursionError):
            return raw
        changed = [rewrite(item, exported) for item in items]
        is_same = all(new is old for new, old in zip(changed, items, strict=True))
        return raw if is_same else msgspec.Raw(object_bytes(changed))

    return rewritten


_LINK: Final = _member("uri", _uri)
_BLOCKS: Final = {b'"resource_link"': _LINK, b'"resource"': _member("resource", _LINK)}


def _block(raw: msgspec.Raw, exported: _Exported) -> msgspec.Raw:
    rewrite = _BLOCKS.get(bytes((raw_object(raw) or {}).get("type", b"")))
    return raw if rewrite is None else rewrite(raw, exported)


_PLACES: Final = {
    "tools/call": _member("content", _each(_block)),
    "prompts/get": _member("messages", _each(_member("content", _block))),
    "resources/read": _member("contents", _each(_LINK)),
    "resources/directory/read": _member("resources", _each(_LINK)),
}
