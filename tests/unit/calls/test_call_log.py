"""Producers that can wait for their readers, in virtual time; the rest of the log is a property test."""

import asyncio

import msgspec
import pytest

from mcp_hub.calls import coalesce
from mcp_hub.calls import log as log_module
from mcp_hub.calls.log import CallLog
from mcp_hub.events import Completed, Delta, Progressed, Started
from tests.unit.calls.virtual_time import sleep, virtual


def nothing() -> None:
    pass


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> CallLog:
    """A log whose readers count as slow when they are five events behind."""
    monkeypatch.setattr(coalesce, "LAG", 5)
    monkeypatch.setattr(log_module, "_KEPT", 2)
    log = CallLog()
    log.append(Started())
    return log


def fill(log: CallLog, count: int = 10) -> None:
    for _ in range(count):
        log.append(Delta(b"[]"))


@pytest.mark.parametrize("how", ["take", "close"])
@virtual
async def test_a_producer_waits_until_the_slowest_reader_has_caught_up_or_left(log: CallLog, how: str) -> None:
    fast, slow = log.reader(nothing), log.reader(nothing)
    fill(log)
    fast.take()
    producer = asyncio.create_task(log.drained())
    await sleep(100)
    assert not producer.done()
    getattr(slow, how)()
    await sleep(0)
    await asyncio.wait_for(producer, 1)


@virtual
async def test_a_producer_does_not_wait_for_a_reader_that_is_close_or_for_nobody(log: CallLog) -> None:
    fill(log)
    await log.drained()
    reader = log.reader(nothing)
    reader.take()
    fill(log, 4)
    await log.drained()


@virtual
async def test_several_producers_can_wait(log: CallLog) -> None:
    reader = log.reader(nothing)
    fill(log)
    producers = [asyncio.create_task(log.drained()) for _ in range(3)]
    await sleep(1)
    reader.take()
    await asyncio.wait_for(asyncio.gather(*producers), 1)


def test_content_is_kept_however_far_behind_a_reader_is(log: CallLog) -> None:
    reader = log.reader(nothing)
    fill(log, 1000)
    log.append(Completed(b"{}"))
    assert len(reader.take()) == 1002 and reader.at_end


def test_what_waited_reaches_a_reader_that_has_caught_up_although_nothing_new_comes(log: CallLog) -> None:
    woken: list[None] = []
    reader = log.reader(lambda: woken.append(None))
    for number in range(10):
        log.append(Progressed(number))
    woken.clear()
    assert len(reader.take()) == 5 and woken
    assert reader.take() == [Progressed(9, skipped=5)]


@virtual
async def test_a_producer_of_large_events_waits_for_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "LAG_BYTES", 1000)
    monkeypatch.setattr(log_module, "_KEPT_BYTES", 500)
    log = CallLog()
    log.append(Started())
    reader = log.reader(nothing)
    for _ in range(4):
        log.append(Delta(b"x" * 400))
    producer = asyncio.create_task(log.drained())
    await sleep(1)
    assert not producer.done()
    assert len(reader.take(3)) == 3
    log.append(Delta(b"x" * 400))
    assert len(reader.take()) == 3
    await sleep(1)
    assert producer.done()
    await log.drained()


@virtual
async def test_large_progress_is_merged_for_a_slow_reader_and_then_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "LAG_BYTES", 1000)
    log = CallLog()
    log.append(Started())
    reader = log.reader(nothing)
    for number in range(9):
        log.append(Progressed(number, None, {"message": msgspec.Raw(b'"%s"' % (b"x" * 398))}))
    log.append(Completed(b"{}"))
    _, *progress, _ = reader.take()
    assert [(event.progress, event.skipped) for event in progress if isinstance(event, Progressed)] == [
        (0, 0), (1, 0), (2, 0), (8, 5),
    ]  # fmt: skip
    monkeypatch.setattr(log_module, "_KEPT_BYTES", 1000)
    again = CallLog()
    again.append(Started())
    follower = again.reader(nothing)
    for _ in range(9):
        again.append(Delta(b"x" * 400))
        follower.take()
    assert len(again._events) <= 4
