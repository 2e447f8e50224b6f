"""What a writer takes from the coalescer, whatever comes and however late it is; times are virtual."""

import json
from collections import defaultdict
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from mcp_hub.calls.coalesce import Coalescer, merge, suppressed
from mcp_hub.errors import RpcError
from mcp_hub.events import (
    Attempt,
    CallEvent,
    Cancelled,
    Completed,
    Delta,
    Failed,
    InputReceived,
    InputRequired,
    Log,
    Progressed,
    Reset,
    Started,
    ToolCall,
    ToolResult,
)
from tests.unit.calls.coalescing import Timed, flat, let_through, notices, of, play

BLANK = [b"", b" ", b"\n\t "]
MERGED = (Progressed, Delta, Log)
ENDINGS: list[CallEvent] = [Completed(b'{"content":[]}'), Failed(RpcError("no")), Cancelled("why")]


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    blocks = draw(st.lists(st.integers(0, 99).map(str) | st.just('{"text":"' + "x" * 1500 + '"}'), max_size=3))
    blank = draw(st.sampled_from(BLANK))
    content = blank + b"[" + blank + (blank + b"," + blank).join(block.encode() for block in blocks) + blank + b"]"
    raw = draw(st.sampled_from([content, msgspec.Raw(content)]))
    return Delta(raw, draw(st.integers(0, 1)), draw(st.sampled_from(["content", "aux"])))


rests = st.none() | st.just({"message": msgspec.Raw(b'"m"')})
progress = st.builds(Progressed, st.integers(0, 10**6), st.none() | st.integers(0, 9), rests, st.integers(0, 3))
logs = st.integers(0, 10**6).map(lambda n: Log("info", b'{"level":"info","data":%d}' % n))
urgent = st.one_of(
    st.builds(Started),
    st.builds(ToolCall, st.text(max_size=2), st.just("t"), st.just(b"{}")),
    st.builds(ToolResult, st.text(max_size=2), st.just(b"[]")),
    st.builds(InputRequired, st.text(max_size=2), st.just("roots/list"), st.just(b"{}")),
    st.builds(InputReceived, st.text(max_size=2)),
    st.builds(Attempt, st.integers(2, 9), st.just("lost"), st.just(0.5)),
    st.builds(Reset, st.integers(2, 9), st.just("lost")),
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


def blocks(events: list[CallEvent]) -> dict[tuple[str, int], list[Any]]:
    found: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for delta in of(Delta, events):
        found[delta.channel, delta.index] += json.loads(bytes(delta.content))
    return found


lags = st.sampled_from([0.0, 0.01, 0.4, 3.0])


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
        last, kept = of(Progressed, ours)[-1:], of(Progressed, theirs)[-1:]
        assert [(p.progress, p.total, p.members) for p in kept] == [(p.progress, p.total, p.members) for p in last]


def weight(events: list[CallEvent]) -> int:
    return sum(event.skipped + 1 for event in of(Progressed, events))


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


def seldom(timeline: list[Timed]) -> list[Progressed]:
    """The progress that is not the fifty-first within a second."""
    arrivals = [(at, event) for at, event in timeline if isinstance(event, Progressed)]
    return [event for place, (at, event) in enumerate(arrivals) if place < 50 or at >= arrivals[place - 50][0] + 1]


def distinct(timeline: list[Timed]) -> list[Timed]:
    """The same, with no progress that is the same object as another."""
    return [(at, replace(event) if isinstance(event, Progressed) else event) for at, event in timeline]


@given(mixed, lags)
def test_progress_that_does_not_come_often_comes_out_by_itself_and_at_once(timeline: list[Timed], lag: float) -> None:
    timeline = distinct(timeline)
    arrived = {id(event): at for at, event in timeline}
    taken = {id(event): at for at, events in play(timeline, lag) for event in events}
    for event in seldom(timeline):
        assert id(event) in taken
        assert lag or taken[id(event)] == arrived[id(event)]


@given(mixed, lags)
def test_other_progress_is_taken_at_most_four_times_a_second_or_in_front_of_what_may_not_wait(
    timeline: list[Timed], lag: float
) -> None:
    timeline = distinct(timeline)
    alone = {id(event) for event in seldom(timeline)}
    last, is_early = float("-inf"), False
    for at, event in [(at, event) for at, events in play(timeline, lag) for event in events]:
        if isinstance(event, Progressed):
            if id(event) in alone:
                is_early = False
            else:
                assert not is_early, "nothing called for it"
                is_early = at - last < 0.25 - 1e-9
            last = at
        elif not isinstance(event, MERGED):
            is_early = False
    assert not is_early


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
@example([*[(0.0, Progressed(1.0))] * 52, (0.0, Delta(b"[1]")), (0.0, Delta(b"[2]"))], 0.0)
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
        case Progressed(members=rest):
            return sum(map(len, (rest or {}).values()))
        case Delta(content=raw) | Log(params=raw) | ToolCall(arguments=raw) | ToolResult(content=raw):
            return len(raw)
        case InputRequired(params=raw):
            return len(raw)
        case _:
            return 0


# -- what stands for several

progress = st.builds(Progressed, st.integers(), st.none() | st.integers(), rests, st.integers(0, 9))


@given(progress, progress)
def test_the_newest_progress_stands_for_both_and_says_how_many(old: Progressed, new: Progressed) -> None:
    merged = merge(old, new)
    assert (merged.progress, merged.total, merged.members) == (new.progress, new.total, new.members)
    assert merged.skipped + 1 == (old.skipped + 1) + (new.skipped + 1)


@given(progress, progress, progress)
def test_it_does_not_matter_which_two_of_three_are_merged_first(a: Progressed, b: Progressed, c: Progressed) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(st.integers(1, 10**9))
def test_the_place_of_suppressed_messages_says_how_many_there_were(count: int) -> None:
    notice = suppressed(count)
    assert notice.level == "warning"
    params = json.loads(bytes(notice.params))
    messages = "1 log message" if count == 1 else f"{count} log messages"
    assert params["level"] == "warning" and params["data"].startswith(f"{messages} suppressed")
