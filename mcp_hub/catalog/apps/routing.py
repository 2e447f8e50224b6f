"""The requests of apps: by their own server's names, over the session of the client that shows them. Pure.

The exported name decides, since the model calls by it. Any other name can be an app's, which knows its own server only.
"""

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from mcp_hub.catalog.apps.metadata import SCHEME
from mcp_hub.catalog.view import CatalogView
from mcp_hub.errors import UnknownEntry
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, read_as
from mcp_hub.types import Kind, RawObject

SERVER: Final = "dev.mcp-hub/server"
"""The member of a request's `_meta` by which a client says which server's app asks."""
_MOST_NAMED: Final = 5
_LONGEST: Final = 200
"""Characters of a name that an error repeats."""


class AppRequests:
    """The requests of one session, to which `view` is exposed.

    `shown` are the servers whose apps this session has read, in a dict for its order; None if it ends with its request,
    so that nobody knows. `is_settled` says that all servers have been listed that will be soon.
    """

    def __init__(self, view: CatalogView, shown: dict[str, None] | None, is_settled: Callable[[], bool]) -> None:
        self._view = view
        self._shown = shown
        self._is_settled = is_settled

    def exported(self, method: str, params: RawObject, meta: RawObject) -> RawObject:
        """The params in exported names, if they are an app's in those of its server; the very same otherwise.

        Raises `UnknownEntry` for a name that could be of several servers, and for one that the named server lacks.
        """
        if method == "tools/call" and (name := read_as(params.get("name", b""), str)) is not None:
            return self._tool(name, params, _server(meta))
        if method == "resources/read" and (uri := read_as(params.get("uri", b""), str)) is not None:
            return self._resource(uri, params, _server(meta))
        return params

    def _tool(self, name: str, params: RawObject, server: str | None) -> RawObject:
        entry = self._view.find(Kind.TOOL, name)
        if entry is not None and server in (None, entry.server):
            return params
        servers = self._servers() if server is None else {server}
        found = [entry for entry in self._view.usable_tools if entry.key == name and entry.server in servers]
        found = [entry for entry in found if entry.app is None or entry.app.for_app]
        if server is not None and not found:
            raise UnknownEntry(f"Unknown tool: {hide_head(name, _LONGEST)} of server {hide_head(server, _LONGEST)!r}")
        if len(found) > 1:
            raise _unclear(f"tool: {hide_head(name, _LONGEST)}", [entry.exported for entry in found])
        return {**params, "name": msgspec.Raw(object_bytes(found[0].exported))} if found else params

    def _resource(self, uri: str, params: RawObject, server: str | None) -> RawObject:
        origin = self._view.resolve_uri(uri)
        if origin is None or server not in (None, origin[0]):
            servers = self._servers() if server is None else {server}
            ways = [way for way in (self._way(one, uri) for one in servers) if way is not None]
            if len(ways) > 1:
                raise _unclear(f"resource: {hide_head(uri, _LONGEST)}", ways)
            if not ways:
                return params
            params = {**params, "uri": msgspec.Raw(object_bytes(ways[0]))}
            origin = self._view.resolve_uri(ways[0])
        if self._shown is not None and origin is not None and origin[1].startswith(SCHEME):
            self._shown[origin[0]] = None
        return params

    def _way(self, server: str, uri: str) -> str | None:
        """The exported URI of this server's own, if its filters let it through."""
        exported = self._view.exported_uri(server, uri, remembers=False)
        return exported if self._view.resolve_uri(exported) == (server, uri) else None

    def _servers(self) -> Collection[str]:
        """Those whose apps may ask: which the session has read, else all that have one, as far as these are known."""
        if self._shown:
            return self._shown
        return {entry.server for entry in self._view.usable_tools if entry.has_app} if self._is_settled() else ()


def _server(meta: RawObject) -> str | None:
    return read_as(meta[SERVER], str) if SERVER in meta else None


def _unclear(what: str, names: list[str]) -> UnknownEntry:
    shown = ", ".join(sorted(names)[:_MOST_NAMED])
    message = (
        f"Unknown {what}. Apps of several servers may mean it: use {shown}, or name the server in _meta[{SERVER!r}]"
    )
    return UnknownEntry(message, data={"nearest": sorted(names)[:_MOST_NAMED]})
