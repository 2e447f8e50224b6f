"""Reading Server-Sent Events: the same events, however the bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol import sse
from mcp_hub.protocol.jsonrpc.framing import TooLong
from mcp_hub.protocol.sse import EventParser, SseEvent
from tests.property.test_framing import chunked

LIMIT = 40
lines = st.sampled_from(
    [b"data: {}", b"data:a", b"data", b"data: b", b": note", b"", b"", b"id: 7", b"event: message", b"event: other"]
) | st.binary(max_size=2 * LIMIT)
streams = st.lists(st.tuples(lines, st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=12).map(
    lambda pairs: b"".join(line + end for line, end in pairs)
)


def parsed(*chunks: bytes, limit: int = 1000) -> list[bytes | None]:
    """The events, None for one that is too long (how much of it was seen depends on the pieces)."""
    parser = EventParser(limit)
    events = [event for chunk in chunks for event in feed(parser, chunk)]
    return [None if isinstance(event, TooLong) else event for event in events]


def feed(parser: EventParser, chunk: bytes) -> list[bytes | TooLong]:
    """The data of the events of the usual type."""
    found = [event for event in parser.events(chunk) if isinstance(event, TooLong) or event.type == b"message"]
    return [event if isinstance(event, TooLong) else event.data for event in found]


@given(chunked(streams), st.sampled_from([LIMIT, 10_000]))
def test_events_are_the_same_for_every_split(case: tuple[bytes, list[bytes]], limit: int) -> None:
    stream, chunks = case
    assert parsed(*chunks, limit=limit) == parsed(stream, limit=limit)


@given(st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\r", b"").replace(b"\n", b"")), max_size=5))
def test_what_a_front_writes_is_what_is_read(frames: list[bytes]) -> None:
    stream = b"".join(sse.message(frame) + sse.COMMENT for frame in frames)
    assert parsed(stream) == frames


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data:  a\r\rdata:b\r\n\r\n", [b" a", b"b"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data\n\n", [b""]),
        (b"id: 1\n\nevent: other\ndata: a\n\ndata: b\n\n", [b"b"]),
        (b"data: never ended", []),
        (b"\n\n\n", []),
    ],
)
def test_fields_are_read_as_the_standard_says(stream: bytes, events: list[bytes]) -> None:
    assert parsed(stream) == events


def test_an_event_over_the_limit_is_reported_as_soon_as_it_is_known_and_the_rest_of_it_skipped() -> None:
    parser = EventParser(10)
    assert feed(parser, b"data: a\n\n: a note\n: another note\n"[:18]) == [b"a"]
    assert feed(parser, b"\ndata: 123") == []
    [found] = feed(parser, b"456")
    assert found == TooLong(b"123456", 12)
    assert feed(parser, b"789\ndata: b\ndata: c\r") == feed(parser, b"\ndata: more\r") == []
    assert feed(parser, b"\n\r\ndata: d\n\n") == [b"d"]


def test_no_more_than_an_id_is_kept_of_an_event_that_is_skipped() -> None:
    parser = EventParser(10_000)
    (found,) = feed(parser, b"data: {}\ndata: " + b"x" * 10_000)
    assert isinstance(found, TooLong) and found.head.startswith(b"{}xxx") and len(found.head) <= 4096
    for _ in range(50):
        assert feed(parser, b"x" * 1000) == []
        assert parser.held < 2000


@pytest.mark.parametrize("cut", range(1, 60))
def test_an_event_that_is_skipped_has_its_id_and_its_pause_wherever_they_stand(cut: int) -> None:
    for stream in (b"id: 2\r\nretry: 7\r\ndata: 123456\r\n\r\n", b"data: 123456\r\nid: 2\r\nretry: 7\r\n\r\n"):
        parser = EventParser(10, b"1")
        found = parser.events(stream[:-2][:cut]) + parser.events(stream[:-2][cut:])
        assert [type(event) for event in found] == [TooLong] and parser.last_id == b"1"
        assert parser.events(stream[-2:] + b"data: a\n\n") == [SseEvent(b"message", b"a")]
        assert (parser.last_id, parser.retry) == (b"2", 7)


def test_an_event_that_is_skipped_leaves_nothing_of_its_data_and_type() -> None:
    stream = b"event: other\ndata: a\ndata: 1234567890\ndata: b\nevent: other\n\ndata: c\n\n"
    assert EventParser(14).events(stream)[1:] == [SseEvent(b"message", b"c")]


@pytest.mark.parametrize("stream", [b"data: aaa\n" * 2, b"data\n" * 3, b"data: a\nfoo: b", b"x" * 11])
def test_many_lines_and_unknown_ones_count_too(stream: bytes) -> None:
    assert parsed(stream, limit=10) == [None]


def test_what_is_not_kept_does_not_count() -> None:
    assert parsed(b": note\nid: 1\n" * 100 + b"data: a\n\n", limit=10) == [b"a"]
    assert parsed(b"data: a\n: a long", b" comment\n", b"\n: another", b" one\ndata: b\n\n", limit=10) == [b"a", b"b"]


# -- events of every type, and where a stream can go on


@given(chunked(streams))
def test_the_place_to_go_on_from_is_the_same_for_every_split(case: tuple[bytes, list[bytes]]) -> None:
    stream, chunks = case
    whole, split = EventParser(1000), EventParser(1000)
    events = whole.events(stream)
    assert [event for chunk in chunks for event in split.events(chunk)] == events
    assert (split.last_id, split.retry) == (whole.last_id, whole.retry)


def test_events_of_other_types_are_there_for_who_wants_them() -> None:
    stream = b"event: endpoint\ndata: /x\n\ndata: {}\n\nevent:\ndata: a\n\n"
    assert EventParser(100).events(stream) == [
        SseEvent(b"endpoint", b"/x"),
        SseEvent(b"message", b"{}"),
        SseEvent(b"message", b"a"),
    ]
    assert feed(EventParser(100), stream) == [b"{}", b"a"]


@pytest.mark.parametrize(
    ("stream", "last_id"),
    [
        (b"id: 1\ndata: a\n\n", b"1"),
        (b"id: 1\n\n", b"1"),
        (b"id: 1\ndata: a\n\nid: 2\ndata: b\n", b"1"),
        (b"id: 1\ndata: a\n\ndata: b\n\n", b"1"),
        (b"id: 1\n\nid\ndata: a\n\n", None),
        (b"id: a\0b\n\n", None),
        (b"id: \xc3\xbc\n\n", b"\xc3\xbc"),
        (b"id: " + b"x" * 1025 + b"\n\n", None),
        (b"data: a\n\n", None),
    ],
)
def test_the_last_id_is_that_of_the_last_whole_event(stream: bytes, last_id: bytes | None) -> None:
    parser = EventParser(10_000)
    parser.events(stream)
    assert parser.last_id == last_id


def test_a_stream_that_continues_keeps_its_place_until_it_names_another() -> None:
    parser = EventParser(100, b"before")
    parser.events(b"data: a\n\n")
    assert parser.last_id == b"before"
    parser.events(b"id: 1\n\n")
    assert parser.last_id == b"1"


@pytest.mark.parametrize(
    ("stream", "retry"),
    [(b"retry: 500\n", 500), (b"retry:0\n\n", 0), (b"retry: -1\n", None), (b"retry: 1.5\n", None), (b"retry\n", None)]
    + [(b"retry: " + b"9" * 50 + b"\n", None), (b"retry: 5\nretry: x\nretry: 7\n", 7)],
)
def test_the_pause_is_a_natural_number_of_milliseconds(stream: bytes, retry: int | None) -> None:
    parser = EventParser(100)
    parser.events(stream)
    assert parser.retry == retry


@given(
    st.lists(st.sampled_from([b": note\n", b"\n", b"\r\n", b":\r", b"\r", b"id: 7\n", b"event: other\n", b"data: a\n"]))
)
def test_signs_of_life_change_nothing_of_the_events_between_them(lines: list[bytes]) -> None:
    """What is skipped at once between two events is what would have been read and dropped, line by line."""
    stream = b"data: first\n\n" + b"".join(lines)
    whole, each = EventParser(1000), EventParser(1000)
    found = whole.events(stream)
    one_by_one = [event for line in stream.splitlines(keepends=True) for event in each.events(line)]
    assert found == one_by_one
    assert whole.last_id == each.last_id
