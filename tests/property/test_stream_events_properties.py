"""Whatever happens to a call can be written to a line and read again, and what peers sent is in it byte for byte."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_hub.errors import (
    Busy,
    DeadlineExceeded,
    EventsGone,
    HttpRefused,
    HubRestarted,
    HubStopping,
    InvalidParams,
    RpcError,
    UnknownEntry,
    UnknownStream,
    UpstreamLost,
    UpstreamUnavailable,
)
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
from mcp_hub.masking import hide_within, shown
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.protocol.shape.results import COALESCED
from mcp_hub.protocol.shape.stream_events import decoded, encoded
from mcp_hub.types import CallId, Era, RawJson

STREAM = CallId("st_0123456789ABCDEFGHJKMNPQRS")
TS = "2026-11-20T11:02:03.412Z"

texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ['"', "\\", "\n", "\u2028", "\0", "isError"]
)
numbers = st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=4)


@st.composite
def raws(draw: st.DrawFn, of: st.SearchStrategy[Any]) -> RawJson:
    """One way to write a value down, without line breaks, as bytes or as a view."""
    separators = draw(st.sampled_from([(",", ":"), (" ,\t", " : ")]))
    text = json.dumps(draw(of), separators=separators, ensure_ascii=draw(st.booleans())).encode()
    return draw(st.sampled_from([text, msgspec.Raw(text)]))


rests = st.dictionaries(
    texts.filter(lambda name: name not in ("progress", "total", "_meta")), raws(values).map(bytes).map(msgspec.Raw)
)
metas = st.dictionaries(texts, values, min_size=1, max_size=3).map(msgspec.json.encode).map(msgspec.Raw)


@st.composite
def progress(draw: st.DrawFn) -> Progressed:
    rest = draw(rests) | draw(st.just({}) | st.fixed_dictionaries({"_meta": metas}))
    return Progressed(draw(numbers), draw(st.none() | numbers), rest or None, draw(st.integers(0, 10**9 - 1)))


plain_errors = st.builds(
    lambda class_, message, code, data: class_(message, code=code, data=data),
    st.sampled_from(
        [
            *(RpcError, InvalidParams, UnknownEntry, UpstreamUnavailable, UpstreamLost, Busy),
            *(DeadlineExceeded, HubStopping, HubRestarted),
        ]
    ),
    texts | st.just("x" * 300),
    st.none() | st.integers(-40000, 40000),
    st.none() | objects | st.sampled_from([{"outcome": "unknown"}, {"upstream": {"server": "a"}, "limit": "timeout"}]),
)
special_errors = st.one_of(
    st.builds(HttpRefused, texts, st.integers(300, 599), texts),
    st.builds(UnknownStream),
    st.builds(EventsGone, st.integers(1, 10**9)),
)
upstream_errors = raws(
    st.builds(
        lambda more, code, message: {**more, "code": code, "message": message}, objects, st.integers(-(2**70)), texts
    )
).map(from_wire)
errors = plain_errors | special_errors | upstream_errors

events: st.SearchStrategy[CallEvent] = st.one_of(
    st.builds(Started),
    progress(),
    st.builds(Delta, raws(st.lists(values, max_size=3)), st.integers(0, 2**40), texts),
    raws(st.builds(lambda more, level: {**more, "level": level}, objects, texts)).map(
        lambda raw: Log(json.loads(bytes(raw))["level"], raw)
    ),
    st.builds(ToolCall, texts, texts, raws(objects)),
    st.builds(ToolResult, texts, raws(st.lists(values, max_size=3)), st.booleans()),
    st.builds(InputRequired, texts, texts, raws(objects)),
    st.builds(InputReceived, texts, st.integers(0, 9), st.none() | texts),
    st.builds(Attempt, st.integers(2, 9), texts, st.floats(0, 1e6), texts),
    st.builds(Reset, st.integers(2, 9), texts, st.integers(0, 2**40)),
    st.builds(Completed, raws(objects), st.sampled_from(Era)),
    st.builds(Failed, errors),
    st.builds(Cancelled, st.none() | texts),
)


def comparable(value: object) -> object:
    """Errors by what they are made of; payloads as bytes."""
    match value:
        case msgspec.Raw():
            return bytes(value)
        case RpcError():
            extra = {name: getattr(value, name, None) for name in ("status", "earliest")}
            data = json.loads(msgspec.json.encode(hide_within(value.data, shown)))  # no control characters are kept
            if value.raw is None and value.symbol is not None and data is not None:  # its code goes out anyway
                data = {
                    name: member for name, member in data.items() if (name, member) != ("code", value.symbol)
                } or None
            return (type(value), value.message, value.code, data, comparable(value.raw), str(value), extra)
        case msgspec.Struct():
            return (type(value), [comparable(getattr(value, name)) for name in value.__struct_fields__])
        case dict():
            return {name: comparable(member) for name, member in value.items()}
        case int() | float():
            return (type(value), repr(value))
        case _:
            return value


def payloads(event: CallEvent) -> list[bytes]:
    """What peers sent of it."""
    match event:
        case Progressed(members=rest):
            return [bytes(raw) for name, raw in (rest or {}).items() if name != "_meta"]
        case Failed(error):
            return [bytes(error.raw)] if error.raw is not None else []
        case Started() | InputReceived() | Attempt() | Reset() | Cancelled():
            return []
        case _:
            found = [getattr(event, name) for name in event.__struct_fields__]
            return [bytes(raw) for raw in found if isinstance(raw, bytes | msgspec.Raw)]


def strict(line: bytes) -> dict[str, Any]:
    """The object of a line; a member that is there twice is an error."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in pairs}) == len(pairs)
        return dict(pairs)

    found: dict[str, Any] = json.loads(line, object_pairs_hook=once)
    return found


