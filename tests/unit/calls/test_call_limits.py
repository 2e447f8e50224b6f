"""Limits of a server and of a tool: how many calls begin in a time, how many run, and whose turn it is."""

import math
from collections.abc import Sequence
from typing import Any, cast

import anyio
import msgspec
import pytest

from mcp_hub.call import Call, CallChannel
from mcp_hub.calls.gates import rate, turns
from mcp_hub.calls.gates.rate import CallLimits
from mcp_hub.calls.gates.steps import in_place_of
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.errors import Busy, StoreError
from mcp_hub.events import Completed
from mcp_hub.ids import new_call_id
from mcp_hub.stores.documents import LimitRule, SharedCounts, SharedLimit
from mcp_hub.types import Era
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual
from tests.unit.fakes import Channel

TIMES = {"s": (TimeLimits(100, 1000), TimeLimits(100, 1000))}


def call_of(tool: str = "t", principal: str = "p") -> Call:
    params = {"name": msgspec.Raw(msgspec.json.encode(tool))}
    return Call(new_call_id(), "s", "tools/call", params, {}, "session", principal, Era.HANDSHAKE, {})


class Server:
    """A server that takes `seconds` for a call; notes when each began, and by whom."""

    def __init__(
        self,
        of_server: LimitRule | None = None,
        of_tools: dict[str, LimitRule] | None = None,
        seconds: float = 0.0,
        shared: SharedCounts | None = None,
    ) -> None:
        self.of_server, self.of_tools = of_server, of_tools or {}
        self.limits = CallLimits(
            lambda server, tool: (self.of_server, self.of_tools.get(tool)), TIMES, LoopClock(), shared
        )
        self.seconds = seconds
        self.begun: list[tuple[float, str, str]] = []
        self.running = self.most = 0

    async def handler(self, call: Call, channel: CallChannel) -> Completed:
        self.begun.append(
            (round(LoopClock().now() - 1000, 3), call.principal, str(msgspec.json.decode(call.params["name"])))
        )
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await anyio.sleep(self.seconds)
        finally:
            self.running -= 1
        return Completed(b"{}")

    async def call(self, tool: str = "t", principal: str = "p") -> None:
        call, step = call_of(tool, principal), self.limits("s", tool, None)
        assert step is not None
        await step(call, cast("Any", Channel()), self.handler)

    async def all(self, *callers: tuple[str, str]) -> None:
        async with anyio.create_task_group() as tasks:
            for tool, principal in callers:
                tasks.start_soon(self.call, tool, principal)

    @property
    def times(self) -> list[float]:
        return [at for at, _, _ in self.begun]


@virtual
async def test_rate_holds_in_every_window_of_its_length() -> None:
    server = Server(LimitRule("servers.s", 3, 10.0))
    await server.all(*[("t", "p")] * 8)
    assert server.times == [0, 0, 0, 10, 10, 10, 20, 20]


@virtual
async def test_concurrency_holds_and_a_place_is_handed_on_at_once() -> None:
    server = Server(LimitRule("servers.s", running=2), seconds=5)
    await server.all(*[("t", "p")] * 5)
    assert server.most == 2
    assert server.times == [0, 0, 5, 5, 10]


@virtual
async def test_principals_take_turns() -> None:
    server = Server(LimitRule("servers.s", running=1), seconds=1)
    await server.all(*[("t", "loud")] * 6, ("t", "quiet"), ("t", "third"))
    assert [principal for _, principal, _ in server.begun][:4] == ["loud", "loud", "quiet", "third"]
    assert server.times == [0, 1, 2, 3, 4, 5, 6, 7]


@virtual
async def test_tool_whose_limit_is_used_up_does_not_hold_up_another_one() -> None:
    server = Server(LimitRule("servers.s", running=3), {"slow": LimitRule("servers.s.per_tool", running=1)}, 10)
    await server.all(("slow", "p"), ("slow", "p"), ("quick", "p"), ("quick", "p"))
    assert server.begun == [(0, "p", "slow"), (0, "p", "quick"), (0, "p", "quick"), (10, "p", "slow")]


@virtual
async def test_call_that_has_waited_until_its_deadline_is_busy_and_says_when_to_try_again() -> None:
    server = Server(LimitRule("servers.s", 1, 3600.0))
    await server.call()
    with pytest.raises(Busy, match=r"has waited 100 s .* servers\.s\.rate") as refused:
        await server.call()
    assert refused.value.retry_after == 3601 - 100
    assert LoopClock().now() == pytest.approx(1000 + 100 - rate._EARLY)


