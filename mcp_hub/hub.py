"""The facade that every front calls: list, call, cancel, subscribe, levels, status. What lasts lives in its parts."""

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET

from mcp_hub.calls import own_tools
from mcp_hub.calls.keeping import Keeping
from mcp_hub.calls.left import Left
from mcp_hub.calls.own_tools import OwnTools
from mcp_hub.calls.parking import Leg, Parking, is_parked
from mcp_hub.calls.read_result import ReadResult
from mcp_hub.calls.registry import Registry
from mcp_hub.calls.rules import CallRules
from mcp_hub.calls.runner import CallRecord, TimeLimits
from mcp_hub.calls.stored import asked, last_progress, own_name
from mcp_hub.calls.streams import Streams
from mcp_hub.catalog import meta_tools
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.exposure import results_of
from mcp_hub.catalog.meta_tools import Finding, explaining, finding, refusing
from mcp_hub.catalog.routes import Route, route
from mcp_hub.catalog.view import CatalogView
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed
from mcp_hub.ids import new_call_id
from mcp_hub.protocol import extensions, questions, task_shape
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.protocol.rpc_errors import for_caller
from mcp_hub.sessions.session import Session
from mcp_hub.sessions.subscriptions import Subscriptions
from mcp_hub.stores.base import StreamRow
from mcp_hub.types import OWN, Audience, Era, Kind, RawJson, RawObject, UpstreamStatus
from mcp_hub.upstreams.base import Call, CallChannel, CallHandler, Upstream
from mcp_hub.upstreams.changes import Changes, Origin

__all__ = ["Facade", "FollowUp", "LongResults"]

FollowUp = Callable[[Call, CallChannel, CallHandler, Completed], Awaitable[Completed]]
"""Asks the caller what a modern server's result asks for and repeats the call with it, until there is a result."""

_ANYBODY: Final = Audience()
_DETACHED: Final = 3600.0
_READ_ONLY: Final = 30.0
_OTHERS: Final = 600.0
"""Seconds that a call may go on without a client: one that was meant to, one that only reads, any other."""
_SHORT: Final = TimeLimits(60, 60)
"""Of the hub's own tools that wait for no call."""
_MOST_TOKENS: Final = 8000
"""Of an answer of the hub's own to a client whose results are not cut."""
_CUT: Final = frozenset({"tools/call", "resources/read"})
"""Methods whose results may be cut."""


class _Hints(msgspec.Struct, frozen=True):
    readOnlyHint: bool = False


class _Hinted(msgspec.Struct):
    annotations: _Hints = _Hints()


class LongResults(msgspec.Struct, frozen=True):
    """Where results that are cut are kept, and how they are read on."""

    keeping: Keeping
    reading: ReadResult