@given(events, st.integers(1, 2**53))
@example(Failed(HttpRefused("git", 503, "HTTP 503")), 1)
@example(Failed(HttpRefused("\x1f", 503, "HTTP 503")), 1)
@example(Failed(RpcError("no", data={"code": "internal_error"})), 1)
@example(Failed(RpcError("no", data={})), 1)
@example(Progressed(-0.0, 5e-324, None, 3), 1)
def test_what_is_read_is_what_was_written(event: CallEvent, seq: int) -> None:
    line = encoded(STREAM, seq, TS, event)
    read = decoded(line)
    assert read[0] == seq
    assert comparable(read[1]) == comparable(event)
    assert encoded(STREAM, seq, TS, read[1]) == line, "and it can be written again"


@given(events)
def test_a_line_is_one_valid_object_and_holds_what_peers_sent_byte_for_byte(event: CallEvent) -> None:
    line = encoded(STREAM, 7, TS, event)
    assert b"\n" not in line and b"\r" not in line
    shown = strict(line)
    assert list(shown) == ["v", "stream", "seq", "ts", "type", "data"]
    assert (shown["v"], shown["stream"], shown["seq"], shown["ts"]) == (1, STREAM, 7, TS)
    assert all(raw in line for raw in payloads(event))


@given(st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
def test_bytes_that_are_no_event_are_refused_and_nothing_else_happens(line: bytes) -> None:
    with pytest.raises(ValueError, match="not an event of a stream"):
        decoded(line)


@given(events, st.data())
def test_a_line_that_was_cut_off_is_refused(event: CallEvent, data: st.DataObject) -> None:
    line = encoded(STREAM, 1, TS, event)
    with pytest.raises(ValueError, match="not an event of a stream"):
        decoded(line[: data.draw(st.integers(0, len(line) - 1))])


@given(raws(objects).map(lambda raw: bytes(raw).replace(b"\t", b"\r\n").replace(b" : ", b"\n:\n")))
def test_line_breaks_between_the_parts_of_a_payload_become_white_space(result: bytes) -> None:
    line = encoded(STREAM, 1, TS, Completed(result))
    assert b"\n" not in line and b"\r" not in line
    _, event = decoded(line)
    assert isinstance(event, Completed)
    assert json.loads(bytes(event.result)) == json.loads(result)


@given(progress())
def test_progress_on_a_line_has_the_members_of_the_notification(event: Progressed) -> None:
    data = strict(encoded(STREAM, 1, TS, event))["data"]
    assert data.pop("progress") == event.progress
    assert data.pop("total", None) == event.total
    meta = data.get("_meta", {})
    assert meta.pop(COALESCED, 0) == event.skipped
    rest = {name: json.loads(bytes(raw)) for name, raw in (event.members or {}).items()}
    assert ({name: value for name, value in data.items() if name != "_meta" or value}) == rest
