"""`account: own`: one connection or process per principal, with that principal's account and lists.

It begins with the first list or call, and ends after `part_idle` seconds without a call. The common lists are empty. A
principal without an account is listed one tool, which asks for it.
"""

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
import anyio.abc

from mcp_hub.call import Call, CallChannel, CallerConnection, CallHandler, Heard, SentCall
from mcp_hub.clock import Clock
from mcp_hub.errors import (
    AccountNeeded,
    HttpRefused,
    HubRestarted,
    RpcError,
    StartFailed,
    UpstreamUnavailable,
)
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.notices import Notices
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.types import MODERN, Cause, Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.accounts.accounts import Accounts
from mcp_hub.upstreams.accounts.rows import Account
from mcp_hub.upstreams.accounts.waiting import WAITS
from mcp_hub.upstreams.auth.grants import LoginFailed
from mcp_hub.upstreams.lists.list_union import LOG_IN, PrincipalLists
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.wanted import WantedResources
from mcp_hub.upstreams.supervision.server import (
    STOP_REQUESTED,
    Handover,
    Lifecycle,
    OwnedUpstream,
    SupervisorRules,
)
from mcp_hub.upstreams.supervision.side_connections import (
    PrincipalConnection,
    PrincipalConnections,
    side_notices,
    topic_of,
)

log = get_logger(__name__)

_MOST_REMEMBERED: Final = 4096
"""Principals whose lack of an account is remembered."""
_LOOK_AGAIN: Final = 5.0
"""Seconds after which the store is asked again for a missing account: another hub may have it."""
_ENDED: Final = Cause("stopped", "the account was removed or replaced")

MakeConnection = Callable[[str, Account | None, Notices], OwnedUpstream]
"""Makes a principal's upstream with its account. Raises `StartFailed` for one that cannot be used."""


