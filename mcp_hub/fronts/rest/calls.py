"""Calls of tools over REST, prompts and reads of resources.

A call is a durable stream from its start: closing its connection does not end it. An idempotency key, stored with it,
stands for one request of its principal, at every hub on the store.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import Final

import anyio
import msgspec
from msgspec import UNSET, Raw, UnsetType
from starlette.responses import Response

from mcp_hub.call import OF_REST, CallingClient
from mcp_hub.errors import EventsGone, HubStopping, InvalidParams, UnknownEntry
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.rest.exchange import CODE_OFF, EVENT_STREAM, JSON, MOST_WAIT, RestRequest, answer, script
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.fronts.rest.streams import Closing, detailed, info, outcome, send_sse
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.masking import hide_head
from mcp_hub.protocol import eras
from mcp_hub.protocol.capabilities import SUPERSET
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.meta import TASKS, RequestMeta, take_meta
from mcp_hub.protocol.rest.calls import CallAnswer, CallBody, PromptBody, ReadBody
from mcp_hub.sessions.session import Caller, ClientOffer, Session
from mcp_hub.types import PROGRAM, RUN_CODE, Era, JsonObject, Kind, RawJson, RawObject, UpstreamState

_KEY: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?")
_WAIT: Final = 25.0
"""Seconds that a call is waited for unless its caller prefers another time."""
QUICK: Final = 0.25
"""Seconds in which a call must end to be answered with JSON, if the caller accepts both forms."""
_PREFERRED: Final = re.compile(r"\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*", re.IGNORECASE)
_OWN_PROGRAM: Final = re.compile("mcp-hub( [a-z]{1,20}){1,2}|dashboard")
"""Names in the header `X-MCP-Hub` by which commands and the page make calls."""
_TOKEN: Final = b'"rest"'
"""Progress is wanted; each upstream is given a token of the hub's own."""
SOON: Final = (b"retry-after", b"1")
_MOST_NAMED: Final = 20
_DOWN: Final = (UpstreamState.STARTING, UpstreamState.BACKING_OFF, UpstreamState.FAILED, UpstreamState.INCOMPATIBLE)
"""States in which a server lists nothing, though it should."""
_BATCH: Final = 256
_EMPTY: Final = Raw(b"{}")
CALL: Final = "tools/call"
_CAPABILITIES: Final[JsonObject] = {**SUPERSET, "extensions": {TASKS: {}}}
"""Everything can be asked, and is asked on the stream, as it is on a task."""


