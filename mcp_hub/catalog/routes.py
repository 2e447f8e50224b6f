"""The server of a request, and the request in that server's names; by lookup, never by splitting. Pure."""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from shlex import quote
from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.catalog.flags import decoded
from mcp_hub.catalog.offers.definitions import SCHEME
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.pins import UnapprovedTool
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.names import begins_with
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.errors import InvalidParams, RpcError, UnknownEntry, method_not_found, not_approved
from mcp_hub.masking import hide, hide_head
from mcp_hub.methods import passes
from mcp_hub.protocol.eras import CALL_METHODS, SKILL_METHODS, serves
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, read_as
from mcp_hub.protocol.meta import PATH, RequestMeta, is_absent
from mcp_hub.selection import check_path
from mcp_hub.types import OWN, Era, JsonObject, Kind, RawObject, UpstreamStatus, condition

Unlisted = Callable[[str], UpstreamStatus | None]
"""Returns the never-listed server that a name's prefix belongs to."""
_RESOURCE_NOT_FOUND = -32002  # up to 2025-11-25 (server/resources, "Error Handling"); 2026-07-28 has -32602 there
_string = msgspec.json.Decoder(str).decode
_TOOL: Final = Kind.TOOL
_ROUTED: Final = CALL_METHODS | SKILL_METHODS
_NO_ARGUMENTS: Final = msgspec.Raw(b"{}")
SERVER: Final = "dev.mcp-hub/server"
"""The member of a request's `_meta` that names the server whose app asks."""
_MOST_NAMED: Final = 5
_LONGEST: Final = 200
"""Characters of a name that an error repeats."""


class Route(msgspec.Struct, frozen=True, gc=False):
    """The server, and its params; `exported_uri` is the client's where it differs.

    A result that `is_whole` is never cut: a digest covers it. For `run_tool` and `read_tool`, `requested` are the
    unwrapped params in the caller's names, `entry` is the tool, `refusal` the error. `must_read`: only for read-only
    tools. `path` projects the result.
    """

    server: str
    params: RawObject
    exported_uri: str | None = None
    is_whole: bool = False
    requested: RawObject | None = None
    entry: Entry | None = None
    refusal: RpcError | None = None
    must_read: bool = False
    path: str | None = None


def route(view: CatalogView, era: Era, method: str, params: RawObject, unlisted: Unlisted = lambda name: None) -> Route:
    """The route of `method`, with configured arguments; `unlisted` explains missing names.

    Raises `InvalidParams` for members that are missing, mistyped or not the caller's; `UnknownEntry`; `not_approved`.
    """
    match method:
        case "tools/call":
            return named(view, _TOOL, method, params, unlisted)
        case "prompts/get":
            return named(view, Kind.PROMPT, method, params, unlisted)
        case "resources/read" | "resources/directory/read" | "skills/get":
            requested = text(params, "uri", method)
            server, upstream_uri = _resource(view, era, requested)
            is_whole = view.resources.is_of_skill(server, upstream_uri)
            if upstream_uri == requested:
                return Route(server, params, is_whole=is_whole)
            return Route(server, {**params, "uri": _encoded(upstream_uri)}, requested, is_whole)
        case _:
            return _completion(view, era, method, params, unlisted)


def resolve(
    view: CatalogView,
    era: Era,
    method: str,
    params: RawObject,
    unlisted: Unlisted,
    unwrapped: Callable[[RawObject], Route | None],
    meta: RequestMeta,
    rules: ViewRules,
) -> Route:
    """Like `route`; `unwrapped` has the route to the tool that a call of a hub's own tool runs, or None. A path of
    `meta` replaces a configured one; a wrong one raises `InvalidParams`. `rules` let unknown methods pass.
    """
    path = meta.path
    if method != "tools/call":
        if path is not None:
            raise InvalidParams(f"params._meta[{PATH!r}] is for tools/call, not for {method}")
        if method not in _ROUTED or not serves(era, method):
            return _passed(rules.servers, method, params, meta.rest)
        return route(view, era, method, params, unlisted)
    try:
        to = named(view, _TOOL, method, params, unlisted)
    except (UnknownEntry, InvalidParams):
        if (inner := unwrapped(params)) is None:
            raise
        to = inner
    else:
        if to.server == OWN:  # a name of the hub's own is nobody else's
            to = unwrapped(params) or to
    return to if path is None or to.refusal is not None else _with_path(to, path)


def _with_path(to: Route, path: str) -> Route:
    if to.server == OWN:
        raise InvalidParams(f"params._meta[{PATH!r}] is for tools of servers, not for the hub's own")
    check_path(path)
    return replace(to, path=path)


