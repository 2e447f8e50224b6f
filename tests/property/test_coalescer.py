"""What a writer takes from the coalescer, played in virtual time: it calls `take` when it is due, or later."""

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_hub.calls.coalesce import Coalescer
from mcp_hub.errors import RpcError
from mcp_hub.events import (
    CallEvent,
    Cancelled,
    Completed,
    Delta,
    Failed,
    InputReceived,
    InputRequired,
    Log,
    Progress,
    Started,
    ToolCall,
    ToolResult,
)

Timed = tuple[float, CallEvent]
Taken = list[tuple[float, list[CallEvent]]]

BLANK = [b"", b" ", b"\n\t "]
MERGED = (Progress, Delta, Log)
ENDINGS: list[CallEvent] = [Completed(b'{"content":[]}'), Failed(RpcError("no")), Cancelled("why")]


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    blocks = draw(st.lists(st.integers(0, 99).map(str) | st.just('{"text":"' + "x" * 1500 + '"}'), max_size=3))
    blank = draw(st.sampled_from(BLANK))
    content = blank + b"[" + blank + (blank + b"," + blank).join(block.encode() for block in blocks) + blank + b"]"
    raw = draw(st.sampled_from([content, msgspec.Raw(content)]))
    return Delta(raw, draw(st.integers(0, 1)), draw(st.sampled_from(["content", "aux"])))


rests = st.none() | st.just({"message": msgspec.Raw(b'"m"')})
progress = st.builds(Progress, st.integers(0, 10**6), st.none() | st.integers(0, 9), rests, st.integers(0, 3))
logs = st.integers(0, 10**6).map(lambda n: Log("info", b'{"level":"info","data":%d}' % n))
urgent = st.one_of(
    st.builds(Started),
    st.builds(ToolCall, st.text(max_size=2), st.just("t"), st.just(b"{}")),
    st.builds(ToolResult, st.text(max_size=2), st.just(b"[]")),
    st.builds(InputRequired, st.text(max_size=2), st.just("roots/list"), st.just(b"{}")),
    st.builds(InputReceived, st.text(max_size=2)),
)
gaps = st.sampled_from([0.0, 0.0, 0.0, 0.001, 0.02, 0.049, 0.05, 0.1, 0.25, 0.3, 1.0, 5.0])


@st.composite
def timelines(draw: st.DrawFn, kinds: st.SearchStrategy[CallEvent]) -> list[Timed]:
    """Events at their times; runs of one kind, so that there is something to merge."""
    now, timeline = 100.0, []
    for gap, event, times, step in draw(
        st.lists(st.tuples(gaps, kinds, st.sampled_from([1, 1, 1, 2, 3, 60]), st.sampled_from([0.0, 0.001])))
    ):
        now += gap
        for _ in range(times):
            timeline.append((now, event))
            now += step
    return timeline


mixed = timelines(progress | deltas() | logs | urgent)


def play(timeline: list[Timed], lateness: float = 0.0, coalescer: Coalescer | None = None) -> Taken:
    """What is taken and when, by a writer that is `lateness` behind what is due."""
    coalescer = coalescer or Coalescer()
    taken: Taken = []
    now = timeline[0][0] if timeline else 0.0

    def write(until: float) -> None:
        nonlocal now
        for _ in range(10_000):
            due = coalescer.due
            assert (due is None) == (coalescer.count == 0), "what is pending is due some time"
            if due is None or max(due, now) + lateness >= until:
                return
            now = max(due, now) + lateness
            taken.append((now, coalescer.take(now)))
            assert taken[-1][1], "nothing was due"
        raise AssertionError("the writer is never done")

    for at, event in timeline:
        write(at)
        now = max(now, at)
        coalescer.add(event, now)
    write(float("inf"))
    assert (coalescer.count, coalescer.size) == (0, 0)
    return taken


def flat(taken: Taken) -> list[CallEvent]:
    return [event for _, events in taken for event in events]


