"""One server kept up: its calls, tasks and subscriptions."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel, CallerConnection, CallHandler, Gate, Heard, SentCall
from mcp_hub.clock import Clock
from mcp_hub.errors import DeadlineExceeded, InvalidParams, RpcError, StartFailed, UpstreamUnavailable
from mcp_hub.events import Completed, failed_by, hubs_message
from mcp_hub.notices import Notices
from mcp_hub.protocol.jsonrpc.rpc_errors import FAILED, HEADER_MISMATCH, LONGEST_UNKNOWN, is_unknown, is_unknown_result
from mcp_hub.types import Kind, RawJson, Snapshot, UpstreamStatus
from mcp_hub.upstreams.lists.list_reader import ListFile
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import ServerLogs
from mcp_hub.upstreams.peer.task_poll import TaskLeft, TaskPoll
from mcp_hub.upstreams.peer.tasks import taken_up
from mcp_hub.upstreams.supervision.server import (
    STOP_REQUESTED,
    Handover,
    Lifecycle,
    ServerState,
    SharedServer,
    SupervisorRules,
)
from mcp_hub.upstreams.supervision.supervisor import Connection, Supervisor
from mcp_hub.wire.base import Pending, WireClosed

_LISTED: Final = {"tools/call": Kind.TOOL, "prompts/get": Kind.PROMPT}
"""Methods whose requests name an entry of a list."""
_MOST_SESSIONS: Final = 1024
"""Clients that are remembered as callers; the one that came first makes room."""


Refused = Callable[[Call, CallChannel, RpcError], Awaitable[Completed]]
"""The result of a call that ended with this error, if there is a way to one. Raises the error."""


async def _raised(call: Call, channel: CallChannel, error: RpcError) -> Completed:
    raise error


def _nothing_more(peer: Peer) -> None:
    """Does nothing."""


class _Sessions(dict[str, None]):
    def note(self, session: str) -> None:
        if session not in self:
            self[session] = None
            if len(self) > _MOST_SESSIONS:
                del self[next(iter(self))]


class ManagedUpstream:
    """An `Upstream` behind a supervised connection; `state` is its server's.

    `gate` checks each call when it is sent. For `lists`, `takes_turns` and `logs` see `ServerState`.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        rules: SupervisorRules,
        *,
        clock: Clock,
        changes: Notices,
        jitter: Callable[[], float] = random.random,
        lists: ListFile | None = None,
        takes_turns: bool = False,
        gate: Gate | None = None,
        starts: bool = True,
        logs: ServerLogs | None = None,
        on_ready: Callable[[Peer], None] = _nothing_more,
        refused: Refused = _raised,
    ) -> None:
        self.name = name
        self.state = state = ServerState(name, rules, changes, file=lists, takes_turns=takes_turns, logs=logs)
        self.supervisor = Supervisor(state, connect, clock=clock, jitter=jitter, starts=starts, on_ready=on_ready)
        self.doubts = _ListDoubts(state)
        self.lifecycle = _ManagedLifecycle(self)
        self.successor: CallHandler | None = None
        """Takes the calls that this one cannot send any more."""
        self.sessions = _Sessions()
        self._gate = gate
        self._refused = refused

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        """Writes a request; None unless the server is up, free and behind a pipe."""
        peer = self.state.peer
        if peer is None or not peer.can_begin(call):
            return None
        if peer.messages.is_interactive:
            self.state.turns.switch_on()
        snapshot, gate = self.state.lists.snapshot, self._gate
        if gate is not None and snapshot is not None and (
            call.must_read or call.method != "tools/call" or gate.approved.get(self.name) is not snapshot
        ):  # fmt: skip
            try:
                gate(call, snapshot, snapshot)
            except InvalidParams as refusal:
                if refusal.symbol != "not_read_only":
                    raise
                return None  # `call` refuses it where refusals are explained
        if not self.state.turns.enter_now(
            call.session, alone=call.log_level is not None and self.state.logs.rule == "turns"
        ):
            return None
        if call.directory is not None:
            self.sessions.note(call.session)
        if call.log_level is not None:
            self.state.set_log_level(call.log_level)
        try:
            return _Sent(_upstream=self, peer=peer, call=call, channel=channel, pending=peer.begin(call, channel))
        except WireClosed:
            self.state.turns.leave(call.session)
            return None

    def _end(self, call: Call, abandoned: CallChannel | None = None) -> None:
        if abandoned is not None and (abandoned.times.has_lapsed or failed_by(abandoned.stopping, DeadlineExceeded)):
            self.state.liveness.suspect()
        self.state.turns.leave(call.session, abandoned=abandoned is not None)

    @contextmanager
    def _in_turn(self, call: Call, channel: CallChannel) -> Iterator[None]:
        abandoned = None
        try:
            yield
        except anyio.get_cancelled_exc_class():
            abandoned = channel
            raise
        finally:
            self._end(call, abandoned)

    async def _finish(self, sent: "_Sent") -> Completed:
        with self._in_turn(sent.call, sent.channel):
            try:
                return self.doubts.look_at(sent.call, await sent.peer.finish(sent.call, sent.channel, sent.pending))
            except TaskLeft as left:
                return await self._follow(left.task, left)
            except RpcError as error:
                self.doubts.note(sent.call, error)
                return await self._refused(sent.call, sent.channel, error)

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Relays a call; waits briefly for a starting server.

        Raises `UpstreamUnavailable`, `Busy`, and what gate and `Peer.call` raise.
        """
        try:
            async with self._turn(call, channel):
                return await self._call(call, channel)
        except UpstreamUnavailable:  # nothing was sent
            if self.successor is None:
                raise
        return await self.successor(call, channel)

    @asynccontextmanager
    async def _turn(self, call: Call, channel: CallChannel) -> AsyncIterator[None]:
        """Raises `Busy`."""
        if self.state.peer is not None and self.state.peer.messages.is_interactive:
            self.state.turns.switch_on()
        alone = call.log_level is not None and self.state.logs.rule == "turns"
        if not self.state.turns.enter_now(call.session, alone=alone):
            waits = partial(channel.send, hubs_message(f'waits until another session has finished at "{self.name}"'))
            channel.times.begin_wait(self.state.turns.sessions)
            try:
                if await self.state.turns.enter(call.session, call.principal, alone=alone, waits=waits):
                    channel.send(hubs_message("its turn has come"))
            finally:
                channel.times.end_wait()
        with self._in_turn(call, channel):
            if call.directory is not None:
                self.sessions.note(call.session)
            if call.log_level is not None:
                self.state.set_log_level(call.log_level)
            yield

    async def _call(self, call: Call, channel: CallChannel) -> Completed:
        reason = None
        peer = self.state.peer
        if peer is None or not peer.wire.can_send:
            peer = await self._awaited(channel)
        for is_retry in (False, True):
            if self._gate is not None and (snapshot := self.state.lists.snapshot) is not None:
                self._gate(call, snapshot, snapshot)
            try:
                return self.doubts.look_at(call, await peer.call(call, channel))
            except WireClosed as exc:  # nothing was sent, so trying once more is safe
                reason = str(exc)
                peer = await self._awaited(channel)
            except TaskLeft as left:
                return await self._follow(left.task, left)
            except RpcError as refused:
                self.doubts.note(call, refused)
                if refused.code != HEADER_MISMATCH or peer.mirrors is None or is_retry:
                    return await self._refused(call, channel, refused)
                await self._learn_headers(peer, refused)
        raise self.supervisor.unavailable(reason)

    async def _awaited(self, channel: CallChannel) -> Peer:
        """Raises `UpstreamUnavailable`."""
        channel.times.begin_wait(f'server "{self.name}" to start')
        try:
            return await self.supervisor.next_peer(self.state.rules.ready_wait)
        finally:
            channel.times.end_wait()

    async def _follow(self, task: TaskPoll, cause: RpcError | None = None) -> Completed:
        """Follows a task over all connections. Raises `cause` if none comes."""
        while True:
            try:
                peer = await self.supervisor.next_peer(None)
            except UpstreamUnavailable as gone:
                raise cause or gone from None
            try:
                return await peer.follow(task)
            except TaskLeft as again:
                cause = again

    async def _learn_headers(self, peer: Peer, refused: RpcError) -> None:
        """Reads the tools again after the server refused a call's headers. Raises `refused`.

        Source: 2026-07-28, basic/transports/streamable-http "Client Behavior".
        """
        try:
            with anyio.move_on_after(self.state.rules.request_timeout):
                await self.state.lists.read(peer, {Kind.TOOL})
        except StartFailed:
            raise refused from None

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        """Follows an earlier hub's task; waits for a starting server as long as the call may take.

        Raises `HubRestarted`, outcome unknown.
        """
        task = taken_up(call, channel, state)
        try:
            async with self._turn(call, channel):
                return await self._follow(task)
        except UpstreamUnavailable as lost:
            raise task.not_continued(lost.message) from None

    def status(self) -> UpstreamStatus:
        return self.supervisor.status()

    def snapshot(self) -> Snapshot | None:
        return self.state.lists.snapshot

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        """Servers do not announce changes of skills."""
        peer = self.state.peer
        if kind is Kind.SKILL:
            return None if peer is None else self.state.lists.refresh(peer, Kind.SKILL)
        if peer is not None:
            self.state.lists.show(peer, kind, is_new=is_new)
        return None

    def set_log_level(self, level: str) -> None:
        self.state.set_log_level(level)

    def session_ended(self, session: str) -> None:
        self.sessions.pop(session, None)

    def apart(self, call: Call) -> CallerConnection | None:
        return None

    async def subscribe(self, uri: str, call: Call) -> None:
        self.state.subscriptions.resources.want(uri, call)
        await watched(self, uri)

    def unsubscribe(self, uri: str, call: Call) -> None:
        self.state.subscriptions.resources.release(uri, call.session)

    async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
        return await self.state.subscriptions.ask(await _reached(self), call, heard)


async def watched(upstream: ManagedUpstream, uri: str) -> None:
    """Waits until the server watches a wanted resource. Raises `RpcError`."""
    await _reached(upstream)
    await upstream.state.subscriptions.confirmed(uri)


async def _reached(upstream: ManagedUpstream) -> Peer:
    peer = upstream.state.peer
    if peer is None or not peer.wire.can_send:
        peer = await upstream.supervisor.next_peer(upstream.state.rules.ready_wait)
    return peer


class _ManagedLifecycle(Lifecycle):
    def __init__(self, upstream: ManagedUpstream) -> None:
        super().__init__()
        self._upstream = upstream
        self._supervisor = upstream.supervisor

    @property
    def peers(self) -> list[Peer]:
        return [] if self._supervisor.connected is None else [self._supervisor.connected]

    async def run(self) -> None:
        await self._supervisor.run()

    async def drain(self, seconds: float, why: str = STOP_REQUESTED) -> None:
        await self._supervisor.drain(seconds, why)

    def wake(self) -> None:
        self._supervisor.wake()

    def restart(self) -> None:
        self._supervisor.restart()

    def adjust(self, rules: SupervisorRules) -> None:
        self._supervisor.adjust(rules)

    def leave_tasks(self) -> None:
        self._supervisor.leave_tasks()

    def hand_over(self, successor: CallHandler) -> Handover:
        upstream, state = self._upstream, self._upstream.state
        upstream.successor = successor
        shared = SharedServer(upstream, upstream.sessions, (state,))
        return Handover(state.lists.last, state.log_level, state.subscriptions.resources.references, shared)

    def inherit(self, state: Handover) -> None:
        self._upstream.state.inherit(state)


class _ListDoubts:
    """Reads a list again if the server does not know its entry."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def look_at(self, call: Call, result: Completed) -> Completed:
        if FAILED.search(result.result, 0, LONGEST_UNKNOWN) and is_unknown_result(result.result):
            self._doubt(call)
        return result

    def note(self, call: Call, error: RpcError) -> None:
        if is_unknown(error):
            self._doubt(call)

    def _doubt(self, call: Call) -> None:
        kind = _LISTED.get(call.method)
        if kind is not None and self._state.peer is not None:
            self._state.lists.doubt(self._state.peer, kind)


class _Sent(msgspec.Struct, eq=False):
    _upstream: ManagedUpstream
    peer: Peer
    call: Call
    channel: CallChannel
    pending: Pending

    def then(self, callback: Callable[[], object]) -> None:
        self.pending.then(callback)

    def result(self) -> Completed | None:
        result = self.peer.result(self.call, self.pending)
        if result is not None and not result.is_plain and FAILED.search(result.result, 0, LONGEST_UNKNOWN):
            return self._upstream.doubts.look_at(self.call, result)
        return result

    def leave(self) -> None:
        self._upstream._end(self.call)

    def abandon(self) -> None:
        self.peer.abandon(self.call, self.pending)
        self._upstream._end(self.call, self.channel)

    async def finish(self) -> Completed:
        return await self._upstream._finish(self)