def key_of(request: RestRequest) -> str | None:
    """The request's idempotency key. Raises `Problem` if malformed."""
    key = request.header("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise Problem(400, "invalid_idempotency_key", "Idempotency-Key has to be 1 to 255 characters of ASCII")
    return key


def digest_of(name: str, arguments: RawJson) -> str:
    """A digest of tool and arguments, whatever the white space or order of members.

    Numbers count as written. `arguments` must be JSON. Raises `Problem` if nested too deep.
    """
    try:
        value = json.loads(bytes(arguments), parse_int=_Number, parse_float=_Number, object_pairs_hook=_members)
        text = repr([name, value])
    except RecursionError:
        raise Problem(400, "invalid_json", "the arguments are nested too deep") from None
    return sha256(text.encode()).hexdigest()


class _Number(str):
    """A number as written, unlike every text."""

    def __repr__(self) -> str:
        return str(self)


def _members(pairs: list[tuple[str, object]]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(dict(pairs).items(), key=lambda pair: pair[0]))


def rest_session(caller: Caller, key: str, program: str | None = None) -> Session:
    """A session of a program that can be asked everything; one of the hub's own has a name."""
    is_own = program is not None and _OWN_PROGRAM.fullmatch(program) is not None
    offer = ClientOffer(PROGRAM, "full", client=_own_client(program) if program is not None and is_own else None)
    return Session(
        id=key,
        caller=caller,
        era=Era.MODERN,
        version=eras.LATEST_MODERN,
        capabilities=_CAPABILITIES,
        log_level="info",
        offer=offer,
    )


@lru_cache(64)
def _own_client(program: str) -> CallingClient:
    return CallingClient(program)


class _McpRequest(msgspec.Struct, frozen=True):
    """An MCP request that becomes a stream. `name` is the tool, prompt or URI; `of_request` digests a larger HTTP
    request.
    """

    method: str
    name: str
    params: RawObject
    meta: RequestMeta
    of_request: str | None = None

    @property
    def arguments(self) -> Raw:
        return self.params.get("arguments", _EMPTY)

    @property
    def digest(self) -> str:
        name = self.name if self.method == CALL else f"{self.method} {self.name}"
        return self.of_request or digest_of(
            name if self.meta.path is None else f"{name} {self.meta.path}", self.arguments
        )


class RestCalls:
    """Serves `/v1/tools/…`, `/v1/code`, `/v1/prompts/…` and `/v1/resources/read`."""

    def __init__(self, hub: HubPort, closing: Closing) -> None:
        self._hub = hub
        self._closing = closing
        self._requests = 0

    async def call_tool(self, request: RestRequest) -> Response | None:
        """Responds with JSON, 202 after the wait, or SSE."""
        body = await request.shaped(CallBody)
        name, arguments = request.path["name"], _arguments(body.arguments)
        if body.tools is not UNSET:
            for tool in (name, self._hub.selected(name, arguments)):
                if tool not in body.tools:
                    raise Problem(
                        404, "unknown_tool", f"Unknown tool: {hide_head(tool, 200)} is not among the selected tools"
                    )
        return await self.serve(request, tool_call(name, arguments, body.meta, path=request.query_params.get("path")))

    async def run_code(self, request: RestRequest) -> Response | None:
        """Runs a script, and responds as `call_tool`."""
        arguments = await script(request)
        if self._hub.views.of(self.session(request)).find(Kind.TOOL, RUN_CODE) is None:
            raise Problem(403, "code_off", CODE_OFF)
        return await self.serve(request, tool_call(RUN_CODE, arguments, path=request.query_params.get("path")))

    async def get_prompt(self, request: RestRequest) -> Response | None:
        """Responds as `call_tool`."""
        body = await request.shaped(PromptBody)
        name = request.path["name"]
        params: RawObject = {"name": Raw(object_bytes(name)), "arguments": _arguments(body.arguments)}
        return await self.serve(request, _McpRequest("prompts/get", name, params, _meta(body.meta)))

    async def read_resource(self, request: RestRequest) -> Response | None:
        """Responds as `call_tool`."""
        body = await request.shaped(ReadBody)
        params: RawObject = {"uri": Raw(object_bytes(body.uri))}
        return await self.serve(request, _McpRequest("resources/read", body.uri, params, _meta(body.meta)))

    async def serve(self, request: RestRequest, mcp_request: _McpRequest) -> Response | None:
        """Makes the call, in the form and time of the request."""
        forms, prefers = request.accepts(JSON, EVENT_STREAM), request.header("prefer")
        wait = preferred_wait(prefers)
        key = key_of(request)
        try:
            stream = await self.begin(self.session(request), mcp_request, key, wait)
        except UnknownEntry as error:
            if mcp_request.method == CALL:
                raise
            raise Problem(404, "unknown_entry", str(error)) from None
        try:
            response = self._answer(request, stream, forms, None if prefers is None else wait)
            return await self._closing.connected(request, response)
        except HubStopping:  # its stream is there to come back to: who made the call again would make it twice
            row = stream.info
            raise Accepted(info(self._hub, row), (b"location", b"/v1/streams/" + row.id.encode())) from None
        finally:
            stream.let_go()

    # -- which call

    def session(self, request: RestRequest) -> Session:
        """A session for one request."""
        self._requests += 1
        return rest_session(request.caller, f"{OF_REST}{self._requests}", request.header("x-mcp-hub"))

    async def begin(
        self, session: Session, mcp_request: _McpRequest, key: str | None, wait: float = _WAIT
    ) -> StreamHandle:
        """The call's stream, new or joined; its follower lets it go. Starting servers are waited for, `wait` seconds at
        most. Raises `Problem` 503 if one may have the tool, and does not have it yet.
        """
        hub, principal, digest = self._hub, session.caller.principal, mcp_request.digest
        tool = hub.selected(mcp_request.name, mcp_request.arguments) if mcp_request.method == CALL else mcp_request.name
        await self.settled(session, mcp_request.method, tool, wait)
        joined = None
        if self._is_hidden(session, mcp_request):
            key = None  # it names a call of another of the principal's tokens, if any
        elif key is not None:
            joined = await hub.durable.with_key(principal, key, digest)
        elif self._is_known(session, mcp_request.method, mcp_request.name):
            joined = await hub.durable.equal_call(principal, digest)
        if joined is not None:
            if hub.durable.shows(session.caller.profile, joined.info):
                return joined
            key = None  # an equal name of another server
        try:
            call = hub.call(session, mcp_request.method, mcp_request.params, mcp_request.meta, in_place=False)
        except UnknownEntry as error:
            raise self._on_its_way(session.caller.profile, tool, error) or error from None
        begun = call.begin_stream(key, digest)  # what is acknowledged is not lost
        return await (begun if key is not None else self._closing.known(begun))

    def _on_its_way(self, profile: str | None, name: str, error: UnknownEntry) -> Problem | None:
        """A 503 if a starting server may bring the name: by its prefix, or without one."""
        starting = starting_servers(self._hub, profile)
        if (unlisted := self._hub.catalog.unlisted(profile, name)) is not None:
            starting = [server for server in starting if server == unlisted.server]
        return still_starting(starting, f"{error.message.partition('.')[0]}, at least until now") if starting else None

    async def settled(self, session: Session, method: str, name: str, wait: float) -> None:
        """Waits for starting servers that may have it, `wait` seconds at most."""
        catalog, profile = self._hub.catalog, session.caller.profile
        with anyio.move_on_after(wait):
            if method == "resources/read":
                await self._hub.uri_settled(catalog, profile, name)
            elif not self._is_known(session, method, name):
                await self._hub.views.arrived(session.caller)
                unlisted = catalog.unlisted(profile, name)
                await catalog.settled(
                    servers=catalog.starting(profile) if unlisted is None else (unlisted.server,),
                    is_enough=lambda: self._is_known(session, method, name),
                )

    def _is_hidden(self, session: Session, mcp_request: _McpRequest) -> bool:
        name, arguments = mcp_request.name, mcp_request.arguments
        tool = self._hub.selected(name, arguments) if mcp_request.method == CALL else name
        return session.caller.profile is not None and not self._is_known(session, mcp_request.method, tool)

    def _is_known(self, session: Session, method: str, name: str) -> bool:
        view = self._hub.views.of(session)
        if method == "resources/read":
            return view.resolve_uri(name) is not None
        return view.find(Kind.TOOL if method == CALL else Kind.PROMPT, name) is not None

    # -- its answer

    async def _answer(
        self, request: RestRequest, stream: StreamHandle, forms: list[str], wait: float | None
    ) -> Response | None:
        """None once events were sent. Raises `Accepted` after the wait, as `_json` does."""
        following = Following(stream, stream.info.first - 1)
        try:
            if forms == [JSON]:
                return await self._json(following, stream, wait)
            lines = [] if forms == [EVENT_STREAM] else await _quick(following)
            if following.closed and following.cursor == len(lines) == 2:  # the start and the ending
                return await _result_of(stream)
            await send_sse(following, request.streamed(), lines)
            return None
        finally:
            following.close()

    async def _json(self, following: Following, stream: StreamHandle, wait: float | None) -> Response:
        """Raises `Accepted` after the wait, with open questions; None: 25 s, or as soon as the caller is asked."""
        until = anyio.current_time() + (_WAIT if wait is None else wait)
        with suppress(EventsGone):  # so many that they were let go; the ending is not
            while not following.closed and (remaining := until - anyio.current_time()) > 0:
                if wait is None and stream.info.status == "input_required":
                    break
                await following.lines(_BATCH, remaining)
        if following.closed or stream.info.has_ended:
            return await _result_of(stream)
        raise Accepted(await detailed(self._hub, stream), (b"location", b"/v1/streams/" + stream.info.id.encode()))


async def _quick(following: Following) -> list[bytes]:
    until = anyio.current_time() + QUICK
    lines: list[bytes] = []
    while not following.closed and len(lines) < 2 and (remaining := until - anyio.current_time()) > 0:
        lines += await following.lines(_BATCH, remaining)
    return lines


async def _result_of(stream: StreamHandle) -> Response:
    row = stream.info
    return answer(CallAnswer(row.id, row.status, outcome(row.id, await stream.ending())))


class Accepted(Problem):
    """A 202: the calls continue, with streams to follow."""

    media = JSON

    def __init__(self, shape: object, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(202, "accepted", "the call continues", headers=headers)
        self._shape = shape

    def encoded(self) -> bytes:
        return msgspec.json.encode(self._shape)


def tool_call(
    name: str,
    arguments: Raw,
    meta: Raw | UnsetType = UNSET,
    of_request: str | None = None,
    *,
    path: str | None = None,
) -> _McpRequest:
    """A call of a tool; `path` wins over that of `_meta`. Raises `Problem` for an invalid `_meta`."""
    params: RawObject = {"name": Raw(object_bytes(name)), "arguments": arguments}
    request_meta = _meta(meta) if path is None else msgspec.structs.replace(_meta(meta), path=path)
    return _McpRequest(method=CALL, name=name, params=params, meta=request_meta, of_request=of_request)


def _arguments(raw: Raw | UnsetType) -> Raw:
    arguments = _EMPTY if raw is UNSET else raw
    if raw_object(arguments) is None:
        raise Problem(400, "invalid_body", "the body does not fit: `arguments` has to be an object")
    return Raw(bytes(arguments))


def _meta(raw: Raw | UnsetType) -> RequestMeta:
    try:
        meta = take_meta({} if raw is UNSET else {"_meta": raw})
    except InvalidParams as problem:
        raise Problem(400, "invalid_body", f"the body does not fit: {problem}") from None
    return msgspec.structs.replace(meta, token=_TOKEN, takes_events=True)


def preferred_wait(prefer: str | None, otherwise: float = _WAIT) -> float:
    """Seconds of `wait=N` (RFC 7240 §4.3), 0 for `respond-async` alone, else `otherwise`."""
    parts = [] if prefer is None else re.split("[,;]", prefer)
    for part in parts:
        if match := _PREFERRED.fullmatch(part):
            return min(float(match[1]), MOST_WAIT)
    return 0.0 if any(part.strip().lower() == "respond-async" for part in parts) else otherwise


def starting_servers(hub: HubPort, profile: str | None) -> list[str]:
    """Servers of a profile on their first way up, whose tools nobody knows."""
    statuses = {status.server: status for status in hub.statuses()}
    return [
        name
        for name in hub.catalog.starting(profile)
        if (status := statuses.get(name)) is not None and status.state is UpstreamState.STARTING and not status.failures
    ]


async def started_servers(hub: HubPort, profile: str | None, seconds: float) -> list[str]:
    """Waits until no server is starting; those that still are."""
    with anyio.move_on_after(seconds):
        while starting_servers(hub, profile):
            await hub.catalog.wait_changed(hub.catalog.version)
    return starting_servers(hub, profile)


def still_starting(names: Sequence[str], reason: str) -> Problem:
    """A 503 for what these servers may have."""
    listed = ", ".join(hide_head(name, 100) for name in names[:_MOST_NAMED])
    detail = (
        f"{reason}: {listed}{', …' if len(names) > _MOST_NAMED else ''} {'is' if len(names) == 1 else 'are'} starting."
    )
    return Problem(503, "starting", detail, headers=(SOON,), retryable=True, starting=list(names))


def check_up(hub: HubPort, profile: str | None, server: str | None) -> None:
    """Raises `Problem` 503 for a list without tools because its servers, or the given one, are down."""
    servers = hub.catalog.rules(profile).servers
    down = [
        status
        for status in hub.statuses()
        if status.server in servers and server in (None, status.server) and status.state in _DOWN
    ]
    if down:
        named = ", ".join(f"{hide_head(status.server, 100)} is {status.state}" for status in down[:_MOST_NAMED])
        members = [
            {"server": status.server, "state": status.state, **({"code": status.code} if status.code else {})}
            for status in down
        ]
        detail = f"There are no tools: {named}{', …' if len(down) > _MOST_NAMED else ''}. See GET /v1/servers."
        raise Problem(
            503, "upstream_unavailable", detail, headers=((b"retry-after", b"5"),), retryable=True, servers=members
        )