@virtual
async def test_crowd_of_one_principal_is_refused_and_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST", 4)
    server, refused = Server(LimitRule("servers.s", running=1), seconds=1), list[str]()

    async def call(principal: str) -> None:
        try:
            await server.call("t", principal)
        except Busy:
            refused.append(principal)

    async with anyio.create_task_group() as tasks:
        for principal in ("loud",) * 6 + ("quiet",):
            tasks.start_soon(call, principal)
    assert refused == ["loud", "loud"]  # the sixth, and the newest of those that waited when another one came
    assert [principal for _, principal, _ in server.begun].count("quiet") == 1


@virtual
async def test_one_principal_cannot_fill_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST_OF_ONE", 2)
    server = Server(LimitRule("servers.s", running=1), seconds=1)
    with pytest.RaisesGroup(pytest.RaisesExc(Busy, match="2 calls of this client wait")):
        await server.all(*[("t", "p")] * 4)


@virtual
async def test_cancelled_call_leaves_its_place() -> None:
    server = Server(LimitRule("servers.s", running=1), seconds=10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.call)
        await sleep(1)
        with anyio.move_on_after(2):  # while it waits
            await server.call()
        tasks.start_soon(server.call, "t", "other")
        await sleep(8)
        assert server.times == [0, 10]
        tasks.cancel_scope.cancel()  # while it runs
    await server.call()
    assert server.running == 0
    assert len(server.begun) == 3


@virtual
async def test_new_rules_hold_for_calls_that_wait() -> None:
    server = Server(LimitRule("servers.s", running=1), seconds=50)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(server.call)
        await sleep(1)
        server.of_server = LimitRule("servers.s", running=3)
        server.limits.look()
        await sleep(1)
        assert server.times == [0, 1, 1]
        server.of_server = None
        server.limits.look()
        await sleep(1)
        assert server.times == [0, 1, 1, 2]
        tasks.cancel_scope.cancel()


@virtual
async def test_call_in_place_is_counted_until_its_end_and_one_that_is_not_sent_is_not() -> None:
    server = Server(LimitRule("servers.s", 2, 10.0, 1))
    step = server.limits("s", "t", None)
    assert step is not None

    class Sent:
        then = result = leave = abandon = staticmethod(lambda *_: None)

    class Sender:
        sent: Sent | None = None

        def begin(self, call: Call, channel: CallChannel) -> Sent | None:
            return self.sent

    sender = Sender()
    quick = in_place_of((step,), cast("Any", sender))
    assert quick is not None
    for _ in range(5):
        assert quick.begin(call_of(), cast("Any", Channel())) is None  # a task is needed: nothing is counted
    sender.sent = Sent()
    first = quick.begin(call_of(), cast("Any", Channel()))
    assert first is not None
    assert quick.begin(call_of(), cast("Any", Channel())) is None  # it runs
    first.leave()
    first.leave()
    second = quick.begin(call_of(), cast("Any", Channel()))
    assert second is not None
    second.abandon()
    assert quick.begin(call_of(), cast("Any", Channel())) is None  # two in ten seconds
    await sleep(10)
    assert quick.begin(call_of(), cast("Any", Channel())) is not None


class Counts:
    """Counts of all replicas: the pauses that are left, then nothing."""

    def __init__(self, *pauses: float, fails: bool = False) -> None:
        self.pauses, self.fails = [*pauses], fails
        self.taken: list[tuple[str, list[SharedLimit]]] = []
        self.left = 0

    async def take(self, group: str, limits: Sequence[SharedLimit], holder: str) -> float:
        if self.fails:
            raise StoreError("the store does not answer")
        if self.pauses:
            return self.pauses.pop(0)
        self.taken.append((group, [*limits]))
        return 0.0

    def leave(self, group: str, limits: Sequence[SharedLimit], holder: str) -> None:
        self.left += 1


@virtual
async def test_replicas_count_in_the_store() -> None:
    counts = Counts(3.0, math.inf, 0.1)
    server = Server(LimitRule("servers.s", 5, 1.0), {"t": LimitRule("servers.s.per_tool", running=2)}, 1, counts)
    await server.call()
    assert server.times == [pytest.approx(0.6)]  # it looks again after a quarter of a second, or as soon as it may
    assert counts.taken == [("s", [("", server.of_server), ("t", server.of_tools["t"])])]
    assert counts.left == 1


@virtual
async def test_replica_counts_for_itself_while_the_store_does_not_answer() -> None:
    server = Server(LimitRule("servers.s", 1, 10.0), shared=Counts(fails=True))
    await server.all(("t", "p"), ("t", "p"))
    assert server.times == [0, 10]


@virtual
async def test_call_that_the_store_never_lets_begin_is_busy() -> None:
    server = Server(LimitRule("servers.s", running=1), shared=Counts(*[math.inf] * 10_000))
    with pytest.raises(Busy, match=r"servers\.s\.concurrency"):
        await server.call()
    assert LoopClock().now() - 1000 == pytest.approx(100, abs=0.5)