class PerPrincipal:
    """An `Upstream` with a connection for each principal, at most `limit`.

    `make` makes one. `check` raises `AccountNeeded` for an insufficient account. `listed` gets the union of all lists
    when it changes.
    """

    def __init__(
        self,
        name: str,
        make: MakeConnection,
        check: Callable[[str, Account | None], None],
        accounts: Accounts,
        rules: SupervisorRules,
        *,
        limit: int,
        clock: Clock,
        changes: Notices,
        listed: Callable[[Snapshot], object] = lambda union: None,
    ) -> None:
        self.name = name
        self.lifecycle = _PrincipalsLifecycle(self)
        self._accounts = accounts
        self._make = partial(_made, make, check)
        self._members = PrincipalConnections(name, limit, rules=rules, clock=clock, changes=changes)
        self._lists = PrincipalLists(name)
        self._lacking: OrderedDict[str, tuple[RpcError, float]] = OrderedDict()
        self._resolving: set[str] = set()
        self._resources = WantedResources(name, Notices())
        self._listed = listed

    # -- connections ----------------------------------------------------------------------------------------------

    async def _member(self, principal: str) -> PrincipalConnection:
        """The principal's connection, begun if needed. Raises `AccountNeeded`, `UpstreamUnavailable`, `Busy`."""
        if (member := self._members.get(principal)) is None:
            try:
                account = await self._accounts.followed(self.name, principal)
                if (member := self._members.get(principal)) is None:
                    member = self._start(principal, account)
            except LoginFailed as problem:
                data = {"upstream": {"server": self.name, "code": "login_failed"}}
                raise UpstreamUnavailable(f'server "{self.name}" was not called: {problem}', data=data) from None
            except StartFailed as problem:
                data = {"upstream": {"server": self.name, "code": problem.code}}
                raise UpstreamUnavailable(f'server "{self.name}" was not called: {problem}', data=data) from None
            except AccountNeeded as needed:
                self._note_lack(principal, needed)
                self._lists.forget(principal)
                raise
        if (refusal := member.refusal(principal)) is not None:
            raise refusal
        return member

    def _start(self, principal: str, account: Account | None) -> PrincipalConnection:
        members = self._members
        changes = side_notices(self.name, members.changes, principal)
        upstream = self._make(principal, account, changes)
        member = members.begin(principal, upstream, changes)
        references = tuple(pair for pair in self._resources.references if pair[1].principal == principal)
        upstream.lifecycle.inherit(Handover(log_level=members.log_level, references=references))
        self._lacking.pop(principal, None)
        assert members.tasks is not None
        members.tasks.start_soon(self._run, principal, member, account, name=f"upstream {self.name} of a principal")
        return member

    async def _run(self, principal: str, member: PrincipalConnection, account: Account | None) -> None:
        with member.scope, suppress(LoginFailed):
            if account is not None:
                await self._accounts.used(self.name, principal)
            async with self._accounts.watched(self.name, principal), anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, principal, member)
                await member.upstream.lifecycle.run()
                tasks.cancel_scope.cancel()
        if self._members.get(principal) is member:
            self._members.stop(principal)
        self._members.changes.bump()

    async def _follow(self, principal: str, member: PrincipalConnection) -> None:
        seen: tuple[Snapshot | None, UpstreamState] | None = None
        while True:
            version = member.changes.version
            state = member.upstream.snapshot(), member.upstream.status().state
            if seen is None or seen[0] is not state[0] or seen[1] is not state[1]:
                seen = state
                if self._members.get(principal) is member:
                    self._take(principal, member)
                self._members.changes.bump()
            await member.changes.wait(version)

    def _take(self, principal: str, member: PrincipalConnection) -> None:
        lists = member.upstream.snapshot()
        if lists is None or not member.take(lists, partial(self._lists.put, principal)):
            return
        self._members.changes.bump()  # who has looked at this version has not seen them
        if (union := self._lists.union(lists)) is not None:
            self._listed(union)

    def _note_lack(self, principal: str, lack: RpcError) -> None:
        self._lacking[principal] = lack, self._members.clock.now()
        if len(self._lacking) > _MOST_REMEMBERED:
            self._lacking.popitem(last=False)

    def _forget(self, server: str, principal: str) -> None:
        if server == self.name:
            self._members.stop(principal, _ENDED)
            self._lists.forget(principal)
            self._lacking.pop(principal, None)
            self._members.changes.bump()

    # -- calls ----------------------------------------------------------------------------------------------------

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        return None

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Relays a call with the principal's account; without one it is for `Accounts.needed`."""
        if (successor := self._members.successor) is not None:
            return await successor(call, channel)
        while True:
            try:
                member = await self._member(call.principal)
            except AccountNeeded as needed:
                if not self._accounts.needed:
                    raise
                if (result := await self._accounts.needed[-1](needed, call, channel)) is not None:
                    return result
                if (refused := self._members.get(call.principal)) is not None and refused.refusal(call.principal):
                    self._members.stop(call.principal)  # another hub has the new login, and this one has not looked yet
                if _is_log_in(call):
                    return _logged_in(self.name)
                continue
            if (completed := await self._sent(member, call, channel)) is not None:
                return completed

    async def _sent(self, member: PrincipalConnection, call: Call, channel: CallChannel) -> Completed | None:
        """The result; None if nothing was done, since the server does not accept the login any more."""
        try:
            with self._members.call(member):
                return await member.upstream.call(call, channel)
        except (HttpRefused, UpstreamUnavailable) as problem:
            if isinstance(problem, HttpRefused):
                if problem.status != 401:
                    raise
                await member.settled()
            if member.refusal(call.principal) is None:
                raise
            return None

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        """Raises `HubRestarted` without the account, unless the call waited for it."""
        if bytes(state) == WAITS:
            return await self.call(call, channel)
        try:
            member = await self._member(call.principal)
        except (UpstreamUnavailable, AccountNeeded) as lack:
            text = f"The hub was restarted and cannot continue the call: {lack.message}"
            raise HubRestarted(text, data={"outcome": "unknown"}) from None
        with self._members.call(member):
            return await member.upstream.resume(call, channel, state)

    # -- lists ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot | None:
        return self._lists.common

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        return None

    def apart(self, call: Call) -> CallerConnection | None:
        """The principal's lists, never those of others. Begins its connection if they are unknown."""
        principal = call.principal
        lists, is_coming = self._lists.of(principal), False
        if (member := self._members.get(principal)) is not None:
            self._take(principal, member)
            lists = member.lists[1] if member.lists is not None else lists
            if member.refusal(principal) is not None:  # a call of what it listed asks for another login
                lists = lists or self._lists.login
            elif (second := member.upstream.apart(call)) is not None and second.lists is not None:
                lists = self._lists.put(principal, second.lists)
            is_coming = lists is None and member.is_starting
        elif lists is None:
            lack, at = self._lacking.get(principal, (None, -math.inf))
            lists = self._lists.login if isinstance(lack, AccountNeeded) else None
            if self._members.clock.now() - at > _LOOK_AGAIN:
                self._resolve(principal)
                is_coming = lists is None
        arrival = partial(self._arrived, principal) if is_coming else None
        topic = topic_of(self.name, principal)
        return CallerConnection(topic, lists or self._lists.common, arrival, is_open=member is not None)

    def _resolve(self, principal: str) -> None:
        if principal in self._resolving or self._members.tasks is None:
            return
        self._resolving.add(principal)
        self._members.tasks.start_soon(self._resolved, principal, name=f"account at {self.name}")

    async def _resolved(self, principal: str) -> None:
        try:
            await self._member(principal)
        except RpcError as problem:
            self._note_lack(principal, problem)
        finally:
            self._resolving.discard(principal)
            self._members.changes.bump()

    async def _arrived(self, principal: str) -> None:
        changes = self._members.changes
        while True:
            version = changes.version
            member = self._members.get(principal)
            if principal not in self._resolving and (member is None or not member.is_starting):
                if member is not None:
                    self._take(principal, member)
                return
            await changes.wait(version)

    # -- clients --------------------------------------------------------------------------------------------------

    def set_log_level(self, level: str) -> None:
        self._members.set_log_level(level)

    def session_ended(self, session: str) -> None:
        for member in self._members.values():
            member.upstream.session_ended(session)

    async def subscribe(self, uri: str, call: Call) -> None:
        member = await self._member(call.principal)
        self._resources.want(uri, call)
        await member.upstream.subscribe(uri, call)

    def unsubscribe(self, uri: str, call: Call) -> None:
        if self._resources.release(uri, call.session) and (member := self._members.get(call.principal)) is not None:
            member.upstream.unsubscribe(uri, call)

    async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
        member = await self._member(call.principal)
        with self._members.call(member):
            return await member.upstream.ask(call, heard)

    def status(self) -> UpstreamStatus:
        """Counts only: nothing of a principal."""
        members = self._members
        statuses = [member.upstream.status() for member in members.values()]
        is_up = members.tasks is not None
        return UpstreamStatus(
            self.name,
            UpstreamState.READY if is_up else UpstreamState.STOPPED,
            restarts=members.restarts + sum(status.restarts for status in statuses),
            scope="principal",
            connections=sum(status.state is UpstreamState.READY and not status.rests for status in statuses),
        )

    async def _supervise(self) -> None:
        self._accounts.ended.append(self._forget)
        self._accounts.begun.append(self._forget)
        try:
            await self._members.run(self._resources)
        finally:
            self._accounts.ended.remove(self._forget)
            self._accounts.begun.remove(self._forget)


