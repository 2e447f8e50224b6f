"""Events in progress notifications, for clients of the hub's extension."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    Progressed,
    Started,
    ToolCall,
    ToolResult,
)
from mcp_hub.fronts.mcp.results import Partials, marked
from mcp_hub.protocol.shape.stream_events import encoded
from mcp_hub.types import CallId, Era

STREAM = CallId("st_" + "0" * 26)
KEY = "dev.mcp-hub/streams"


def committed(seq: int, event: CallEvent) -> bytes:
    return encoded(STREAM, seq, "2026-11-20T11:02:03.412Z", event)


def params(frame: bytes | None) -> Any:
    assert frame is not None
    return json.loads(frame)["params"]


def delta(content: Any) -> Delta:
    return Delta(json.dumps(content).encode())


_messages = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_values = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15) | st.just(1e15)
_progress = st.builds(
    lambda value, total, message: Progressed(
        value, total, None if message is None else {"message": msgspec.Raw(json.dumps(message).encode())}
    ),
    _values,
    st.none() | st.integers(0, 100),
    _messages,
)
_others = st.sampled_from(
    [
        delta([{"type": "text", "text": "x"}]),
        delta([{"type": "end"}]),
        Log("info", b'{"level":"info","data":{"type":"error"}}'),
        ToolCall("c", "t", b'{"type":"end"}'),
        ToolResult("c", b"[]"),
        InputRequired("q", "elicitation/create", b"{}"),
        InputReceived("q"),
    ]
)


@given(st.lists(_progress | _others, max_size=30))
def test_every_event_comes_once_with_its_place_under_rising_progress(events: list[CallEvent]) -> None:
    partials = Partials(b'"t"', STREAM)
    entries = [committed(seq, event) for seq, event in enumerate(events, 2)]
    shown = [params(partials.frame(seq, entries[seq - 2], event)) for seq, event in enumerate(events, 2)]
    assert all(one["progress"] < next_["progress"] for one, next_ in pairwise(shown))
    for entry, each in zip(entries, shown, strict=True):
        line = json.loads(entry)
        told = each["_meta"][KEY]
        assert told == {
            "stream": STREAM,
            "cursor": str(line["seq"]),
            "events": [{key: line[key] for key in ("seq", "type", "data")}],
        }
        assert each["progressToken"] == "t"


@pytest.mark.parametrize("event", [Started(), Completed(b"{}"), Failed(RpcError("no")), Cancelled()])
def test_the_beginning_and_the_ending_are_no_notifications(event: CallEvent) -> None:
    assert Partials(b"1", STREAM).frame(1, committed(1, event), event) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "text", "text": "FAIL  a\n  b\n"}], "FAIL a b"),
        ([{"type": "text", "text": "ab"}, {"type": "image", "data": ""}, {"type": "text", "text": "c"}], "abc"),
        ([{"type": "text", "text": "é" * 300}], "é" * 200),
        ([{"type": "text", "text": " \n"}], None),
        ([{"type": "image", "data": ""}], None),
        ([7], None),
    ],
)
def test_a_delta_is_shown_as_one_short_line(content: Any, message: str | None) -> None:
    shown = params(Partials(b"1", STREAM).frame(2, committed(2, delta(content)), delta(content)))
    assert shown.get("message") == message


def test_progress_keeps_what_its_server_wrote() -> None:
    meta = msgspec.Raw(b'{"its":"own"}')
    event = Progressed(3, 10, {"message": msgspec.Raw(b'"m"'), "_meta": meta, "more": msgspec.Raw(b"1")})
    shown = params(Partials(b"7", STREAM).frame(2, committed(2, event), event))
    assert {**shown, "_meta": 0} == {
        "progressToken": 7, "progress": 3, "total": 10, "message": "m", "more": 1, "_meta": 0,
    }  # fmt: skip
    assert shown["_meta"]["its"] == "own" and shown["_meta"][KEY]["cursor"] == "2"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (b"{}", {}),
        (b' {"content":[]}', {"content": []}),
        (b'{"_meta":{"its":"own"},"x":1}', {"_meta": {"its": "own"}, "x": 1}),
        (b'{"content":[{"text":"\\"_meta\\""}]}', {"content": [{"text": '"_meta"'}]}),
        (b'{"_meta":{"dev.mcp-hub/streams":{"stream":"st_other"}}}', {}),
    ],
)
def test_a_result_is_marked_and_otherwise_as_it_was(result: bytes, expected: Any) -> None:
    done = marked(Completed(result, Era.MODERN), STREAM, 9, "completed")
    told = json.loads(bytes(done.result))
    assert told["_meta"].pop(KEY) == {"stream": STREAM, "cursor": "9", "status": "completed"}
    if not told["_meta"]:
        del told["_meta"]
    assert told == expected and done.era is Era.MODERN


def test_a_result_whose_meta_is_no_object_is_left_alone() -> None:
    assert marked(Completed(b'{"_meta":7}'), STREAM, 9, "completed").result == b'{"_meta":7}'
