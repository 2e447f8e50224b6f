"""Starts calls at upstreams, and continues a lost hub's calls."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol, Self

import msgspec

from mcp_hub import aio
from mcp_hub.call import Call, CallChannel, CallHandler, MakeInfo, StreamInfo, Upstream
from mcp_hub.calls.attempts import Retries
from mcp_hub.calls.gates.steps import Gates, guarded, in_place_of, waits
from mcp_hub.calls.metering import is_tool_error
from mcp_hub.calls.plan import CallPlan, CallRules, ResumePoint, Sender, TimeLimits, Truncate
from mcp_hub.calls.reading.stored import own_name
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.results.long_results import LongResults
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.calls.timeouts import DETACHED
from mcp_hub.errors import CallCancelled, HubRestarted, RpcError
from mcp_hub.events import Completed, Progressed
from mcp_hub.protocol.shape import questions
from mcp_hub.types import OWN, Era, RawJson

FollowUp = Callable[[Call, CallChannel, CallHandler, Completed], Awaitable[Completed]]
"""Asks what a modern server's result asks for and repeats the call, until there is a result."""


class _Resumes(Protocol):
    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        """Continues a call, as an `Upstream` does."""


class _OwnCalls(_Resumes, Protocol):
    """Calls of the hub's own tools that another hub can continue."""

    def limits(self, call: Call) -> TimeLimits:
        """Limits of a call."""

    async def unreadable(self, row: StreamInfo, reason: str) -> RpcError:
        """The error of a call whose record cannot be read."""


_UNKNOWN = TimeLimits(60, 60), TimeLimits(60, 60)
"""For a server that is not configured any more."""
_CONNECTING: Final = 1.0
"""Seconds to wait for the server of a cancelled call, to notify it."""


class _Continuation(msgspec.Struct):
    """A decoded `StreamInfo.continuation`."""

    call: Call
    state: msgspec.Raw = msgspec.field(name="how")
    revoked: str | None = None

    @classmethod
    def of(cls, row: StreamInfo) -> Self:
        """Raises `msgspec.DecodeError`, and `ValueError` for another stream's call."""
        continuation = msgspec.json.decode(row.continuation or b"", type=cls)
        call = continuation.call
        if (call.id, call.principal, call.upstream, call.method) != (row.id, row.principal, row.server, row.method):
            raise ValueError("its record names another call")
        return continuation

    def plan(self, row: StreamInfo, progressed: Progressed | None = None, truncate: Truncate | None = None) -> CallPlan:
        point = ResumePoint(self.state, self.revoked)
        return CallPlan(truncate=truncate, may_last=False, resumption=point, progressed=progressed, events=row.last)

    def started(
        self, upstream: _Resumes | None, registry: CallRegistry, limits: TimeLimits, plan: CallPlan
    ) -> CallRecord:
        """Continues the call, or ends a cancelled one. Raises `Busy`."""

        async def resumed(call: Call, channel: CallChannel) -> Completed:
            try:
                if self.revoked is not None and waits(self.state):
                    raise CallCancelled(f"The call was cancelled before it was sent: {self.revoked}")
                if upstream is None:
                    text = f'server "{call.upstream}" is not configured in this hub.'
                    raise HubRestarted(text, data={"outcome": "unknown"})
                return await upstream.resume(call, channel, self.state)
            except RpcError:
                if self.revoked is not None:  # its server knows already, or cannot know; it ends as cancelled
                    registry.cancel(record, self.revoked)
                raise

        record = registry.start(self.call, resumed, limits, plan)
        if self.revoked is not None:
            aio.call_later(_CONNECTING, partial(registry.cancel, record, self.revoked))
        return record


class _AtGate(msgspec.Struct, frozen=True):
    """Continues calls that wait at a gate; `handler` sends them."""

    gates: Gates
    handler: CallHandler

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        return await self.gates.resume(call, channel, state, self.handler)