class _PrincipalsLifecycle(Lifecycle):
    def __init__(self, upstream: PerPrincipal) -> None:
        super().__init__()
        self._upstream = upstream

    @property
    def _lifecycles(self) -> list[Lifecycle]:
        return [member.upstream.lifecycle for member in self._upstream._members.values()]

    @property
    def peers(self) -> list[Peer]:
        return [peer for lifecycle in self._lifecycles for peer in lifecycle.peers or ()]

    async def run(self) -> None:
        await self._upstream._supervise()

    async def drain(self, seconds: float, why: str = STOP_REQUESTED) -> None:
        with anyio.move_on_after(seconds):
            await self._upstream._members.idle()
        async with anyio.create_task_group() as tasks:
            for lifecycle in self._lifecycles:
                tasks.start_soon(lifecycle.drain, 0.0, why)

    def restart(self) -> None:
        for principal in list(self._upstream._members):
            self._upstream._members.stop(principal)

    def adjust(self, rules: SupervisorRules) -> None:
        self._upstream._members.adjust(rules)

    def leave_tasks(self) -> None:
        for lifecycle in self._lifecycles:
            lifecycle.leave_tasks()

    def hand_over(self, successor: CallHandler) -> Handover:
        members = self._upstream._members
        members.hand_over(successor)
        return Handover(log_level=members.log_level, references=self._upstream._resources.references)

    def inherit(self, state: Handover) -> None:
        self._upstream._members.set_log_level(state.log_level)
        for uri, call in state.references:
            self._upstream._resources.want(uri, call)


def _made(
    make: MakeConnection, check: Callable[[str, Account | None], None], principal: str, account: Account | None,
    changes: Notices,
) -> OwnedUpstream:  # fmt: skip
    check(principal, account)
    return make(principal, account, changes)


def _is_log_in(call: Call) -> bool:
    return call.method == "tools/call" and bytes(call.params.get("name", b"")) == b'"' + LOG_IN.encode() + b'"'


def _logged_in(server: str) -> Completed:
    content = [{"type": "text", "text": f"You have an account at {server} now. List the tools again."}]
    return Completed(object_bytes({"resultType": "complete", "content": content}), MODERN)
