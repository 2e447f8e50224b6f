"""The port of every front: lists, calls, streams, subscriptions, levels, status."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from mcp_hub.aio import Turn
from mcp_hub.call import OF_REST, Call, CallChannel, CallHandler, Early, MakeInfo, StreamInfo, Upstream
from mcp_hub.calls.code.runs import CodeRuns
from mcp_hub.calls.gates.steps import Gates
from mcp_hub.calls.handle import CallHandle, RemoteCall, followed_elsewhere, is_elsewhere, is_known, remote_call
from mcp_hub.calls.hub_tools import events as event_tool
from mcp_hub.calls.hub_tools import own_tools
from mcp_hub.calls.hub_tools.own_tools import OwnTools
from mcp_hub.calls.hub_tools.stream_wait import rejoined
from mcp_hub.calls.metering import BOUNDS, Durations, Figures, Load, LoadFigure, MethodFigures, load_figures
from mcp_hub.calls.pending_input import PendingInput, is_pending
from mcp_hub.calls.plan import CallPlan, CallRules, SessionRules, TimeLimits, Truncate
from mcp_hub.calls.reading.stored import own_name, script_of
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.results.long_results import LongResults
from mcp_hub.calls.runner import newest_progress
from mcp_hub.calls.starter import CallStarter, FollowUp
from mcp_hub.calls.streams.port import StreamHandle, StreamPort
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.catalog import texts
from mcp_hub.catalog.catalog import Catalog, caller_lists
from mcp_hub.catalog.discovery import meta_tools
from mcp_hub.catalog.discovery.answers import absent, event_types, have_events, live
from mcp_hub.catalog.discovery.capabilities import servers_have
from mcp_hub.catalog.discovery.meta_tools import ToolFinder, explaining, finding, refusing
from mcp_hub.catalog.resources.uris import mentions_uris
from mcp_hub.catalog.routes import Route, resolve, route
from mcp_hub.code.tool import RUN_CODE
from mcp_hub.errors import HubRestarted, RpcError, StoreUnavailable, method_not_found
from mcp_hub.events import Completed
from mcp_hub.notices import Notices, Origin
from mcp_hub.protocol.eras import LATEST_MODERN
from mcp_hub.protocol.jsonrpc.rpc_errors import for_caller, for_others
from mcp_hub.protocol.meta import TASKS, RequestMeta, declares
from mcp_hub.protocol.shape import questions, tasks
from mcp_hub.session_views import SessionViews, renew, routed, uri_settled
from mcp_hub.sessions.session import Caller, Session, SessionSubscriptions, call_of, marked
from mcp_hub.sessions.stored import SessionStore
from mcp_hub.types import HANDSHAKE, MODERN, OWN, ClientKind, Kind, RawJson, RawObject, UpstreamStatus

__all__ = [
    "BOUNDS", "Durations", "Figures", "FollowUp", "HubPort", "Load", "LoadFigure", "LongResults", "MethodFigures",
    "CallHandle", "RemoteCall", "StreamHandle", "followed_elsewhere", "is_elsewhere",
]  # fmt: skip

if TYPE_CHECKING:
    from mcp_hub.calls.feeds.reading import FeedReader as FeedReader
    from mcp_hub.event_port import EventPort

_ANYBODY: Final = ClientKind()
_LONG_WAIT: Final = 86400.0
"""The deadline, in seconds, of a wait for events that is a task."""
_SHORT: Final = TimeLimits(60, 60)  # of the hub's own tools that wait for no call
_MOST_TOKENS: Final = 8000  # of an answer of the hub's own to a client whose results are not cut


def _no_events(hub: "HubPort") -> "EventPort":
    raise method_not_found("This hub has no events.")


class HubPort:
    """One hub, for its fronts. Mappings are live.

    `limits` are each server's, for tool calls and for other requests. Without `long_results` no result is cut. `events`
    is loaded with its first use.
    """

    def __init__(
        self,
        catalog: Catalog,
        registry: CallRegistry,
        upstreams: Mapping[str, Upstream],
        limits: Mapping[str, tuple[TimeLimits, TimeLimits]],
        session_rules: SessionRules,
        pending_input: PendingInput,
        changes: Notices,
        streams: StreamTable,
        rules: Callable[[str, str], CallRules] = lambda server, tool: CallRules(),
        follow_up: FollowUp | None = None,
        client_kind: Callable[[Session], ClientKind] = lambda session: _ANYBODY,
        long_results: LongResults | None = None,
        turn: Turn | None = None,
        code: CodeRuns | None = None,
        events: "Callable[[HubPort], EventPort]" = _no_events,
    ) -> None:
        self.turn = turn if turn is not None else Turn()
        self._long_results = long_results
        self.catalog = catalog
        self.durable = StreamPort(streams, rules, lambda profile: catalog.rules(profile).servers)
        self.events = partial(events, self)
        self._own_tools = OwnTools(self.durable)
        self.session_store = SessionStore(streams.store.sessions, streams.store.replicas, streams.limits.retention)
        self._code = code
        self.starter = CallStarter(
            registry=registry, streams=streams, upstreams=upstreams, limits=limits, follow_up=follow_up,
            retention=long_results, rules=rules, hub_calls=_OwnCalls(self, code), gates=Gates(session_rules.people),
        )  # fmt: skip
        self.views = SessionViews(
            catalog=catalog, upstreams=upstreams, session_rules=session_rules, changes=changes,
            client_kind=client_kind, truncation=self.starter.truncation,
        )  # fmt: skip
        self.changes = changes
        self._registry = registry
        self.upstreams = upstreams
        self.session_rules = session_rules
        self._pending_input = pending_input
        self.subscriptions = SessionSubscriptions(upstreams, changes)

    selected = staticmethod(meta_tools.selected)
    runner_of = staticmethod(meta_tools.runner_of)
    uri_settled = staticmethod(uri_settled)
    servers_have = staticmethod(servers_have)
    have_events = staticmethod(have_events)
    is_known = staticmethod(is_known)
    newest_progress = staticmethod(newest_progress)
    script_of = staticmethod(script_of)

    def call(
        self, session: Session, method: str, params: RawObject, meta: RequestMeta, *, in_place: bool = True,
        info: MakeInfo | None = None, is_notice: bool = False,
    ) -> CallHandle:  # fmt: skip
        """Starts a call, or resumes a retried one. `in_place`: may write before returning. `info`: for its stream.
        `is_notice`: the server gets a notification.

        Raises `InvalidParams`, `UnknownEntry`, `Busy`, -32021 if the client cannot take a required task, and
        `StoreUnavailable` if replicas could not find it.
        """
        is_retry = session.era is MODERN and ("inputResponses" in params or "requestState" in params)
        retried = questions.take_retry(params := {**params}) if is_retry else None
        facts = self.views.facts(session)
        if facts.of_apps is not None:
            params = facts.of_apps.exported(method, params, meta.rest)
        to = resolve(facts.view, session.era, method, params, facts.unlisted, facts.unwrapped, meta, facts.rules)
        params = params if to.requested is None else to.requested
        early, is_script = None, to.server == OWN and self._code is not None and _runs_code(method, to)
        if method == "tools/call" and (to.server != OWN or is_script):
            early = facts.early if session.era is HANDSHAKE else self._early(session, to, facts.early)
        call = routed(session, method, params, to, meta, facts, early, self.session_rules.people, is_notice=is_notice)
        if retried is not None:
            resumed = self._retried(call, *retried, early)
            if isinstance(resumed, CallHandle):
                return resumed
            call = resumed
        if is_script and self._code is not None:
            return self._run_script(session, call, self._code, facts.truncate, early, info)
        if call.upstream == OWN:
            return self._call_own(session, call, facts.deadline, to.refusal, info)
        if self.durable.timed_out.running and (running := self.durable.timed_out.rejoin(call)) is not None:
            return CallHandle(running.call, running, self.durable, after=1, early=early)
        arguments = params.get("arguments", b"{}")
        explain = None if to.entry is None else partial(explaining, entry=to.entry, arguments=arguments)
        asks = session.era is MODERN and (early is not None or "extensions" in session.capabilities)
        record = self.starter.start(
            call, facts.truncate, reads_only=facts.reads_only, explaining=explain, asks=asks, in_place=in_place,
            info=info or (partial(marked, session.caller, session.client_info) if session.caller.has_own_hub else None),
        )  # fmt: skip
        return CallHandle(call, record, self.durable, early=early)

    def _run_script(
        self, session: Session, call: Call, code: CodeRuns, truncate: Truncate | None, early: Early | None,
        info: MakeInfo | None,
    ) -> CallHandle:  # fmt: skip
        plan = CallPlan(truncate=truncate, info=info or _mark(session), digest=code.likeness(call))
        record = self._registry.start(call, code.call, code.limits, plan)
        code.keep(call, record)
        return CallHandle(call, record, self.durable, early=early)

    def _retried(
        self, call: Call, responses: RawObject | None, state: str | None, early: Early | None
    ) -> CallHandle | Call:
        if state is not None and is_pending(state):
            if (elsewhere := self._pending_input.elsewhere(state, call)) is not None:
                return rejoined(self._registry, self.durable, elsewhere, call, responses or {}, early)
            pending = self._pending_input.fetch(state, call)
            waiting = CallHandle(
                call=pending.record.call, record=pending.record, streams=self.durable, after=pending.after,
                early=early,
            )  # fmt: skip
            if is_elsewhere(waiting):
                return rejoined(self._registry, self.durable, waiting.call.id, call, responses or {}, early)
            pending.answer(responses or {})
            return waiting
        upstream_state = self._pending_input.unmark(call, state) if state is not None else None
        return replace(call, input_responses=responses, request_state=upstream_state)

    def _call_own(
        self, session: Session, call: Call, deadline: float | None, refused: RpcError | None, info: MakeInfo | None
    ) -> CallHandle:
        early = self._waits_as_task(session) if own_name(call) == event_tool.EVENTS else None
        handler, limits = self._own_handler(session, call, deadline if early is None else _LONG_WAIT, refused)
        truncate = self.starter.truncation(None) if own_name(call) in (texts.FIND, event_tool.EVENTS) else None
        plan = CallPlan(truncate=truncate, may_last=early is not None, info=info)
        return CallHandle(call, self._registry.start(call, handler, limits, plan), self.durable, early=early)

    def _own_handler(
        self, session: Session, call: Call, deadline: float | None, refused: RpcError | None,
        state: RawJson | None = None,
    ) -> tuple[CallHandler, TimeLimits]:  # fmt: skip
        """The handler of a call of an own tool, and its limits. `state` is that of another hub."""
        if refused is not None:
            return refusing(refused), _SHORT
        match own_name(call):
            case texts.FIND:
                return finding(partial(self._finding, session)), _SHORT
            case texts.READ if self._long_results is not None:
                return self._long_results.handler(self._most_tokens(session)), _SHORT
            case event_tool.EVENTS:
                subscriptions = self._own_tools.event_subscriptions if session.era is HANDSHAKE else None
                handler = event_tool.handler(
                    session.id, subscriptions, own_tools.patience(deadline),
                    types=partial(self._event_types, session), check=partial(self.events().check, session),
                    open=partial(self.events().open, session), public=partial(self.events().public, session),
                    state=state,
                )  # fmt: skip
                return handler, own_tools.limits(deadline)
            case _:
                exported = partial(self.exported, session)
                handler = self._own_tools.handler(deadline, session.caller.profile, exported, session.origin)
                return handler, own_tools.limits(deadline)

    async def _event_types(self, session: Session, name: str | None) -> str:
        await self.views.settled(session)
        if name is not None:
            return texts.escaped(bytes(self.events().entry(session, name).raw).decode(errors="replace"))
        return event_types(self.views.of(session).entries(Kind.EVENT))

    def _waits_as_task(self, session: Session) -> Early | None:
        takes_tasks = declares(session.capabilities, session.era, TASKS)
        return Early(self.session_rules.task_after, is_task=True) if takes_tasks else None

    async def _finding(self, session: Session) -> ToolFinder:
        profile = session.caller.profile
        await self.views.settled(session)
        lists = caller_lists(self.upstreams, call_of(session))
        view, rules = self.catalog.view(profile, lists).for_model, self.catalog.rules(profile)
        renew(self.upstreams, rules.servers, Kind.TOOL)
        search, budget = partial(self.catalog.search, profile, lists=lists), self._most_tokens(session)
        servers, missing = live(view, rules, self.upstreams), absent(rules, self.upstreams)
        return ToolFinder(view=view, search=search, budget=budget, servers=servers, absent=missing)

    def _most_tokens(self, session: Session) -> int:
        return self.views.facts(session).result_tokens or _MOST_TOKENS

    def _early(self, session: Session, to: Route, otherwise: Early | None) -> Early | None:
        """The early answer, or None. Raises -32021 and `StoreUnavailable` as `call`."""
        rule = self.durable.tool_rules(to.server, msgspec.json.decode(to.params["name"], type=str)).task
        takes_tasks = declares(session.capabilities, session.era, TASKS)
        if rule == "required" and not takes_tasks:
            raise tasks.missing_tasks()
        if not takes_tasks or rule == "never":
            return otherwise
        is_asked = rule != "auto" and not session.id.startswith(OF_REST)  # where its stream may be this hub's alone
        if is_asked and self.durable.has_replicas and not self.durable.is_durable:
            raise StoreUnavailable("The call has to be a task, and the store does not answer. Try again in a moment.")
        return Early(self.session_rules.task_after if rule == "auto" else 0, is_task=True)

    def remote_call(
        self, call: Call, keys: Iterable[str], pass_on: Callable[[str, RawJson | RpcError], None] | None, *, last: int
    ) -> RemoteCall:
        """A call that runs elsewhere, with these open questions as of event `last`."""
        return remote_call(call, self.durable, keys, pass_on, last)

    def running_call(self, stream: StreamHandle) -> CallHandle | None:
        """The call of a stream, if it runs here."""
        record = stream.record
        return None if record is None else CallHandle(record.call, record, self.durable)

    def hold(self, call: CallHandle, cursor: int) -> str:
        """Keeps a call for a modern client's retry, by `requestState`. Raises `RpcError` as `PendingInput.hold`."""
        if isinstance(call, RemoteCall):
            return self._pending_input.seal(call.call)
        return self._pending_input.hold(call.record, cursor)

    def mark_state(self, call: Call, state: str) -> str:
        """A modern server's `requestState`, bound to principal and server. Raises `StoreUnavailable`."""
        return self._pending_input.mark(call, state)

    def exported(self, session: Session, call: Call, result: RawJson) -> RawJson:
        """The result with resource URIs that the client can read."""
        profile = session.caller.profile
        return self.catalog.exported_in_result(profile, call, result) if mentions_uris(result) else result

    def is_public(self, session: Session, call: CallHandle) -> bool:
        """Whether shared caches may store the result."""
        had_input = (
            call.record.questions.count or call.call.input_responses is not None or call.call.request_state is not None
        )
        return not had_input and self.catalog.rules(session.caller.profile).shared

    async def subscribe(self, session: Session, uri: str) -> None:
        """Returns once the upstream watches the resource; updates go to `changes`.

        Raises `UnknownEntry`, `Busy`, or the upstream's error.
        """
        await self.uri_settled(self.catalog, session.caller.profile, uri)  # its server may be on its way up
        server, original = self._origin(session, uri)
        try:
            await self.subscriptions.add(session, (server, original), uri)
        except RpcError as exc:
            error = exc if session.caller.shows_paths else for_others(exc)
            raise for_caller(error, session.era, server, session.capabilities) from None

    def unsubscribe(self, session: Session, uri: str) -> None:
        """Ends a subscription by the client's URI, if any."""
        origins = [origin for origin, name in session.subscriptions.items() if name == uri]
        origin = origins[0] if origins else self.views.of(session).resolve_uri(uri)
        if origin is not None:
            self.subscriptions.remove(session, origin)

    def end(self, session: Session) -> None:
        """Ends the session and its subscriptions. Idempotent."""
        self.subscriptions.clear(session)
        self.durable.connected.discard(session.id)
        event_tool.end(session.id, self._own_tools.event_subscriptions)
        for upstream in self.upstreams.values() if session.era is HANDSHAKE else ():
            upstream.session_ended(session.id)

    def _origin(self, session: Session, uri: str) -> Origin:
        to = route(
            self.views.of(session), session.era, "resources/read", {"uri": msgspec.Raw(msgspec.json.encode(uri))}
        )
        return to.server, msgspec.json.decode(to.params["uri"], type=str)

    def set_log_level(self, session: Session, level: str) -> None:
        """Sets the session's level; upstreams get the most verbose."""
        if session.set_log_level(level):
            for upstream in self.upstreams.values():
                upstream.set_log_level(level)

    def figures(self) -> Figures:
        return load_figures(self._registry.under_way), self._registry.meters.figures(self.upstreams)

    def statuses(self) -> list[UpstreamStatus]:
        return [upstream.status() for upstream in self.upstreams.values()]


