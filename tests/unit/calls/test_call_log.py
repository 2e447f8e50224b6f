"""Producers and slow readers of a log, in virtual time, and the coalescer by example."""

import asyncio

import msgspec
import pytest

from mcp_hub.calls import coalesce
from mcp_hub.calls import log as log_module
from mcp_hub.calls.coalesce import Coalescer
from mcp_hub.calls.log import CallLog
from mcp_hub.events import (
    CallEvent,
    Completed,
    Delta,
    InputReceived,
    InputRequired,
    Log,
    Progressed,
    Started,
    ToolCall,
)
from tests.unit.calls.coalescing import Taken, Timed, flat, notices, play
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


def chat(*steps: Timed) -> Taken:
    """A conversation in which the writer is never late; times to the microsecond."""
    return [(round(at, 6), events) for at, events in play(list(steps))]


def test_fifty_progress_events_in_a_second_come_out_each_by_itself_and_of_more_the_newest_every_quarter() -> None:
    steady: list[Timed] = [(n * 21 / 1024, Progressed(n)) for n in range(200)]
    assert play(steady) == [(at, [event]) for at, event in steady]
    flood: list[Timed] = [(n / 1024, Progressed(n)) for n in range(1024)]
    taken = chat(*flood)
    assert taken[:50] == [(round(at, 6), [event]) for at, event in flood[:50]]
    late = [(at, event) for at, (event,) in taken[50:] if isinstance(event, Progressed)]
    rest = [(round(at - 49 / 1024, 3), event.progress, event.skipped) for at, event in late]
    assert rest == [(0.25, 305, 255), (0.5, 561, 255), (0.75, 817, 255), (1.0, 1023, 205)]


def test_a_lone_progress_event_needs_no_merging_until_they_come_often() -> None:
    log, coalescer = CallLog("working"), Coalescer()
    reader = log.reader(nothing)

    def alone(*events: CallEvent, at: float) -> list[CallEvent]:
        for event in events:
            log.append(event)
        return [*coalescer.alone(reader, at)]

    for n in range(50):
        assert alone(Progressed(n), at=n / 1024) == [Progressed(n)] and not coalescer.count
    for n in (50, 51):
        assert alone(Progressed(n), at=n / 1024) == []
    assert coalescer.due == 49 / 1024 + 0.25 and coalescer.take(1.0) == [Progressed(51, skipped=1)]
    assert alone(Log("info", b"{}"), at=3.0) == [] and coalescer.take(3.0) == [Log("info", b"{}")]
    assert alone(Progressed(1), Progressed(2), at=5.0) == []
    assert coalescer.take(5.0) == [Progressed(1), Progressed(2)]


OFTEN: list[Timed] = [(0.0, Progressed(0))] * 50


def after_many(*steps: Timed) -> Taken:
    """The same after as many progress events as a second may have."""
    head, *tail = chat(*OFTEN, *steps)
    assert head == (0.0, [event for _, event in OFTEN])
    return tail


def test_progress_that_comes_often_waits_for_the_newest_of_a_quarter_of_a_second() -> None:
    taken = after_many((0.1, Progressed(2)), (0.125, Progressed(3)), (1.25, Progressed(4)))
    assert taken == [(0.25, [Progressed(3, skipped=1)]), (1.25, [Progressed(4)])]


def test_content_after_silence_goes_at_once_and_what_follows_is_merged_for_fifty_milliseconds() -> None:
    pieces = [(0.0, b"[1]"), (0.01, b"[2]"), (0.02, b" [ ] "), (0.03, b"[3, 4]"), (0.5, b"[5]")]
    taken = chat(*((at, Delta(content)) for at, content in pieces))
    assert taken == [(0.0, [Delta(b"[1]")]), (0.06, [Delta(b"[2,3, 4]")]), (0.5, [Delta(b"[5]")])]


