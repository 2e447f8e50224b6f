"""Lists grow old: when they are read again, how soon, and what of it is news."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.errors import RpcError
from mcp_hub.notices import Notices
from mcp_hub.protocol.jsonrpc.rpc_errors import is_unknown, is_unknown_result
from mcp_hub.types import Era, Kind
from mcp_hub.upstreams.lists.list_reader import ListLimits
from mcp_hub.upstreams.lists.list_state import ListState, _ListAges, _Pacer
from mcp_hub.upstreams.peer.peer import Peer
from tests.unit.upstreams.scripted import Server, talking
from tests.unit.wire.raw_lines import WAIT, group

pytestmark = pytest.mark.anyio

MINUTE, HOUR = 60.0, 3600.0
MAX_AGE = 5 * MINUTE


def readings(
    ages: _ListAges, until: float, *, ttl: float = 0.0, is_new: bool = False, content: str = "a"
) -> list[float]:
    """When a list that a client is listed each second is read again; it has this content each time."""
    times: list[float] = []
    for now in range(int(until)):
        if ages.take_due(Kind.TOOL, now, MAX_AGE, ttl, is_new=is_new):
            times.append(now)
            ages.judge(Kind.TOOL, "a", "a", now, is_urgent=False)
    return times


def read(at: float = 0.0) -> _ListAges:
    ages = _ListAges()
    ages.taken(Kind.TOOL, at)
    return ages


def test_the_age_of_a_list_doubles_up_to_an_hour_while_nothing_changes() -> None:
    times = [0.0, *readings(read(), 5 * HOUR)]
    gaps = [round((b - a) / MINUTE) for a, b in zip(times, times[1:], strict=False)]
    assert gaps[:5] == [5, 10, 20, 40, 60] and set(gaps[5:]) == {60}


def test_a_change_makes_a_list_young_again() -> None:
    ages = read()
    assert readings(ages, HOUR)[-1] > 20 * MINUTE
    assert ages.judge(Kind.TOOL, "b", "a", HOUR, is_urgent=False) == "news"
    ages.take_due(Kind.TOOL, 2 * HOUR, MAX_AGE, 0, is_new=False)
    assert ages.take_due(Kind.TOOL, 2 * HOUR + 10 * MINUTE + 1, MAX_AGE, 0, is_new=False)


def test_a_new_client_is_content_with_a_tenth_of_the_age() -> None:
    assert readings(read(), 2 * MINUTE, is_new=True) == [31, 92]


def test_a_time_that_the_server_says_wins() -> None:
    assert readings(read(), 30, ttl=12) == [13, 26]
    assert readings(read(), 30, ttl=12, is_new=True) == [13, 26]
    assert readings(read(), 30, ttl=0.001) == [11, 22], "but nobody is read all the time"
    assert readings(read(), HOUR, ttl=2 * HOUR) == []


def test_a_list_that_was_never_read_has_no_age_and_an_age_of_zero_is_never_reached() -> None:
    assert not _ListAges().take_due(Kind.TOOL, HOUR, MAX_AGE, 0, is_new=True)
    assert not read().take_due(Kind.TOOL, 24 * HOUR, 0, 0, is_new=True)


def test_a_list_that_is_never_twice_the_same_is_taken_over_once_an_hour_and_named() -> None:
    ages, listed, taken = read(), "", []
    for number in range(1, 60):
        now = number * MAX_AGE
        if ages.judge(Kind.TOOL, str(number), listed, now, is_urgent=False) == "news":
            listed = str(number)
            taken.append(now)
    assert taken[:4] == [MAX_AGE, 2 * MAX_AGE, 3 * MAX_AGE, 3 * MAX_AGE + HOUR] and len(taken) == 7
    assert ages.unsteady == [Kind.TOOL]
    assert ages.judge(Kind.TOOL, "x", listed, 60 * MAX_AGE, is_urgent=True) == "news", "a server that lacks a tool"


def test_a_list_that_was_held_back_and_comes_again_is_taken_over() -> None:
    ages = read()
    verdicts = [ages.judge(Kind.TOOL, text, "a", 10, is_urgent=False) for text in ("b", "c", "d", "e", "e", "a")]
    assert verdicts == ["news", "news", "news", "held", "news", "same"]
    assert ages.unsteady == []


def test_doubts_are_followed_ever_later_while_they_show_nothing_new() -> None:
    ages = read()
    times = [now for now in range(2000) if ages.take_doubt("entry", now)]
    assert times[:7] == [0, 5, 15, 35, 75, 155, 315] and times[7] - times[6] == 300
    assert ages.take_doubt("stream", 2000), "one sort of doubt does not keep the other away"
    ages.judge(Kind.TOOL, "b", "a", 2001, is_urgent=True)
    assert ages.take_doubt("entry", 2002)


UNKNOWN = [
    "Unknown tool: git_log",
    "unknown tool 'git_log'",
    "MCP error -32602: Tool git_log not found",
    "Tool 'git_log' not found",
    'tool "git_log" not found',
    "Tool not found: git_log",
    "Tool: git_log not found",
    "No such tool: x",
    "Unknown prompt: 'hello'",
    "Invalid tool name: x",
    "The tool git_log does not exist",
    "Tool git_log is not registered",
]
KNOWN = [
    "file not found",
    "git_log failed: repository not found",
    "tool call failed",
    "Invalid arguments for tool x",
    "",
]
AT_ONCE = ListLimits(max_age=1e-9)
"""Every list is too old when it is shown."""


@pytest.mark.parametrize("text", UNKNOWN)
def test_words_for_an_unknown_tool_are_known(text: str) -> None:
    assert is_unknown(RpcError(text))
    assert is_unknown_result(b'{"content":[{"type":"text","text":"%b"}],"isError":true}' % text.encode())


@pytest.mark.parametrize("text", KNOWN)
def test_other_errors_are_not_about_an_unknown_tool(text: str) -> None:
    assert not is_unknown(RpcError(text))


def test_a_long_result_is_not_looked_through() -> None:
    assert not is_unknown_result(b'{"content":[{"type":"text","text":"Unknown tool: x%b"}]}' % (b" " * 1000))


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **members}


async def first_reading(lists: ListState, peer: Peer, server: Server, **result: Any) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lists.read, peer, set(Kind))
        await server.answer("tools/list", result)


@asynccontextmanager
async def following(
    tools: Sequence[Any], limits: Callable[[], ListLimits] = lambda: AT_ONCE
) -> AsyncIterator[tuple[ListState, Peer, Server, Notices]]:
    """Lists that were read once and are followed."""
    changes = Notices()
    with anyio.fail_after(WAIT):
        async with talking(tools={}) as (peer, server), group() as tasks:
            lists = ListState("git", limits, changes)
            await first_reading(lists, peer, server, tools=list(tools))
            tasks.start_soon(lists.follow, peer, 60.0)
            yield lists, peer, server, changes


def names(lists: ListState) -> list[bytes]:
    assert lists.snapshot is not None
    return [raw[:14] for raw in lists.snapshot.lists[Kind.TOOL]]


def shown_thrice(lists: ListState, peer: Peer) -> None:
    for _ in range(3):
        lists.show(peer, Kind.TOOL, is_new=False)
    lists.show(peer, Kind.PROMPT, is_new=True)


def doubted_twice(lists: ListState, peer: Peer) -> None:
    for _ in range(2):
        lists.doubt(peer, Kind.TOOL)


@pytest.mark.parametrize(
    "happens",
    [shown_thrice, doubted_twice, lambda lists, peer: peer.messages.list_changes.miss()],
    ids=["an old list is shown", "the server does not know a tool", "a stream of announcements is back"],
)
async def test_list_is_read_again_once(happens: Callable[[ListState, Peer], None]) -> None:
    async with following([tool("old")]) as (lists, peer, server, changes):
        before = changes.version
        happens(lists, peer)
        await server.answer("tools/list", {"tools": [tool("new")]})
        await changes.wait(before)
        assert names(lists) == [b'{"name": "new"'] and changes.version == before + 1


async def test_a_list_that_is_young_is_not_read_again() -> None:
    limits = [ListLimits()]
    async with following([tool("old")], lambda: limits[-1]) as (lists, peer, server, _):
        lists.show(peer, Kind.TOOL, is_new=True)
        assert not lists._reads.aged
        limits.append(AT_ONCE)
        lists.show(peer, Kind.TOOL, is_new=True)
        await server.answer("tools/list", {"tools": []})


async def test_an_unchanged_list_changes_no_byte_and_notifies_nobody() -> None:
    first = [tool("a", _meta={"at": 1}), tool("b")]
    second = [tool("b"), {"_meta": {"at": 2}, "inputSchema": {"type": "object"}, "name": "a"}]
    async with following(first) as (lists, peer, server, changes):
        known, before, last = lists.snapshot, changes.version, lists.last
        lists.show(peer, Kind.TOOL, is_new=False)
        await server.answer("tools/list", {"tools": second})
        while lists.last is last:
            await anyio.lowlevel.checkpoint()
        assert lists.snapshot is known and changes.version == before
        assert last is not None and lists.last is not None and lists.last.at >= last.at


async def test_the_list_of_a_modern_server_is_kept_as_long_as_it_says() -> None:
    async with talking(Era.MODERN, tools={}) as (peer, server):
        lists = ListState("git", lambda: AT_ONCE, Notices())
        await first_reading(lists, peer, server, tools=[], ttlMs=3_600_000, cacheScope="private")
        lists.show(peer, Kind.TOOL, is_new=True)
        assert not lists._reads.aged


def test_a_change_now_and_then_is_listed_at_once() -> None:
    pacer = _Pacer()
    assert [pacer.pause(now) for now in (0, 60, 75, 1000)] == [0.1] * 4


def test_tools_that_are_added_one_by_one_are_all_listed_at_once() -> None:
    pacer = _Pacer()
    assert [pacer.pause(now) for now in range(6)] == [0.1] * 6


def test_a_server_that_announces_changes_all_the_time_is_listed_every_five_seconds_at_most() -> None:
    pacer = _Pacer()
    now, times = 0.0, []
    while now < 60:
        now += pacer.pause(now)
        times.append(now)
    assert times[-1] - times[-2] == 5.0
    assert len(times) < 30


def test_a_quiet_while_forgives_everything() -> None:
    pacer = _Pacer()
    now = 0.0
    for _ in range(50):
        now += pacer.pause(now)
    assert pacer.pause(now + 1) == pytest.approx(5.0)
    assert pacer.pause(now + 30) == 0.1