def text(params: RawObject, key: str, method: str) -> str:
    """A string member. Raises `InvalidParams`."""
    raw = params.get(key)
    try:
        return _string(raw if raw is not None else b"")
    except (msgspec.DecodeError, RecursionError):
        raise InvalidParams(f"{method}: params.{key} must be a string") from None


def _encoded(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


@lru_cache(4096)
def _encoded_name(name: str) -> msgspec.Raw:
    """One object for all calls of a tool or prompt."""
    return _encoded(name)


def named(view: CatalogView, kind: Kind, method: str, params: RawObject, unlisted: Unlisted) -> Route:
    """The route of a request for a tool or prompt. Raises like `route`."""
    arguments = params.get("arguments")
    if arguments is not None and bytes(memoryview(arguments)[:1]) not in (b"{", b"n"):
        if not is_absent(arguments):
            raise InvalidParams(f"{method}: params.arguments must be an object")
        params = {**params, "arguments": _NO_ARGUMENTS}
    try:
        name = _string(params.get("name", b""))
    except (msgspec.DecodeError, RecursionError):
        raise InvalidParams(f"{method}: params.name must be a string") from None
    entry = view.find(kind, name)
    if entry is None:
        if (finding := view.withheld.get((kind, name))) is not None:
            raise awaiting(name, finding, kind.value.capitalize())
        raise _unknown(view, kind, name, unlisted(name))
    if entry.key != name:
        params = {**params, "name": _encoded_name(entry.key)}
    if entry.supplied is not None:
        params = {**params, "arguments": entry.supplied.completed(params.get("arguments"), name)}
    return Route(entry.server, params, path=entry.path)


def _unknown(view: CatalogView, kind: Kind, name: str, server: UpstreamStatus | None) -> UnknownEntry:
    if server is not None:
        return _unlisted(kind, name, server)
    near = view.nearest(kind, name)
    hint = f". Did you mean {', '.join(near)}?" if near else ""
    if kind is _TOOL and name in view.removed:
        gone = f"Tool {name} is no longer offered{hint or '. List the tools again.'}"
        return UnknownEntry(gone, data={"nearest": near}, symbol="tool_removed")
    return UnknownEntry(f"Unknown {kind.value}: {hide_head(name, 200)}{hint}", data={"nearest": near})


def _unlisted(kind: Kind, name: str, server: UpstreamStatus) -> UnknownEntry:
    """Suggests no similar names: the server is missing."""
    reason = hide(server.reason or "") or None
    message = f'Its server "{server.server}" {condition(server.state, reason, server.failures)}' + (
        f": {reason}" if reason else ""
    )
    data: JsonObject = {"server": server.server, "state": server.state.value, "reason": reason}
    if server.code is not None:
        data["code"] = server.code
    return UnknownEntry(
        f"Unknown {kind.value}: {hide_head(name, 200)}. {message}", data={"nearest": [], "upstream": data}
    )


def awaiting(name: str, finding: UnapprovedTool, noun: str = "Tool") -> InvalidParams:
    """The error for a tool, prompt or skill that awaits approval."""
    server, tool = decoded(finding.server), decoded(finding.tool)
    message = (
        f"{noun} {hide_head(name, 500)} {finding.text}. Review it with: mcp-hub approve {quote(server)} {quote(tool)}"
    )
    data: JsonObject = {
        "server": finding.server,
        "tool": finding.tool,
        "reason": finding.kind,
        "members": [*finding.members],
    }
    return not_approved(message, data)


def _resource(view: CatalogView, era: Era, uri: str) -> tuple[str, str]:
    origin = view.resolve_uri(uri)
    if origin is None and (finding := view.resources.unapproved(uri)) is not None:
        raise awaiting(uri, finding, "Skill file")
    if origin is None:
        code = _RESOURCE_NOT_FOUND if era is Era.HANDSHAKE else None
        raise UnknownEntry(f"Resource not found: {hide_head(uri, 500)}", code=code, data={"uri": uri})
    return origin


def _passed(servers: Mapping[str, ServerRules], method: str, params: RawObject, meta: RawObject) -> Route:
    """The only server that lets the method through, else the one that `_meta` or the prefix of `params.name` names.

    Raises `method_not_found`, and `InvalidParams` with the possible servers.
    """
    candidates = [name for name, rules in servers.items() if passes(rules.passthrough, method)]
    if not candidates:
        raise method_not_found(f"Method not found: {hide_head(method, _LONGEST)}")
    if SERVER in meta:
        chosen = [name for name in candidates if name == _server(meta)]
    elif len(candidates) == 1:
        chosen = candidates
    else:
        chosen = _by_prefix({name: servers[name].prefix for name in candidates}, read_as(params.get("name", b""), str))
    if len(chosen) != 1:
        raise _unclear_server(method, candidates)
    return Route(chosen[0], params)


def _by_prefix(prefixes: Mapping[str, str | None], name: str | None) -> list[str]:
    fitting = {server: prefix for server, prefix in prefixes.items() if prefix and begins_with(name or "", prefix)}
    longest = max(map(len, fitting.values()), default=0)
    return [server for server, prefix in fitting.items() if len(prefix) == longest]


def _unclear_server(method: str, servers: list[str]) -> InvalidParams:
    choices = ", ".join(map(decoded, sorted(servers)[:_MOST_NAMED]))
    message = f"{hide_head(method, _LONGEST)} is a method of these servers: {choices}. Name one of them in "
    message += f"params._meta[{SERVER!r}], or by its prefix in params.name"
    return InvalidParams(message, data={"servers": sorted(servers)[:_MOST_NAMED]})


def _completion(view: CatalogView, era: Era, method: str, params: RawObject, unlisted: Unlisted) -> Route:
    try:
        ref = msgspec.json.decode(params.get("ref", b""), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        raise InvalidParams(f"{method}: params.ref must be an object") from None
    match text(ref, "type", f"{method} ref"):
        case "ref/prompt":
            prompt = named(view, Kind.PROMPT, f"{method} ref", ref, unlisted)
            return Route(prompt.server, {**params, "ref": _encoded(prompt.params)})
        case "ref/resource":
            uri = text(ref, "uri", f"{method} ref")
            template = view.find(Kind.TEMPLATE, uri)
            server, key = (template.server, template.key) if template else _resource(view, era, uri)
            return Route(server, {**params, "ref": _encoded({**ref, "uri": _encoded(key)})})
        case other:
            raise InvalidParams(f"{method}: unknown params.ref.type {hide_head(other, 100)!r}")


class AppRequests:
    """The requests of one session, where an app uses its own server's names; an exported name wins.

    `app_servers`: servers whose apps the session has read; None for a session of one request.
    """

    def __init__(self, view: CatalogView, app_servers: dict[str, None] | None, is_settled: Callable[[], bool]) -> None:
        self._view = view
        self._app_servers = app_servers
        self._is_settled = is_settled

    def exported(self, method: str, params: RawObject, meta: RawObject) -> RawObject:
        """An app's params in exported names. Raises `UnknownEntry`, also for ambiguous names."""
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
        candidates = [entry for entry in self._view.usable_tools if entry.key == name and entry.server in servers]
        candidates = [entry for entry in candidates if entry.app is None or entry.app.for_app]
        if server is not None and not candidates:
            raise UnknownEntry(f"Unknown tool: {hide_head(name, _LONGEST)} of server {hide_head(server, _LONGEST)!r}")
        if len(candidates) > 1:
            raise _unclear(f"tool: {hide_head(name, _LONGEST)}", [entry.exported for entry in candidates])
        return {**params, "name": msgspec.Raw(object_bytes(candidates[0].exported))} if candidates else params

    def _resource(self, uri: str, params: RawObject, server: str | None) -> RawObject:
        origin = self._view.resolve_uri(uri)
        if origin is None or server not in (None, origin[0]):
            servers = self._servers() if server is None else {server}
            exports = [
                exported for exported in (self._exported_uri(name, uri) for name in servers) if exported is not None
            ]
            if len(exports) > 1:
                raise _unclear(f"resource: {hide_head(uri, _LONGEST)}", exports)
            if not exports:
                return params
            params = {**params, "uri": msgspec.Raw(object_bytes(exports[0]))}
            origin = self._view.resolve_uri(exports[0])
        if self._app_servers is not None and origin is not None and origin[1].startswith(SCHEME):
            self._app_servers[origin[0]] = None
        return params

    def _exported_uri(self, server: str, uri: str) -> str | None:
        exported = self._view.exported_uri(server, uri, remembers=False)
        return exported if self._view.resolve_uri(exported) == (server, uri) else None

    def _servers(self) -> Collection[str]:
        if self._app_servers:
            return self._app_servers
        return {entry.server for entry in self._view.usable_tools if entry.has_app} if self._is_settled() else ()


def _server(meta: RawObject) -> str | None:
    return read_as(meta[SERVER], str) if SERVER in meta else None


def _unclear(subject: str, names: list[str]) -> UnknownEntry:
    choices = ", ".join(sorted(names)[:_MOST_NAMED])
    message = f"Unknown {subject}. Apps of several servers may mean it: use {choices}, or name the server in "
    message += f"_meta[{SERVER!r}]"
    return UnknownEntry(message, data={"nearest": sorted(names)[:_MOST_NAMED]})
