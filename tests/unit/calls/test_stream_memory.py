"""What a process keeps of its streams in memory: less without followers, and shared by many."""

import weakref

import anyio
import pytest

from mcp_hub.calls.reading import stream as stream_module
from mcp_hub.calls.reading.stream import Stream
from tests.unit.calls.durable_hub import Follower, delta, held, one_call, settle, store_of
from tests.unit.calls.test_stream_followers import row
from tests.unit.calls.virtual_time import sleep, virtual


@pytest.fixture(autouse=True)
def without_streams_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "_streams", weakref.WeakSet())


@virtual
async def test_memory_for_followers_is_bounded_and_less_without_any() -> None:
    hub, call = await one_call()
    stream = call.record.stream
    assert stream is not None
    for _ in range(9):
        call.says(delta("x" * 10_000))
        await sleep(1)
    assert 40_000 < held(stream) <= 64 << 10
    follower = await hub.follow(call.id)
    await sleep(1)
    for _ in range(60):
        call.says(delta("x" * 100_000))
        await sleep(0.1)
    assert 1 << 20 < held(stream) <= 2 << 20
    follower.reader.close()
    call.says(delta("b"))
    await sleep(1)
    assert held(stream) <= 64 << 10


@virtual
async def test_many_streams_without_followers_share_memory_but_each_keeps_a_little() -> None:
    hub, call = await one_call()
    stream = call.record.stream
    assert stream is not None
    others = [Stream(row(store_of(hub)), store_of(hub)) for _ in range(999)]
    for _ in range(100):
        call.says(delta("x" * 100))
        await sleep(1)
    assert 4 << 10 < held(stream) <= 8 << 10 and len(others) == 999
    others.clear()
    for _ in range(100):
        call.says(delta("x" * 100))
        await sleep(1)
    assert held(stream) > 16 << 10


@virtual
async def test_cursor_in_memory_is_served_at_once_while_the_store_hangs() -> None:
    hub, call = await one_call()
    for _ in range(9):
        call.says(delta("x" * 10_000))
        await sleep(1)
    store_of(hub).holds_back = True
    with anyio.fail_after(1):
        followers = [await hub.follow(call.id, after) for after in (8, 9, 10)]
    await sleep(0)
    assert [follower.seqs for follower in followers] == [[9, 10], [10], []]
    call.ends()
    await sleep(5)
    assert not followers[2].seqs, "it is not committed"
    store_of(hub).let_go()
    await settle(lambda: all(follower.at_end for follower in followers))
    assert [follower.seqs for follower in followers] == [[9, 10, 11], [10, 11], [11]]


@virtual
async def test_cursor_before_memory_waits_for_the_store() -> None:
    hub, call = await one_call()
    for _ in range(9):
        call.says(delta("x" * 10_000))
        await sleep(1)
    store = store_of(hub)
    store.holds_back = True
    late: list[Follower] = []

    async def join() -> None:
        late.append(await hub.follow(call.id, 1))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(join)
        await sleep(5)
        assert not late
        store.let_go()
    await settle(lambda: late[0].seqs == list(range(2, 11)))