class CallStarter:
    """Starts calls. `limits` are each server's, for tool calls and other requests.

    `follow_up` serves detached calls of modern servers. `retention` None: nothing is truncated. `gates` hold
    for all calls of tools.
    """

    def __init__(
        self,
        registry: CallRegistry,
        streams: StreamTable,
        upstreams: Mapping[str, Upstream],
        limits: Mapping[str, tuple[TimeLimits, TimeLimits]],
        follow_up: FollowUp | None,
        retention: LongResults | None,
        rules: Callable[[str, str], CallRules] | None = None,
        hub_calls: _OwnCalls | None = None,
        gates: Gates | None = None,
    ) -> None:
        self.gates = Gates() if gates is None else gates
        self._hub_calls = hub_calls
        self._registry = registry
        self._streams = streams
        self._upstreams = upstreams
        self._limits = limits
        self._follow_up = follow_up
        self._retention = retention
        self._rules = rules
        self._retries = (
            Retries(partial(_rules_of, rules), registry.meters.ended_at, streams.clock) if rules is not None else None
        )

    def start(
        self,
        call: Call,
        truncate: Truncate | None,
        *,
        reads_only: Callable[[Call], bool] | None = None,
        explaining: Callable[[CallHandler], CallHandler] | None = None,
        asks: bool = False,
        in_place: bool = True,
        info: MakeInfo | None = None,
    ) -> CallRecord:
        """Starts a call at its upstream. Raises `Busy`.

        `explaining` wraps handlers to explain refusals to models. `asks`: the call may outlive its request. `in_place`:
        may write before returning.
        """
        of_tools, of_reads = self._limits[call.upstream]
        limits = of_tools if call.method == "tools/call" else of_reads
        upstream = self._upstreams[call.upstream]
        asks = asks or (call.era is Era.MODERN and self._streams.store.replicas is not None)
        layers = partial(self._layered, explaining, asks) if asks or explaining is not None else None
        passes = _is_no_refusal if explaining is not None else None
        in_place = in_place and not limits.retries_silence  # an attempt needs a task
        handler = upstream.call if layers is None else layers(upstream.call)
        sender: Sender | None = upstream if in_place else None
        if self.gates.makers and (steps := self.gates.steps(call)):
            handler, sender = guarded(steps, handler), None if sender is None else in_place_of(steps, sender)
        plan = CallPlan(
            upstream=sender, layers=layers, passes=passes, truncate=truncate,
            reads_only=reads_only, retries=self._retries, info=info,
        )  # fmt: skip
        return self._registry.start(call, handler, limits, plan)

    def _layered(
        self, explaining: Callable[[CallHandler], CallHandler] | None, asks: bool, handler: CallHandler
    ) -> CallHandler:
        if explaining is not None:
            handler = explaining(handler)
        return self._asking(handler) if asks else handler

    def _asking(self, handler: CallHandler) -> CallHandler:
        """Makes questions of a modern server's input requests, if detached or bound to this process."""

        async def asking(call: Call, channel: CallChannel) -> Completed:
            completed = await handler(call, channel)
            writer = self._streams.owned(call.id)
            if self._follow_up is None or completed.era is not Era.MODERN or not questions.may_ask(completed.result):
                return completed
            if (writer is not None and writer.is_detached) or self._keeps_state(call):
                return await self._follow_up(call, channel, handler, completed)
            return completed

        return asking

    def _keeps_state(self, call: Call) -> bool:
        if self._streams.store.replicas is None or self._rules is None:
            return False
        return _rules_of(self._rules, call).keeps_state

    def truncation(self, shows_output: Callable[[str], bool] | None) -> Truncate | None:
        """Truncates results too long for their caller; None: nothing is truncated.

        Structured content stays where `shows_output` says that its schema is shown.
        """
        return None if self._retention is None else partial(self._retention.fitted, shows_output)

    async def take_up(self, row: StreamInfo, progressed: Progressed | None) -> None:
        """Continues a lost hub's call, whose stream this hub owns. Raises `HubError`, and as `decode` of its record."""
        try:
            continuation = _Continuation.of(row)
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            if self._hub_calls is None or row.server != OWN:
                raise
            raise await self._hub_calls.unreadable(row, str(problem)) from None
        server = continuation.call.upstream
        hub_calls = self._hub_calls if server == OWN else None
        limits, _ = (
            self._limits.get(server, _UNKNOWN) if hub_calls is None else (hub_calls.limits(continuation.call), None)
        )
        if hub_calls is not None:  # a script asks before it writes
            continuation.call = msgspec.structs.replace(continuation.call, people=self.gates.people)
        plan = continuation.plan(row, progressed, self.truncation(None))
        upstream: _Resumes | None = hub_calls or self._upstreams.get(server)
        if waits(continuation.state) and server in self._upstreams:
            upstream = _AtGate(self.gates, self._upstreams[server].call)
        record = continuation.started(upstream, self._registry, limits, plan)
        for trail in self.gates.trails:
            trail.watch(record)
        self._streams.take_up(record, row).orphan(DETACHED)


def _rules_of(rules: Callable[[str, str], CallRules], call: Call) -> CallRules:
    return rules(call.upstream, own_name(call) if call.method == "tools/call" else "")


def _is_no_refusal(completed: Completed) -> bool:
    return not is_tool_error(completed.result)