def of(kind: type[Any], events: list[CallEvent]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def notices(events: list[CallEvent]) -> list[int]:
    """The counts of suppressed messages."""
    texts = [json.loads(bytes(log.params))["data"] for log in of(Log, events)]
    return [int(text.split()[0]) for text in texts if isinstance(text, str)]


def let_through(events: list[CallEvent]) -> list[Log]:
    return [log for log in of(Log, events) if b"suppressed" not in bytes(log.params)]


def blocks(events: list[CallEvent]) -> dict[tuple[str, int], list[Any]]:
    found: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for delta in of(Delta, events):
        found[delta.channel, delta.index] += json.loads(bytes(delta.content))
    return found


lags = st.sampled_from([0.0, 0.01, 0.4, 3.0])


@given(mixed, lags)
def test_what_is_never_dropped_comes_out_as_it_went_in(timeline: list[Timed], lag: float) -> None:
    sent, taken = [event for _, event in timeline], flat(play(timeline, lag))
    assert [e for e in taken if not isinstance(e, MERGED)] == [e for e in sent if not isinstance(e, MERGED)]


@given(mixed, lags)
def test_all_content_comes_out_in_order_and_on_its_side_of_what_may_not_wait(timeline: list[Timed], lag: float) -> None:
    sent, taken = [event for _, event in timeline], flat(play(timeline, lag))
    assert blocks(taken) == blocks(sent)
    for ours, theirs in zip(parts(sent), parts(taken), strict=True):
        assert blocks(ours) == blocks(theirs)


def parts(events: list[CallEvent]) -> list[list[CallEvent]]:
    """What lies between the events that may not wait."""
    found: list[list[CallEvent]] = [[]]
    for event in events:
        if isinstance(event, MERGED):
            found[-1].append(event)
        else:
            found.append([])
    return found


@given(mixed, lags)
def test_progress_and_what_it_hides_add_up_and_the_last_before_what_may_not_wait_is_kept(
    timeline: list[Timed], lag: float
) -> None:
    sent, taken = [event for _, event in timeline], flat(play(timeline, lag))
    assert [weight(part) for part in parts(taken)] == [weight(part) for part in parts(sent)]
    for ours, theirs in zip(parts(sent), parts(taken), strict=True):
        last, kept = of(Progress, ours)[-1:], of(Progress, theirs)[-1:]
        assert [(p.progress, p.total, p.rest) for p in kept] == [(p.progress, p.total, p.rest) for p in last]


def weight(events: list[CallEvent]) -> int:
    return sum(event.skipped + 1 for event in of(Progress, events))


@given(mixed, lags)
def test_log_messages_come_out_or_are_counted_in_their_place(timeline: list[Timed], lag: float) -> None:
    sent, taken = [event for _, event in timeline], flat(play(timeline, lag))
    for ours, theirs in zip(parts(sent), parts(taken), strict=True):
        assert len(let_through(theirs)) + sum(notices(theirs)) == len(of(Log, ours))
        left = iter(of(Log, ours))
        assert all(log in left for log in let_through(theirs)), "in order"


@given(timelines(logs | progress), lags)
def test_no_more_than_fifty_log_messages_in_any_second_are_let_through(timeline: list[Timed], lag: float) -> None:
    coalescer = Coalescer()
    times = []
    for at, event in timeline:
        before = coalescer.size
        coalescer.add(event, at)
        if isinstance(event, Log) and coalescer.size > before:
            times.append(at)
    assert all(later - first >= 1 for first, later in zip(times, times[50:], strict=False))
    assert len(times) >= min(50, len(of(Log, [event for _, event in timeline])))
    assert len(notices(flat(play(timeline, lag)))) <= 1 + len(times) // 50 + len(timeline) // 60


@given(timelines(progress | deltas() | logs), lags)
def test_progress_is_taken_at_most_four_times_a_second(timeline: list[Timed], lag: float) -> None:
    times = [at for at, events in play(timeline, lag) for _ in of(Progress, events)]
    assert all(b - a >= 0.25 - 1e-9 for a, b in pairwise(times))


@given(mixed, lags)
def test_progress_comes_sooner_than_that_only_in_front_of_what_may_not_wait(timeline: list[Timed], lag: float) -> None:
    last = float("-inf")
    early = False
    for at, event in [(at, event) for at, events in play(timeline, lag) for event in events]:
        if isinstance(event, Progress):
            assert not early, "nothing called for it"
            early, last = at - last < 0.25 - 1e-9, at
        elif not isinstance(event, MERGED):
            early = False
    assert not early


@given(mixed, st.sampled_from(ENDINGS))
def test_the_ending_goes_at_once_and_is_last(timeline: list[Timed], ending: CallEvent) -> None:
    at = timeline[-1][0] if timeline else 0.0
    taken = play([*timeline, (at, ending)])
    assert taken[-1][0] == at and taken[-1][1][-1] is ending


@given(mixed)
def test_what_is_due_is_never_later_than_it_may_be(timeline: list[Timed]) -> None:
    taken = play(timeline)
    arrivals = [at for at, event in timeline if isinstance(event, Delta)]
    for at, events in taken:
        if of(Delta, events):
            assert any(at - 0.05 - 1e-9 <= arrival <= at for arrival in arrivals)
    urgent_in = [at for at, event in timeline if not isinstance(event, MERGED)]
    urgent_out = [at for at, events in taken for event in events if not isinstance(event, MERGED)]
    assert urgent_out == urgent_in
    logs_out = [at for at, events in taken for _ in let_through(events)]
    logs_in = [at for at, event in timeline if isinstance(event, Log)]
    assert set(logs_out) <= set(logs_in), "a log message that is let through does not wait"


@given(mixed, lags)
@example([(0.0, Progress(1.0)), (0.0, Progress(2.0)), (0.0, Delta(b"[1]")), (0.0, Delta(b"[2]"))], 0.0)
def test_while_followers_keep_up_nothing_is_merged_or_dropped(timeline: list[Timed], lag: float) -> None:
    coalescer = Coalescer()
    coalescer.is_eager = True
    taken = play(timeline, lag, coalescer)
    assert flat(taken) == [event for _, event in timeline]
    if not lag:
        assert [at for at, events in taken for _ in events] == [at for at, _ in timeline]


@given(mixed, st.lists(st.booleans(), min_size=1, max_size=9), lags)
def test_followers_that_come_and_go_lose_nothing(timeline: list[Timed], turns: list[bool], lag: float) -> None:
    coalescer, taken = Coalescer(), list[CallEvent]()
    sent = [event for _, event in timeline]
    now = 0.0
    for place, (at, event) in enumerate(timeline):
        now = max(now, at)
        coalescer.add(event, now)
        coalescer.is_eager = turns[place % len(turns)]
        due = coalescer.due
        if due is not None and due <= now:
            now += lag
            taken += coalescer.take(now)
            assert not (coalescer.is_eager and coalescer.count), "all is due at once"
    while (due := coalescer.due) is not None:
        now = max(now, due)
        taken += coalescer.take(now)
    assert [e for e in taken if not isinstance(e, MERGED)] == [e for e in sent if not isinstance(e, MERGED)]
    assert blocks(taken) == blocks(sent) and weight(taken) == weight(sent)
    assert len(let_through(taken)) + sum(notices(taken)) == len(of(Log, sent))


@given(timelines(progress | deltas() | urgent), lags)
def test_its_size_and_count_are_what_is_pending(timeline: list[Timed], lag: float) -> None:
    coalescer = Coalescer()
    for place, (at, event) in enumerate(timeline):
        coalescer.add(event, at)
        if place % 7 == 6:
            coalescer.take(at + lag)
    size, count = coalescer.size, coalescer.count
    events = coalescer.take(1e9) + coalescer.take(2e9)
    assert (size, count) == (sum(map(payload, events)), len(events))


def test_suppressed_log_messages_count_as_one_event_and_hold_no_bytes() -> None:
    coalescer = Coalescer()
    for n in range(1000):
        coalescer.add(Log("info", b'{"level":"info"}'), n / 10_000)
    assert (coalescer.size, coalescer.count) == (50 * 16, 51)


def payload(event: CallEvent) -> int:
    match event:
        case Progress(rest=rest):
            return sum(map(len, (rest or {}).values()))
        case Delta(content=raw) | Log(params=raw) | ToolCall(arguments=raw) | ToolResult(content=raw):
            return len(raw)
        case InputRequired(params=raw):
            return len(raw)
        case _:
            return 0


def chat(*steps: Timed) -> Taken:
    """A conversation in which the writer is never late; times to the microsecond."""
    return [(round(at, 6), events) for at, events in play(list(steps))]


def test_first_progress_goes_at_once_and_the_newest_a_quarter_of_a_second_later() -> None:
    taken = chat((0.0, Progress(1)), (0.1, Progress(2)), (0.125, Progress(3)), (1.0, Progress(4)))
    assert taken == [(0.0, [Progress(1)]), (0.25, [Progress(3, skipped=1)]), (1.0, [Progress(4)])]


def test_replaced_progress_moves_to_the_end() -> None:
    sent = [Progress(1), Delta(b"[1]", 0), Delta(b"[2]", 1), Progress(2)]
    assert play([(0.0, event) for event in sent], 0.01) == [(0.01, [*sent[1:3], Progress(2, skipped=1)])]


def test_progress_that_comes_too_early_waits_while_content_goes() -> None:
    taken = chat((0.0, Progress(1)), (0.125, Progress(2)), (0.125, Delta(b"[1]")))
    assert taken == [(0.0, [Progress(1)]), (0.125, [Delta(b"[1]")]), (0.25, [Progress(2)])]


def test_what_may_not_wait_takes_earlier_progress_with_it() -> None:
    call = ToolCall("c", "t", b"{}")
    taken = chat((0.0, Progress(1)), (0.125, Progress(2)), (0.125, call), (0.125, Progress(3)))
    assert taken == [(0.0, [Progress(1)]), (0.125, [Progress(2), call]), (0.375, [Progress(3)])]


def test_content_after_silence_goes_at_once_and_what_follows_is_merged_for_fifty_milliseconds() -> None:
    pieces = [(0.0, b"[1]"), (0.01, b"[2]"), (0.02, b" [ ] "), (0.03, b"[3, 4]"), (0.5, b"[5]")]
    taken = chat(*((at, Delta(content)) for at, content in pieces))
    assert taken == [(0.0, [Delta(b"[1]")]), (0.06, [Delta(b"[2,3, 4]")]), (0.5, [Delta(b"[5]")])]


def test_progress_between_two_pieces_of_content_does_not_keep_them_apart_but_another_place_does() -> None:
    sent = [Delta(b"[1]"), Progress(1), Delta(b"[2]"), Delta(b"[3]", 1), Delta(b"[4]"), Delta(b"[5]", 0, "aux")]
    (_, taken), *_ = play([(0.0, event) for event in sent], 0.01)
    assert taken == [Delta(b"[1,2]"), Progress(1), *sent[3:]]


def test_content_is_merged_up_to_four_kibibytes_and_then_goes_at_once() -> None:
    half = Delta(b'["' + b"x" * 2000 + b'"]')
    taken = chat((0.0, Delta(b"[1]")), (0.01, half), (0.02, half), (0.03, half))
    inner = bytes(half.content)[1:-1]
    assert taken == [(0.0, [Delta(b"[1]")]), (0.03, [Delta(b"[%b,%b]" % (inner, inner)), half])]
    large = Delta(b'["' + b"x" * 9000 + b'"]')
    assert chat((0.0, Delta(b"[1]")), (0.01, large)) == [(0.0, [Delta(b"[1]")]), (0.01, [large])]


def test_content_for_another_place_does_not_shorten_the_wait() -> None:
    first, second, other = Delta(b"[1]"), Delta(b"[2]"), Delta(b"[3]", 1)
    assert chat((0.0, first), (0.04, second), (0.06, other)) == [(0.0, [first]), (0.09, [second, other])]


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


def test_a_log_message_is_let_through_a_second_after_the_fiftieth_before_it() -> None:
    spread: list[Timed] = [(n / 64, LINE) for n in range(50)]
    assert [at for at, _ in chat(*spread, (1.0, LINE), (1.0, LINE))][-2:] == [1.0, 2.0]


def test_a_count_waits_for_a_second_from_the_first_that_was_suppressed() -> None:
    _, late = chat(*FIFTY, (0.25, LINE), (0.5, LINE), (0.75, LINE))
    assert late[0] == 1.25 and notices(late[1]) == [3]


def test_a_count_goes_before_the_next_message_that_is_let_through() -> None:
    _, (at, events) = chat(*FIFTY, (0.5, LINE), (1.25, LINE))
    assert at == 1.25 and notices(events) == [1] and events[1] is LINE


def test_a_count_and_early_progress_go_at_once_when_followers_have_caught_up() -> None:
    coalescer = Coalescer()
    for at, event in [*FIFTY, (0.0, LINE), (0.0, Progress(1))]:
        coalescer.add(event, at)
    assert len(coalescer.take(0.0)) == 51
    coalescer.add(Progress(2), 0.125)
    coalescer.is_eager = True
    due = coalescer.due
    assert due is not None and due <= 0.125
    progress, notice = coalescer.take(0.125)
    assert progress == Progress(2) and notices([notice]) == [1]