def test_held_progress_between_two_pieces_of_content_does_not_keep_them_apart_but_another_place_does() -> None:
    sent: list[CallEvent] = [Delta(b"[1]"), Progressed(1), Delta(b"[2]"), Delta(b"[3]", 1), Delta(b"[4]")]
    sent.append(Delta(b"[5]", 0, "aux"))
    (_, taken), *_ = after_many(*((0.25, event) for event in sent))
    assert taken == [Delta(b"[1,2]"), Progressed(1), *sent[3:]]


def test_content_is_merged_up_to_four_kibibytes_and_then_goes_at_once() -> None:
    half = Delta(b'["' + b"x" * 2000 + b'"]')
    taken = chat((0.0, Delta(b"[1]")), (0.01, half), (0.02, half), (0.03, half))
    inner = bytes(half.content)[1:-1]
    assert taken == [(0.0, [Delta(b"[1]")]), (0.03, [Delta(b"[%b,%b]" % (inner, inner)), half])]
    large = Delta(b'["' + b"x" * 9000 + b'"]')
    assert chat((0.0, Delta(b"[1]")), (0.01, large)) == [(0.0, [Delta(b"[1]")]), (0.01, [large])]


def test_content_that_is_no_array_is_left_alone() -> None:
    odd = [Delta(b'{"a":1}'), Delta(b"[1]"), Delta(b"5"), Delta(b'"]"'), Delta(b"[2]"), Delta(b"null")]
    assert flat(play([(0.0, event) for event in odd], 0.01)) == odd


def test_a_count_stands_where_log_messages_were_dropped() -> None:
    flood: list[Timed] = [(0.0, Log("info", b'{"level":"info","data":1}'))] * 53
    call = ToolCall("c", "t", b"{}")
    soon, late = chat(*flood, (0.5, call)), chat(*flood)
    assert [(at, len(events)) for at, events in soon] == [(0.0, 50), (0.5, 2)]
    assert notices(soon[1][1][:1]) == [3] and soon[1][1][1] is call
    assert [(at, len(events)) for at, events in late] == [(0.0, 50), (1.0, 1)]
    assert notices(late[1][1]) == [3]


LINE = Log("info", b'{"level":"info","data":1}')
FIFTY: list[Timed] = [(0.0, LINE)] * 50


def test_a_count_waits_for_a_second_from_the_first_that_was_suppressed() -> None:
    _, late = chat(*FIFTY, (0.25, LINE), (0.5, LINE), (0.75, LINE))
    assert late[0] == 1.25 and notices(late[1]) == [3]


def test_a_count_goes_before_the_next_message_that_is_let_through() -> None:
    _, (at, events) = chat(*FIFTY, (0.5, LINE), (1.25, LINE))
    assert at == 1.25 and notices(events) == [1] and events[1] is LINE


def test_a_count_and_early_progress_go_at_once_when_followers_have_caught_up() -> None:
    coalescer = Coalescer()
    for at, event in [*FIFTY, (0.0, LINE), *OFTEN]:
        coalescer.add(event, at)
    assert len(coalescer.take(0.0)) == 100
    coalescer.add(Progressed(2), 0.125)
    coalescer.is_eager = True
    due = coalescer.due
    assert due is not None and due <= 0.125
    progress, notice = coalescer.take(0.125)
    assert progress == Progressed(2) and notices([notice]) == [1]


def test_an_open_question_stays_for_who_joins_and_goes_with_its_answer_or_for_want_of_room() -> None:
    log, question = CallLog(), InputRequired("q1", "elicitation/create", b"{}")
    log.begin()
    reader = log.reader(lambda: None)

    def says(*events: CallEvent) -> None:
        for event in events:
            log.append(event)
            reader.take()

    says(*map(Progressed, range(20)), question, *map(Progressed, range(20, 40)))
    late = log.reader(lambda: None, 1)
    assert late.take() == [question, *map(Progressed, range(20, 40))]
    late.close()
    says(InputReceived("q1"), *map(Progressed, range(40, 60)))
    assert len(log._events) < 20
    says(question)
    for number in range(61, 20_000):
        says(Progressed(number))
        assert len(log._events) <= coalesce.LAG // 2
