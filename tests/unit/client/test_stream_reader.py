"""Reading the events of a stream out of an answer, however it arrives."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.client.stream_reader import EventDecoder
from mcp_hub.events import CallEvent, Cancelled, Completed, Delta, Progressed, Started
from tests.unit.client.scripted_peer import CLOSED, STREAM, lines, sse

EVENTS: list[CallEvent] = [
    Started(),
    Progressed(1, 2, {"message": msgspec.Raw(b'"a"')}),
    Delta(msgspec.Raw(b'[{"type":"text","text":"a\\nb"}]')),
    Cancelled("enough"),
]
STORED = lines(EVENTS)
KEEP_ALIVE = b": keep-alive\n\n"


def reader(after: int = 0) -> EventDecoder:
    return EventDecoder("http://hub", after)


@given(st.lists(st.integers(0, 1200), max_size=8))
def test_events_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    body = KEEP_ALIVE + sse(STORED[:2]) + KEEP_ALIVE + sse(STORED[2:]) + CLOSED
    places = sorted(min(cut, len(body)) for cut in cuts)
    read = reader()
    found = []
    for start, end in zip([0, *places], [*places, len(body)], strict=True):
        found += read.feed(body[start:end])
    assert found == list(enumerate(EVENTS, 1))
    assert (read.stream, read.is_closed, read.is_torn) == (STREAM, True, False)


@given(st.integers(0, 4), st.data())
def test_what_lies_before_the_cursor_is_not_repeated(after: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, after))
    read = reader(after)
    assert read.feed(sse(STORED[start:])) == list(enumerate(EVENTS, 1))[after:]
    assert not read.is_over


def test_event_that_is_cut_off_is_none() -> None:
    read = reader()
    body = sse(STORED[:2])
    assert [seq for seq, _ in read.feed(body[:-1])] == [1]
    assert [seq for seq, _ in read.feed(b"\n")] == [2]


def test_event_of_an_unknown_type_keeps_its_number() -> None:
    read = reader()
    reset = STORED[1].replace(b'"type":"progress"', b'"type":"reset"')
    assert read.feed(sse([STORED[0], reset, STORED[2]])) == [(1, EVENTS[0]), (2, None), (3, EVENTS[2])]


@pytest.mark.parametrize("data", [b"{}", b"oops", b'{"seq":"1","stream":"s"}', b"[" * 100_000])
def test_what_is_no_event_breaks_the_stream(data: bytes) -> None:
    read = reader()
    assert read.feed(b"data: %b\n\n" % data + sse(STORED)) == []
    assert read.broken is not None
    assert read.broken.startswith("http://hub sent a message that is not an event")


def test_event_over_the_limit_breaks_the_stream() -> None:
    read = EventDecoder("http://hub", 0, limit=300)
    long = lines([Completed(msgspec.Raw(b'{"x":"%b"}' % (b"x" * 300)))], 2)
    assert [seq for seq, _ in read.feed(sse(STORED[:1]) + sse(long))] == [1]
    assert read.broken == "http://hub sent an event of more than 300 bytes"