class Facade:
    """One hub. `limits` holds each server's time limits, of tool calls and of everything else that is relayed (reads);
    `page_size` the entries of one list page. `task_after` is how many seconds the call of a client that takes tasks may
    run before it becomes one; `follow_up` serves those that have become one. `soft_deadline` is after how many seconds
    a session's calls are answered though they still run, None for never; `audience` is the kind of client it is of.
    Without `long_results` no result is cut. Mappings are live; `epoch` goes up when sessions have to look again.
    """

    def __init__(
        self,
        catalog: Catalog,
        registry: Registry,
        upstreams: Mapping[str, Upstream],
        limits: Mapping[str, tuple[TimeLimits, TimeLimits]],
        page_size: int,
        parking: Parking,
        changes: Changes,
        streams: Streams,
        rules: Callable[[str, str], CallRules] = lambda server, tool: CallRules(),
        task_after: float = 5.0,
        follow_up: FollowUp | None = None,
        soft_deadline: Callable[[Session], float | None] = lambda session: None,
        audience: Callable[[Session], Audience] = lambda session: _ANYBODY,
        long_results: LongResults | None = None,
    ) -> None:
        self._audience = audience
        self._long_results = long_results
        self.catalog = catalog
        self._soft_deadline = soft_deadline
        self._own_tools = OwnTools(streams)
        self.task_after = task_after
        self._follow_up = follow_up
        self.streams = streams
        streams.cancel_call, streams.go_on = registry.cancel, self._go_on
        self._rules = rules
        self.changes = changes
        self._registry = registry
        self._upstreams, self._limits = upstreams, limits
        self.page_size = page_size
        self.epoch = 0
        self.parking = parking
        self._subscriptions = Subscriptions(upstreams)

    def view(self, session: Session) -> CatalogView:
        """What the session's client is listed and can call."""
        if session.epoch != self.epoch:
            session.renew(self.epoch)
        return self.catalog.exposed(session.caller.profile, self.audience(session), session.mode)

    def audience(self, session: Session) -> Audience:
        """What kind of client the session is of."""
        found = session.audience
        if found is None:
            found = session.audience = self._audience(session)
        return found

    def soft_deadline(self, session: Session) -> float | None:
        """After how many seconds the session's calls are answered though they still run; None for never."""
        found = session.answers_after
        if found is UNSET:
            found = session.answers_after = self._soft_deadline(session)
        return found

    def list_page(self, session: Session, kind: Kind, cursor: str | None) -> bytes:
        """The encoded result of a list request, from what is known now. Raises `InvalidParams`."""
        view = self.view(session)
        if session.mode is None and kind is Kind.TOOL:
            session.mode = self.catalog.mode(session.caller.profile, self.audience(session))
        page = view.page(kind, session.era, cursor, self.page_size)
        if session.lists is not None and cursor is None:
            session.lists[kind] = self.list_digest(session, kind)
        return page

    def list_digest(self, session: Session, kind: Kind) -> int:
        """Tells the session's lists apart by their content, without keeping them."""
        return hash(tuple(entry.raw for entry in self.view(session).entries(kind)))

    def call(self, session: Session, method: str, params: RawObject, meta: RequestMeta) -> Leg:
        """Starts a call, or takes up the one that this is the retry of; says from which event on to follow it.

        Raises `InvalidParams`, `UnknownEntry`, `Busy`, and -32021 for a client that takes no tasks where it has to.
        """
        responses = state = None
        if session.era is Era.MODERN and ("inputResponses" in params or "requestState" in params):
            responses, state = questions.take_retry(params)
        view = self.view(session)
        deadline = self.soft_deadline(session)
        unlisted = partial(self.catalog.unlisted, session.caller.profile)
        meant = meta_tools.meant(view, session.era, method, params, lambda: self.catalog.is_settled, unlisted)
        to, params = meant.to, meant.params
        goes_on = method == "tools/call" and self._may_go_on(session, to, deadline)
        call = Call(
            id=new_call_id(),
            upstream=to.server,
            method=method,
            params=to.params,
            meta=meta.rest,
            session=session.id,
            principal=session.caller.principal,
            era=session.era,
            version=session.version,
            capabilities=session.capabilities,
            exported_uri=to.exported_uri,
            asked=params.get("name", params.get("uri", msgspec.UNSET)),
            wants_progress=goes_on or meta.token is not None,
            log_level=session.log_level,
            result_tokens=self.max_result_tokens(session) if method in _CUT else 0,
        )
        if state is not None and is_parked(state):
            parked = self.parking.fetch(state, call)
            for key, response in (responses or {}).items():
                parked.record.answer(key, response)
            return parked
        if responses is not None or state is not None:
            own = self.parking.unmark(call, state) if state is not None else None
            call = msgspec.structs.replace(call, input_responses=responses, request_state=own)
        if call.upstream == OWN:
            return Leg(self._call_own(session, call, deadline or 0, meant.refused))
        of_tools, of_reads = self._limits[call.upstream]
        limits = of_tools if method == "tools/call" else of_reads
        handler: CallHandler = self._upstreams[call.upstream].call
        if meant.entry is not None:
            handler = explaining(handler, meant.entry, meant.params.get("arguments", b"{}"))
        if session.era is Era.MODERN and (goes_on or "extensions" in session.capabilities):
            handler = self._asking(handler)
        return Leg(self._fitted(self._registry.start(call, handler, limits), view))

    def _fitted(self, record: CallRecord, view: CatalogView | None) -> CallRecord:
        """The call, whose result is cut and kept if it is too long for its caller.

        Structured content is left alone where the caller's `view` shows a schema of it, or nobody knows.
        """
        if record.call.result_tokens and self._long_results is not None:
            record.fit = partial(self._fit, view)
        return record

    async def _fit(self, view: CatalogView | None, call: Call, done: Completed) -> Completed:
        assert self._long_results is not None
        may_drop = view is not None and not view.shows_output(asked(call))
        return await self._long_results.keeping.fitted(call, done, may_drop_structured=may_drop)

    def _call_own(self, session: Session, call: Call, deadline: float, refused: RpcError | None) -> CallRecord:
        """Starts a call of one of the hub's own tools, or what `run_tool` is answered with. REST makes it a stream."""
        handler, limits = self._own_handler(session, call, deadline, refused)
        record = self._registry.start(call, handler, limits)
        record.lasting = None
        return self._fitted(record, None) if own_name(call) == meta_tools.FIND else record

    def _own_handler(
        self, session: Session, call: Call, deadline: float, refused: RpcError | None
    ) -> tuple[CallHandler, TimeLimits]:
        if refused is not None:
            return refusing(refused), _SHORT
        match own_name(call):
            case meta_tools.FIND:
                return finding(partial(self._finding, session)), _SHORT
            case meta_tools.READ if self._long_results is not None:
                return self._long_results.reading.handler(self._most_tokens(session)), _SHORT
            case _:
                caller = own_tools.Caller(deadline, partial(self.exported, session), partial(self.leave, session))
                return self._own_tools.handler(caller), own_tools.limits(deadline)

    async def _finding(self, session: Session) -> Finding:
        """Where `find_tools` looks for the session, once a list could be answered."""
        profile = session.caller.profile
        await self.catalog.settled()
        return Finding(
            view=self.catalog.view(profile),
            search=partial(self.catalog.search, profile),
            budget=self._most_tokens(session),
            starting=self.catalog.starting(profile),
        )

    def _most_tokens(self, session: Session) -> int:
        """Of an answer of the hub's own."""
        return self.max_result_tokens(session) or _MOST_TOKENS

    def max_result_tokens(self, session: Session) -> int:
        """Tokens above which the session's results are cut; 0 for never."""
        return results_of(self.catalog.rules(session.caller.profile), self.audience(session))

    def _may_go_on(self, session: Session, to: Route, deadline: float | None) -> bool:
        """Whether the call may be answered before it ends. Raises -32021 where it must be a task but cannot."""
        if to.server == OWN:
            return False
        return (session.era is Era.MODERN and self._may_be_task(session, to)) or deadline is not None

    def _may_be_task(self, session: Session, to: Route) -> bool:
        """Whether a modern client may be answered with a task. Raises -32021 where it must be but cannot."""
        rule = self._rules(to.server, msgspec.json.decode(to.params["name"], type=str)).task
        takes_tasks = extensions.declares(session.capabilities, session.era, extensions.TASKS)
        if rule == "required" and not takes_tasks:
            raise task_shape.missing_tasks()
        return takes_tasks and rule != "never"

    def _asking(self, handler: CallHandler) -> CallHandler:
        """`handler`, where what a modern server asks for becomes a question of the call once it goes on alone."""

        async def asking(call: Call, channel: CallChannel) -> Completed:
            done = await handler(call, channel)
            writer = self.streams.owned(call.id)
            is_alone = writer is not None and writer.is_detached
            if is_alone and self._follow_up is not None and done.era is Era.MODERN and questions.may_ask(done.result):
                return await self._follow_up(call, channel, handler, done)
            return done

        return asking

    def park(self, record: CallRecord, cursor: int) -> str:
        """Keeps a call whose modern caller has to gather input; the `requestState` of the retry."""
        return self.parking.park(record, cursor)

    def exported(self, session: Session, call: Call, result: RawJson) -> RawJson:
        """The result of a call with its resource URIs as the session's client can read them."""
        return self.catalog.exported_in_result(session.caller.profile, call, result)

    def is_shared(self, session: Session, record: CallRecord) -> bool:
        """Whether nothing but the upstream decided the result, so that caches of several users may keep it."""
        return self.catalog.is_shared(session.caller.profile) and not record.had_input

    def cancel(self, record: CallRecord, reason: str | None = None) -> None:
        """Ends a call because its caller said so; its upstream is told."""
        self._registry.cancel(record, reason)

    def rules(self, record: CallRecord) -> CallRules:
        """What is configured for the tool that is called; the defaults for what is no tool."""
        call = record.call
        return self._rules(call.upstream, own_name(call)) if call.method == "tools/call" else CallRules()

    def leave(self, session: Session, record: CallRecord) -> None:
        """The call's client is gone, which does not end the call by itself: it goes on as long as its tool may.

        Source: streams.md §3, "Orphan policy".
        """
        if record.log.ended or record.stopping is not None:
            return
        writer = self.streams.owned(record.call.id)
        if record.call.upstream == OWN and (writer is None or not writer.is_detached):
            self.cancel(record, "its client is gone")
            return
        writer = self.streams.begin(record)
        policy = self.rules(record).orphan
        if policy == "cancel" and not writer.is_detached:
            self.cancel(record, "its client is gone")
            return
        if policy is None or policy == "cancel":
            policy = _DETACHED if writer.is_detached else _READ_ONLY if self._is_read_only(session, record) else _OTHERS
        self.streams.orphan(record, math.inf if policy == "finish" else policy)

    def _is_read_only(self, session: Session, record: CallRecord) -> bool:
        """As the tool says of itself; what is read is."""
        if record.call.method != "tools/call":
            return True
        entry = self.view(session).find(Kind.TOOL, asked(record.call))
        try:
            hints = msgspec.json.decode(entry.raw if entry else b"{}", type=_Hinted).annotations
        except msgspec.DecodeError:
            return False
        return hints.readOnlyHint

    async def _go_on(self, row: StreamRow) -> None:
        """Takes up a call that another hub has left behind: its stream is this one's now."""
        left = Left.of(row)
        limits, _ = self._limits.get(left.call.upstream, (TimeLimits(60, 60), None))
        progressed = await last_progress(self.streams.store, row)
        record = self._fitted(left.started(self._upstreams.get(left.call.upstream), self._registry, limits), None)
        record.take_up(left.how, progressed, row.last, left.revoked)
        self.streams.take_up(record, row)
        self.streams.orphan(record, _DETACHED)

    async def subscribe(self, session: Session, uri: str) -> None:
        """Returns when its upstream watches the resource; updates are noted in `changes` from then on.

        Raises `UnknownEntry` as reading it would, `Busy`, and the error of an upstream that refuses.
        """
        if self.view(session).resolve_uri(uri) is None:
            await self.catalog.settled()  # its server may be on its way up: wait as long as a list would
        server, own = self._origin(session, uri)
        try:
            await self._subscriptions.add(session, (server, own), uri)
        except RpcError as error:
            raise for_caller(error, session.era, server, session.capabilities) from None

    def unsubscribe(self, session: Session, uri: str) -> None:
        """Ends the subscription to what the client knows as `uri`, if there is one."""
        known = [origin for origin, name in session.subscriptions.items() if name == uri]
        origin = known[0] if known else self.view(session).resolve_uri(uri)
        if origin is not None:
            self._subscriptions.remove(session, origin)

    def end(self, session: Session) -> None:
        """The client is gone, and with it what it was subscribed to. Idempotent."""
        self._subscriptions.clear(session)
        for upstream in self._upstreams.values():
            upstream.session_ended(session.id)

    def _origin(self, session: Session, uri: str) -> Origin:
        params = {"uri": msgspec.Raw(msgspec.json.encode(uri))}
        to = route(self.view(session), session.era, "resources/read", params)
        return to.server, msgspec.json.decode(to.params["uri"], type=str)

    def set_log_level(self, session: Session, level: str) -> None:
        """What the session wants to hear from now on; upstreams are asked for the most verbose level wanted."""
        session.log_level = level
        for upstream in self._upstreams.values():
            upstream.set_log_level(level)

    def statuses(self) -> list[UpstreamStatus]:
        """Every configured server, in configured order."""
        return [upstream.status() for upstream in self._upstreams.values()]
