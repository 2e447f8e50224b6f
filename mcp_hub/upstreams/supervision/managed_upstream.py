"""One server that is kept up (`supervisor`): its calls, tasks and subscriptions, over one connection after another."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel, CallHandler, SentCall, Upstream
from mcp_hub.errors import HubRestarted, NotReadOnly, RpcError, StartFailed, UpstreamUnavailable
from mcp_hub.events import Completed, hubs_message
from mcp_hub.masking import hide
from mcp_hub.protocol import eras
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.jsonrpc.rpc_errors import FAILED, HEADER_MISMATCH, LONGEST_UNKNOWN, is_unknown, is_unknown_result
from mcp_hub.types import Era, Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.lists.list_cache import CachedList
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import CONNECTION_LOST
from mcp_hub.upstreams.peer.task_poll import TaskLeft, TaskPoll, TaskUnknown
from mcp_hub.upstreams.peer.tasks import taken_up
from mcp_hub.upstreams.supervision.supervisor import Supervisor
from mcp_hub.wire.base import Pending, WireClosed

_LISTED: Final = {"tools/call": Kind.TOOL, "prompts/get": Kind.PROMPT}
"""Methods whose requests name an entry of a list."""
_MOST_SESSIONS: Final = 1024
"""Clients that are remembered as callers; the one that came first makes room."""


class Handover(msgspec.Struct, frozen=True):
    """The lists, the log level and the references to resources with which the successor of an upstream begins.

    A reference is a resource and a call of the session that wants it. `shared` is the old one, if it stays for the
    clients that have called it.
    """

    lists: CachedList | None
    log_level: str | None
    wanted: tuple[tuple[str, Call], ...]
    shared: "ManagedUpstream | None" = None


class ManagedUpstream(Supervisor, Upstream):
    """An `Upstream` behind a connection that is kept up."""

    _log_level: str | None = None
    _successor: CallHandler | None = None
    """Takes the calls that this one cannot send any more."""
    _sessions: dict[str, None] | None = None
    """Clients of a background hub that have called it."""

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        """As `Upstream.begin`; None while the upstream is not up, not free, or not behind a pipe."""
        peer = self._peer
        if peer is None or not peer.can_begin(call):
            return None
        if peer.is_interactive:
            self._turns.switch_on()
        if self._gate is not None and (snapshot := self._lists.snapshot) is not None:
            try:
                self._gate(call, snapshot, snapshot)
            except NotReadOnly:
                return None  # `call` refuses it where refusals are explained
        if not self._turns.enter_now(call.session, alone=call.log_level is not None and self._logs.rule == "turns"):
            return None
        if call.directory is not None:
            self._note_session(call.session)
        if call.log_level is not None:
            self.set_log_level(call.log_level)
        try:
            return _Sent(self, peer, call, channel, peer.begin(call, channel))
        except WireClosed:
            self._turns.leave(call.session)
            return None

    def _end(self, call: Call, abandoned: CallChannel | None = None) -> None:
        """The turn of a call is over; `abandoned` is the channel of one that was given up."""
        if abandoned is not None and abandoned.is_overdue:
            self._liveness.suspect()
        self._turns.leave(call.session, abandoned=abandoned is not None)

    @contextmanager
    def _in_turn(self, call: Call, channel: CallChannel) -> Iterator[None]:
        """The rest of a turn that a call has already."""
        abandoned = None
        try:
            yield
        except anyio.get_cancelled_exc_class():
            abandoned = channel
            raise
        finally:
            self._end(call, abandoned)

    async def _finish(self, sent: "_Sent") -> Completed:
        """The rest of a call that was begun in place."""
        with self._in_turn(sent.call, sent.channel):
            try:
                return self._looked_at(sent.call, await sent.peer.finish(sent.call, sent.channel, sent.pending))
            except TaskLeft as left:
                return await self._follow(left.task, left)
            except RpcError as error:
                self._doubt(sent.call, error)
                return await self._refused(sent.call, sent.channel, error)

    async def _refused(self, call: Call, channel: CallChannel, error: RpcError) -> Completed:
        """The result of a call that ended with this error, if there is a way to one. Raises the error."""
        raise error

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Relays a call, after a short wait if the upstream is on its way up.

        Raises `UpstreamUnavailable`, `Busy` when another session keeps it too long, and as the gate and `Peer.call`.
        """
        try:
            async with self._turn(call, channel):
                return await self._call(call, channel)
        except UpstreamUnavailable:  # nothing was sent
            if self._successor is None:
                raise
        return await self._successor(call, channel)

    @asynccontextmanager
    async def _turn(self, call: Call, channel: CallChannel) -> AsyncIterator[None]:
        """The turn of a call, for which it waits. Raises `Busy`."""
        if self._peer is not None and self._peer.is_interactive:
            self._turns.switch_on()
        alone = call.log_level is not None and self._logs.rule == "turns"
        if not self._turns.enter_now(call.session, alone=alone):
            waits = partial(channel.send, hubs_message(f'waits until another session has finished at "{self.name}"'))
            channel.times.begin_wait(self._turns.sessions)
            try:
                if await self._turns.enter(call.session, call.principal, alone=alone, waits=waits):
                    channel.send(hubs_message("its turn has come"))
            finally:
                channel.times.end_wait()
        with self._in_turn(call, channel):
            if call.directory is not None:
                self._note_session(call.session)
            if call.log_level is not None:
                self.set_log_level(call.log_level)
            yield

    def _note_session(self, session: str) -> None:
        """A client of a background hub calls it."""
        if self._sessions is None:
            self._sessions = {}
        if session not in self._sessions:
            self._sessions[session] = None
            if len(self._sessions) > _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]

    async def _call(self, call: Call, channel: CallChannel) -> Completed:
        reason = None
        peer = self._peer
        if peer is None or not peer.wire.can_send:
            peer = await self._awaited(channel)
        for is_retry in (False, True):
            if self._gate is not None and (snapshot := self._lists.snapshot) is not None:
                self._gate(call, snapshot, snapshot)
            try:
                return self._looked_at(call, await peer.call(call, channel))
            except WireClosed as exc:  # nothing was sent, so trying once more is safe
                reason = str(exc)
                peer = await self._awaited(channel)
            except TaskLeft as left:
                return await self._follow(left.task, left)
            except RpcError as refused:
                self._doubt(call, refused)
                if refused.code != HEADER_MISMATCH or peer.mirrors is None or is_retry:
                    return await self._refused(call, channel, refused)
                await self._learn_headers(peer, refused)
        raise self._unavailable(reason)

    async def _awaited(self, channel: CallChannel) -> Peer:
        """The peer that a call is sent to, for which it waits a little. Raises `UpstreamUnavailable`."""
        channel.times.begin_wait(f'server "{self.name}" to start')
        try:
            return await self._next_peer(self._rules.ready_wait)
        finally:
            channel.times.end_wait()

    def _looked_at(self, call: Call, done: Completed) -> Completed:
        """The result of a call; one that says that the server does not know the tool has its list read again."""
        if FAILED.search(done.result, 0, LONGEST_UNKNOWN) and is_unknown_result(done.result):
            self._reread(call)
        return done

    def _doubt(self, call: Call, refused: RpcError) -> None:
        """As `_looked_at`, for an error."""
        if is_unknown(refused):
            self._reread(call)

    def _reread(self, call: Call) -> None:
        kind = _LISTED.get(call.method)
        if kind is not None and self._peer is not None:
            self._lists.doubt(self._peer, kind)

    async def _follow(self, task: TaskPoll, left: RpcError | None = None) -> Completed:
        """Follows a task to its end, over one connection after the other. Raises as `Peer.follow`, or `left`."""
        while True:
            try:
                peer = await self._next_peer(None)
            except UpstreamUnavailable as gone:
                raise left or gone from None
            try:
                return await peer.follow(task)
            except TaskLeft as again:
                left = again

    async def _learn_headers(self, peer: Peer, refused: RpcError) -> None:
        """The server found the headers of a call wrong: the call is to be repeated with those of its present tools.

        Raises `refused` if there are not any. Source: 2026-07-28, basic/transports/streamable-http "Client Behavior".
        """
        try:
            with anyio.move_on_after(self._rules.request_timeout):
                await self._lists.read(peer, {Kind.TOOL})
        except StartFailed:
            raise refused from None

    async def resume(self, call: Call, channel: CallChannel, how: RawJson) -> Completed:
        """As `Upstream.resume`; waits for a server on its way up as long as the call may take.

        Raises `HubRestarted`, outcome unknown, if the server does not come up or does not know the task of the call.
        """
        task = taken_up(call, channel, how)
        try:
            async with self._turn(call, channel):
                return await self._follow(task)
        except (TaskUnknown, UpstreamUnavailable) as lost:
            raise HubRestarted(
                f"The hub was restarted and cannot continue the call: {lost.message}",
                data=task.about({"outcome": "unknown"}),
            ) from None

    def hand_over(self, successor: CallHandler) -> Handover:
        """From now on `successor` takes the calls that this one cannot send; returns its state for the successor."""
        self._successor = successor
        return Handover(self._lists.last, self._log_level, self._subscriptions.resources.references)

    def inherit(self, state: Handover) -> None:
        """Stands in for another one from the beginning, before it runs."""
        self._log_level = state.log_level
        self._lists.inherit(state.lists)
        for uri, call in state.wanted:
            self._subscriptions.resources.want(uri, call)

    def status(self) -> UpstreamStatus:
        life, last, connection, peer = self._life, self._lists.last, self._connection, self._connected
        known = peer.info if peer else last
        notes = connection.notes if peer and connection else ()
        state, reason, code, failures = life.state, life.reason, life.code, life.streak
        if peer is not None and peer.signs.is_bad and state is UpstreamState.READY:
            state, failures, bad = UpstreamState.BACKING_OFF, peer.signs.failures, peer.signs.reason
            code, reason = bad if bad is not None else CONNECTION_LOST
        return UpstreamStatus(
            server=self.name,
            state=state,
            reason=reason,
            era=known.era if known else None,
            version=known.version if known else None,
            server_info=known.server_info if known else None,
            restarts=life.restarts,
            pid=connection.pid if peer and connection else None,
            stderr=(tuple(connection.stderr) if connection else ()) or (() if peer else self._last_output),
            warnings=(*map(hide, (*notes, *(last.snapshot.warnings if last else ()))), *self._lists.unsteady),
            unsteady=self._lists.unsteady,
            listed_at=last.at if last else None,
            asks=peer is not None and peer.is_interactive,
            rests=life.rests,
            code=code,
            failures=failures,
            logs=self._logs.flow(),
            noise=peer.strays.summary if peer else None,
        )

    def snapshot(self) -> Snapshot | None:
        """Its last lists, of this hub or an earlier one, whatever its state is now."""
        return self._lists.snapshot

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        """As `Upstream.refresh`: servers do not announce that skills have changed. None is started for an old list."""
        if kind is Kind.SKILL:
            return self._refresh_skills()
        self._show(kind, is_new=is_new)
        return None

    def _show(self, kind: Kind, *, is_new: bool) -> None:
        if self._peer is not None:
            self._lists.show(self._peer, kind, is_new=is_new)

    def _refresh_skills(self) -> Callable[[], Awaitable[None]] | None:
        return None if self._peer is None else self._lists.refresh(self._peer, Kind.SKILL)

    def set_log_level(self, level: str) -> None:
        """Asks a handshake upstream for messages of `level` and above; never lowered to a less verbose one."""
        if self._log_level is not None and _verbosity(self._log_level) <= _verbosity(level):
            return
        self._log_level = level
        if self._peer is not None:
            self._on_ready(self._peer)

    def _move_after(self, wait: float, moves: Callable[[str], None]) -> None:
        """As `Turns.move_after`; the call of a session that has moved goes to the successor."""
        self._turns.move_after(wait, moves)

    def session_ended(self, session: str) -> None:
        """It has not called any more."""
        if self._sessions is not None:
            self._sessions.pop(session, None)

    async def subscribe(self, uri: str, call: Call) -> None:
        """As `Upstream.subscribe`, after a short wait if the upstream is on its way up."""
        self._subscriptions.resources.want(uri, call)
        await self._watched(uri)

    async def _watched(self, uri: str) -> None:
        """Returns when the server watches a resource that is wanted. Raises as `subscribe`."""
        if self._peer is None or not self._peer.wire.can_send:
            await self._next_peer(self._rules.ready_wait)
        await self._subscriptions.confirmed(uri)

    def unsubscribe(self, uri: str, call: Call) -> None:
        self._subscriptions.resources.release(uri, call.session)

    def _on_ready(self, peer: Peer) -> None:
        """Sends the log level. A server that has just died gets it when it is back: no other call fails with it."""
        if self._log_level and peer.info.era is Era.HANDSHAKE and "logging" in peer.info.capabilities:
            params = object_bytes({"level": self._log_level})
            with suppress(WireClosed):
                peer.wire.request("logging/setLevel", params)


class _Sent(msgspec.Struct, eq=False):
    """A call at the server whose request is written: a `SentCall`."""

    _upstream: ManagedUpstream
    peer: Peer
    call: Call
    channel: CallChannel
    pending: Pending

    def then(self, callback: Callable[[], object]) -> None:
        self.pending.then(callback)

    def result(self) -> Completed | None:
        done = self.peer.result(self.call, self.pending)
        if done is not None and not done.is_plain and FAILED.search(done.result, 0, LONGEST_UNKNOWN):
            return self._upstream._looked_at(self.call, done)
        return done

    def leave(self) -> None:
        self._upstream._end(self.call)

    def abandon(self) -> None:
        self.peer.abandon(self.call, self.pending)
        self._upstream._end(self.call, self.channel)

    async def finish(self) -> Completed:
        return await self._upstream._finish(self)


def _verbosity(level: str) -> int:
    return eras.LOG_LEVELS.index(level) if level in eras.LOG_LEVELS else 0