class _OwnCalls:
    """Another hub's calls of own tools: scripts, and waits for events."""

    def __init__(self, hub: HubPort, code: CodeRuns | None) -> None:
        self._hub = hub
        self._code = code

    def limits(self, call: Call) -> TimeLimits:
        if own_name(call) == event_tool.EVENTS or self._code is None:
            return own_tools.limits(_LONG_WAIT)
        return self._code.limits

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        """Raises as `CodeRuns.resume`, `HubRestarted` for a state that cannot be read."""
        if own_name(call) == event_tool.EVENTS:
            return await self._waited(call, channel, state)
        if self._code is None:
            raise HubRestarted("This hub runs no scripts.")
        return await self._code.resume(call, channel, state)

    async def _waited(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        caller = Caller(
            call.principal, call.profile, has_own_hub=call.shows_paths, directory=call.directory, claims=call.claims
        )
        session = Session("", caller, MODERN, LATEST_MODERN)
        try:
            await self._hub.views.settled(session)
            handler, _ = self._hub._own_handler(session, call, _LONG_WAIT, None, state)
        except (msgspec.DecodeError, RecursionError, KeyError):  # KeyError: its profile is gone
            raise HubRestarted("The hub that waited for events is gone. Wait again.") from None
        return await handler(call, channel)

    async def unreadable(self, row: StreamInfo, reason: str) -> RpcError:
        if self._code is None or row.name == event_tool.EVENTS:
            return HubRestarted("The hub that ran this call is gone, and its record cannot be read.")
        return await self._code.unreadable(row, reason)


def _runs_code(method: str, to: Route) -> bool:
    is_call = method == "tools/call" and to.refusal is None
    return is_call and msgspec.json.decode(to.params["name"], type=str) == RUN_CODE


def _mark(session: Session) -> MakeInfo | None:
    return partial(marked, session.caller, session.client_info) if session.caller.has_own_hub else None
