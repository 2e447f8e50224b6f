"""Lists that are read again for somebody who asks, and those of a caller whose connection is not the listed one."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.notices import Notices, SharedLists
from mcp_hub.types import Era, Kind, Snapshot
from mcp_hub.upstreams.lists.list_reader import ListLimits
from mcp_hub.upstreams.lists.list_state import ListState
from mcp_hub.upstreams.lists.list_union import ListUnion, settled
from mcp_hub.upstreams.peer.peer import Peer
from tests.unit.upstreams.scripted import Server, talking, together
from tests.unit.wire.raw_lines import WAIT, group

pytestmark = pytest.mark.anyio

OFFERED: dict[str, Any] = {"resources": {}, "extensions": {"io.modelcontextprotocol/skills": {}}}


async def read(lists: ListState, peer: Peer, server: Server, ttl_ms: int) -> None:
    """The list for the first time."""
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lists.read, peer, {Kind.SKILL})
            await server.answer("skills/list", {"skills": [], "ttlMs": ttl_ms, "cacheScope": "public"})


async def test_a_list_that_may_be_kept_is_not_read_again() -> None:
    async with talking(Era.MODERN, **OFFERED) as (peer, server):
        lists = ListState("git", ListLimits, Notices())
        assert lists.refresh(peer, Kind.SKILL) is not None
        await read(lists, peer, server, 60_000)
        assert lists.refresh(peer, Kind.SKILL) is None


async def test_a_server_without_the_extension_is_not_asked() -> None:
    async with talking(Era.MODERN, resources={}) as (peer, _):
        assert ListState("git", ListLimits, Notices()).refresh(peer, Kind.SKILL) is None


async def test_one_reading_serves_all_who_asked_before_it_began() -> None:
    async with talking(Era.MODERN, **OFFERED) as (peer, server):
        changes = Notices()
        lists = ListState("git", ListLimits, changes)
        await read(lists, peer, server, 0)
        before = changes.version
        jobs = [lists.refresh(peer, Kind.SKILL) for _ in range(3)]
        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as tasks:
                for job in jobs:
                    assert job is not None
                    tasks.start_soon(job)  # type: ignore[arg-type]  # a coroutine function behind the port's type
                await server.answer("skills/list", {"skills": [{"uri": "x"}], "ttlMs": 0, "cacheScope": "private"})
        # a second question would still be waiting for its answer
        assert lists.snapshot is not None and lists.snapshot.lists[Kind.SKILL] == (b'{"uri": "x"}',)
        assert changes.version == before + 1


async def test_a_definition_that_says_the_same_keeps_its_bytes_whichever_way_it_is_written() -> None:
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"name": "a", "x": {"b": 1, "c": 1}}, {"x": {"c": 1, "b": 1}, "name": "a"}),
        ({"name": "b", "x": {"b": 1, "c": 1}}, {"x": {"c": 2, "b": 1}, "name": "b"}),
    ]
    lists = ListState("git", ListLimits, Notices())
    for era, column in ((Era.HANDSHAKE, 0), (Era.MODERN, 1)):
        async with talking(era, tools={}) as (peer, server):

            async def script(server: Server = server, column: int = column) -> None:
                tools = [pair[column] for pair in pairs]
                await server.answer("tools/list", {"tools": tools, "ttlMs": 0, "cacheScope": "private"})

            await together(script(), lists.read(peer, set(Kind)))
    assert lists.snapshot is not None
    assert [raw.decode() for raw in lists.snapshot.lists[Kind.TOOL]] == [
        json.dumps(pairs[0][0]),
        json.dumps(pairs[1][1]),
    ]


async def test_lists_that_another_replica_has_otherwise_are_read_again_and_it_is_not_told_what_comes_of_that() -> None:
    sent: list[tuple[str, str]] = []
    shared = SharedLists(lambda server, digest: sent.append((server, digest)))
    async with talking(Era.MODERN, tools={"listChanged": True}) as (peer, server):
        lists = ListState("git", ListLimits, Notices(shared))

        async def answer(name: str) -> None:
            tool = {"name": name, "inputSchema": {"type": "object"}}
            await server.answer("tools/list", {"tools": [tool], "ttlMs": 0, "cacheScope": "public"})

        with anyio.fail_after(WAIT):
            async with group() as tasks:
                tasks.start_soon(lists.read, peer, set(Kind))
                await answer("a")
                await anyio.wait_all_tasks_blocked()
                assert sent == [], "it was read for the first time"
                tasks.start_soon(lists.follow, peer, WAIT)
                await anyio.wait_all_tasks_blocked()
                for name, count in (("b", 1), ("c", 2)):
                    peer.messages.list_changes.announce({Kind.TOOL})
                    await answer(name)
                    while len(sent) < count:
                        await anyio.lowlevel.checkpoint()
                (_, first), (_, second) = sent
                shared.heard("git", second)
                shared.heard("ci", first)
                assert peer.messages.list_changes.take() == set(), "there is nothing to be read"
                shared.heard("git", first)
                await answer("d")
                while lists.snapshot is None or b'"d"' not in lists.snapshot.lists[Kind.TOOL][0]:
                    await anyio.lowlevel.checkpoint()
    assert len(sent) == 2


def tool(name: str, **more: object) -> bytes:
    members = "".join(f',"{key}":{value}' for key, value in more.items())
    return f'{{"name":"{name}"{members}}}'.encode()


def lists(*tools: bytes) -> Snapshot:
    return Snapshot("git", Era.HANDSHAKE, {Kind.TOOL: tools})


@pytest.mark.parametrize(
    ("listed", "own", "seen"),
    [
        ([tool("a")], [tool("a")], None),
        ([tool("a"), tool("b")], [tool("a")], None),
        ([tool("a"), tool("b")], [tool("b"), tool("a")], None),
        ([tool("a")], [tool("a"), tool("b")], [tool("a"), tool("b")]),
        ([tool("a", v=1), tool("c")], [tool("b"), tool("a", v=2)], [tool("a", v=2), tool("c"), tool("b")]),
        ([], [tool("a")], [tool("a")]),
        ([b"7"], [b"8"], [b"7", b"8"]),
    ],
)
def test_union_by_name_has_the_callers_tools(listed: list[bytes], own: list[bytes], seen: list[bytes] | None) -> None:
    shown = ListUnion().of(lists(*listed), lists(*own))
    assert (shown and list(shown.lists[Kind.TOOL])) == seen
    assert shown is None or shown.is_apart


def test_a_tool_that_the_callers_connection_no_longer_lists_is_gone_for_this_caller() -> None:
    union, everybody = ListUnion(), lists(tool("a"), tool("b"))
    assert union.of(everybody, lists(tool("a"))) is None
    assert union.of(everybody, lists(tool("a"), tool("b"))) is None
    shown = union.of(everybody, lists(tool("a")))
    assert shown is not None and shown.lists[Kind.TOOL] == (tool("a"),)


def test_the_same_lists_give_the_same_object_and_nothing_is_seen_before_both_are_known() -> None:
    union, everybody, caller = ListUnion(), lists(tool("a")), lists(tool("b"))
    assert union.of(everybody, caller) is union.of(everybody, caller)
    assert union.of(None, caller) is None and union.of(everybody, None) is None


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (b'{"name":"a","x":1}', b'{"x":1,"name":"a"}', True),
        (b'{"name":"a","x":1}', b'{"x":2,"name":"a"}', False),
        (b'{"name":"a","x":1}', b'{"x":true,"name":"a"}', False),
        (b'{"name":"a","x":1}', b'{"x":1,"name":"b"}', False),
        (b'{"name":"a","x":1e999}', b'{"x":1e999,"name":"a"}', False),
    ],
)
def test_a_definition_that_says_the_same_keeps_its_bytes(before: bytes, after: bytes, kept: bool) -> None:
    assert settled(Kind.TOOL, (before,), (after, after)) == ((before if kept else after),) * 2
