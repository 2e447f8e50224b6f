"""What a log that keeps owes to readers that are there and to producers; what it owes to those away is a property."""

import asyncio

import pytest

from mcp_hub.calls import coalesce
from mcp_hub.calls import log as log_module
from mcp_hub.calls.log import CallLog
from mcp_hub.events import Delta, Log, Progress, Started
from tests.unit.calls.virtual_time import run, sleep

BIG = Delta(b"x" * 400)


def nothing() -> None:
    pass


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> CallLog:
    """It is full with ten events or 1,000 bytes; a reader counts as slow when it is eight events behind."""
    monkeypatch.setattr(coalesce, "LAG", 8)
    monkeypatch.setattr(log_module, "MOST_EVENTS", 10)
    monkeypatch.setattr(log_module, "MOST_BYTES", 1000)
    log = CallLog()
    log.keep()
    log.append(Started())
    return log


def test_a_reader_that_is_there_loses_no_content_however_full_the_log_is(log: CallLog) -> None:
    reader = log.reader(nothing)
    content = [Delta(b"[%d]" % number) for number in range(100)]
    for event in content:
        log.append(event)
    assert reader.take()[1:] == content
    assert log.last_seq - log.first_seq < 10


def test_what_is_too_heavy_to_wait_is_merged_before_it_is_much(log: CallLog) -> None:
    reader = log.reader(nothing)
    for _ in range(3):
        log.append(BIG)
    for number in range(5):
        log.append(Progress(number))
        log.append(Log("info", b"x" * 400))
    assert reader.take() == [Started(), BIG, BIG, BIG]
    assert reader.take() == [Progress(4, skipped=4), coalesce.suppressed(5)]


def test_what_everybody_has_read_makes_room_first(log: CallLog) -> None:
    reader = log.reader(nothing)
    for number in range(50):
        log.append(Log("info", b"x" * 400))
        log.append(Progress(number))
        assert len(reader.take()) == (3 if number == 0 else 2)


def test_a_producer_waits_for_the_weight_of_what_is_unread(log: CallLog) -> None:
    async def scenario() -> None:
        reader = log.reader(nothing)
        for _ in range(3):
            log.append(BIG)
        producer = asyncio.create_task(log.drained())
        await sleep(100)
        assert not producer.done()
        reader.take()
        await asyncio.wait_for(producer, 1)

    run(scenario)


def test_a_producer_does_not_wait_for_a_client_that_is_away(log: CallLog) -> None:
    async def scenario() -> None:
        reader = log.reader(nothing)
        for _ in range(20):
            log.append(BIG)
        producer = asyncio.create_task(log.drained())
        await sleep(1)
        reader.close()
        await asyncio.wait_for(producer, 1)
        for _ in range(20):
            log.append(BIG)
        await asyncio.wait_for(log.drained(), 1)

    run(scenario)


def test_events_from_before_it_kept_weigh_as_much() -> None:
    log = CallLog()
    log.append(Started())
    log.append(BIG)
    log.keep()
    log.append(BIG)
    assert log.size == 800
