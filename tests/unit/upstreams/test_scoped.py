"""Processes of single sessions: failed ones are seen and revived, and what they run they may end. On virtual time."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import anyio
import anyio.abc
import msgspec
import pytest

from mcp_hub.call import Call
from mcp_hub.errors import HubRestarted, InvalidParams, RpcError
from mcp_hub.notices import Notices
from mcp_hub.types import CallId, Era, Kind, Snapshot, UpstreamState
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.peer.server_eras import ServerEras
from mcp_hub.upstreams.supervision.lifecycle import RestartRule
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.scoped import Scoped
from mcp_hub.upstreams.supervision.server import SupervisorRules
from tests.unit.calls.virtual_time import LoopClock, virtual
from tests.unit.upstreams.function_calls import Recorder, request
from tests.unit.upstreams.toy_servers import Toys
from tests.unit.wire.raw_lines import group


@dataclass
class _Gate:
    check: Callable[[Call, Snapshot, Snapshot], object]
    approved: dict[str, Snapshot] = field(default_factory=dict)

    def __call__(self, call: Call, compared: Snapshot, listed: Snapshot) -> None:
        self.check(call, compared, listed)


@dataclass
class Sessions:
    """A server with a process for each session."""

    toys: Toys
    scoped: Scoped
    tasks: anyio.abc.TaskGroup
    outcomes: list[str] = field(default_factory=list)

    async def call(self, session: str = "s", **more: object) -> str:
        call = msgspec.structs.replace(request("x"), **{"session": session, "era": Era.HANDSHAKE, **more})
        try:
            await self.scoped.call(call, Recorder())
            came = "ok"
        except Exception as exc:
            came = str(exc)
        self.outcomes.append(came)
        return came

    async def crash(self, deaths: int) -> None:
        """The process of the session that was started last dies, as often."""
        for _ in range(deaths):
            assert await self.call() == "ok"
            self.toys.wire.die()
            await anyio.sleep(1)

    async def fail(self) -> None:
        await self.crash(2)
        assert "has failed: killed" in await self.call()


def made(
    toys: Toys,
    intensity: int = 1,
    idle: float = 600.0,
    *,
    asks: bool = False,
    scope: Literal["session", "call"] = "session",
) -> Scoped:
    rules, clock, changes = SupervisorRules(restart=RestartRule(intensity), part_idle=idle), LoopClock(), Notices()
    eras = ServerEras(EraCache(None), "toy")
    if asks:
        eras.put_interactive()
    return Scoped(
        "toy", lambda wish: toys.connect(), rules, scope, eras, clock=clock, changes=changes, jitter=lambda: 0.0
    )


@asynccontextmanager
async def shared(toys: Toys, **options: Any) -> AsyncIterator[tuple[ManagedUpstream, anyio.abc.TaskGroup]]:
    """The process that all sessions have shared until now, which runs in this group."""
    rules, clock = SupervisorRules(), LoopClock()
    upstream = ManagedUpstream("toy", toys.connect, rules, clock=clock, changes=Notices(), **options)
    async with group() as tasks:
        tasks.start_soon(upstream.lifecycle.run)
        yield upstream, tasks


@asynccontextmanager
async def sessions(toys: Toys | None = None, idle: float = 600.0, *, asks: bool = False) -> AsyncIterator[Sessions]:
    toys = toys or Toys()
    async with group() as tasks:
        scoped = made(toys, idle=idle, asks=asks)
        tasks.start_soon(scoped.lifecycle.run)
        await anyio.sleep(1)
        yield Sessions(toys, scoped, tasks)
    assert toys.alive == 0


@virtual
async def test_a_failed_process_is_named_and_its_restarts_count() -> None:
    async with sessions() as far:
        assert await far.call("other") == "ok" and far.scoped.status().reason is None
        await far.fail()
        status = far.scoped.status()
        assert status.state is UpstreamState.READY and status.restarts == 1
        assert status.reason == "1 of 2 session processes failed: killed (gave up after 2 failures in 60 s)"
        far.scoped.session_ended("s")
        assert far.scoped.status().reason is None
        assert far.scoped.status().restarts == 1, "a count never goes back"


@virtual
async def test_a_failed_process_is_made_anew_by_the_next_call_once_revived() -> None:
    async with sessions() as far:
        assert await far.call("other") == "ok" and not far.scoped.lifecycle.revive()
        await far.fail()
        starts = far.toys.starts
        assert far.scoped.lifecycle.revive() and far.toys.starts == starts and not far.scoped.lifecycle.revive()
        assert await far.call() == await far.call("other") == "ok" and far.toys.starts == starts + 1


@pytest.mark.parametrize(("is_program", "at_once"), [(True, 1), (False, 2)])
@virtual
async def test_sessions_of_programs_take_turns_at_a_shared_process_that_asks(is_program: bool, at_once: int) -> None:
    async with sessions(Toys(calls=100.0), asks=True) as far:
        for session in ("a", "b"):
            far.tasks.start_soon(partial(far.call, session, era=Era.MODERN, is_program=is_program))
        await anyio.sleep(10)
        assert len(far.toys.called) == at_once and far.toys.starts == 2, "one of them is only listed"


@virtual
async def test_the_listed_process_is_made_anew_once_a_minute_if_others_list_something_else() -> None:
    async with sessions() as far:
        for starts in (2, 2, 3):
            far.scoped.lifecycle.relist()
            await anyio.sleep(31)
            assert far.toys.starts == starts


@virtual
async def test_a_call_is_looked_at_when_it_is_sent_beside_what_its_process_lists() -> None:
    toys, seen = Toys(), list[int]()

    def check(call: Call, snapshot: Snapshot, own: Snapshot) -> None:
        assert own is snapshot
        seen.append(len(snapshot.lists[Kind.TOOL]))
        if seen[-1] > 1:
            raise RpcError("it lists something else")

    async with shared(toys, gate=_Gate(check)) as (supervisor, _):
        await supervisor.call(request("x"), Recorder())
        toys.tools.append("y")
        supervisor.lifecycle.restart()
        with pytest.raises(RpcError, match="something else"):
            await supervisor.call(request("x"), Recorder())
    assert seen == [1, 2] and toys.starts == 2


@virtual
async def test_an_approved_list_is_not_compared_again_unless_the_call_must_only_read() -> None:
    toys, seen = Toys(), list[str]()
    gate = _Gate(lambda call, snapshot, own: seen.append(call.id))
    async with shared(toys, gate=gate) as (supervisor, _):
        await supervisor.call(request("x"), Recorder())
        toys.wire.is_pipe = True
        seen.clear()
        listed = supervisor.snapshot()
        assert listed is not None

        def begin(name: str, **changes: Any) -> None:
            sent = supervisor.begin(msgspec.structs.replace(request("x"), id=CallId(name), **changes), Recorder())
            assert sent is not None
            sent.leave()

        begin("unknown")
        gate.approved[supervisor.name] = listed
        begin("approved")
        begin("reading", must_read=True)
        begin("prompt", method="prompts/get")
        gate.approved[supervisor.name] = msgspec.structs.replace(listed)
        begin("another list")
    assert seen == ["unknown", "reading", "prompt", "another list"]


@virtual
async def test_a_call_that_must_only_read_is_refused_where_refusals_are_explained() -> None:
    toys, writes = Toys(), list[bool]()

    def check(call: Call, snapshot: Snapshot, own: Snapshot) -> None:
        if writes:
            raise InvalidParams("it writes", symbol="not_read_only")

    async with shared(toys, gate=_Gate(check)) as (supervisor, _):
        await supervisor.call(request("x"), Recorder())
        toys.wire.is_pipe = True
        sent = supervisor.begin(request("x"), Recorder())
        assert sent is not None
        sent.leave()
        writes.append(True)
        assert supervisor.begin(request("x"), Recorder()) is None
        with pytest.raises(InvalidParams, match="it writes"):
            await supervisor.call(request("x"), Recorder())


@virtual
async def test_other_limits_reach_processes_that_run() -> None:
    async with sessions() as far:
        assert await far.call() == "ok"
        far.scoped.lifecycle.adjust(SupervisorRules(restart=RestartRule(50)))
        await far.crash(4)
        assert await far.call() == "ok" and far.scoped.status().restarts == 4


@virtual
async def test_refused_calls_do_not_keep_a_failed_process() -> None:
    async with sessions(idle=100.0) as far:
        await far.fail()
        for _ in range(20):
            came = await far.call()
            await anyio.sleep(10)
        assert came == "ok" and far.scoped.status().reason is None


@virtual
async def test_what_a_session_still_runs_when_it_is_over_ends_by_itself() -> None:
    async with sessions(Toys(calls=50.0)) as far:
        for _ in range(2):
            far.tasks.start_soon(far.call)
            await anyio.sleep(10)
        far.scoped.session_ended("s")
        await anyio.sleep(35)
        assert far.outcomes == ["ok"] and far.toys.alive == 2, "one more runs, beside the listed process"
        await anyio.sleep(10)
        assert far.outcomes == ["ok", "ok"] and far.toys.alive == 1 and far.toys.starts == 2


@virtual
async def test_a_session_that_is_over_and_comes_back_finds_its_process() -> None:
    async with sessions(Toys(calls=50.0)) as far:
        far.tasks.start_soon(far.call)
        await anyio.sleep(10)
        far.scoped.session_ended("s")
        assert await far.call() == await far.call() == "ok" and far.toys.starts == far.toys.alive == 2
        far.scoped.session_ended("s")
        await anyio.sleep(1)
        assert far.toys.alive == 1


@virtual
async def test_a_process_of_a_session_takes_its_tasks_along() -> None:
    with pytest.raises(HubRestarted, match="scope: session") as caught:
        await made(Toys()).resume(request("x"), Recorder(), msgspec.Raw(b"{}"))
    assert (caught.value.data or {})["outcome"] == "unknown"
