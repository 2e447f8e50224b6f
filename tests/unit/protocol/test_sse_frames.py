import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol.sse import COMMENT, message

FRAME = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


def parsed(stream: bytes) -> list[dict[str, str]]:
    """The events of a stream, as the HTML standard has it: lines end with CR, LF or both."""
    events: list[dict[str, str]] = []
    event: dict[str, str] = {}
    for line in re.split("\r\n|\r|\n", stream.decode()):
        if not line:
            if "data" in event:
                events.append(event)
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            event[name] = f"{event[name]}\n{value}" if name == "data" and name in event else value
    return events


def test_a_message_is_one_event() -> None:
    assert message(FRAME) == b"event: message\ndata: " + FRAME + b"\n"
    assert parsed(message(FRAME) + message(FRAME, "st_1:7")) == [
        {"event": "message", "data": FRAME.decode().rstrip()},
        {"event": "message", "data": FRAME.decode().rstrip(), "id": "st_1:7"},
    ]


def test_a_comment_is_no_event() -> None:
    assert parsed(COMMENT + message(FRAME) + COMMENT) == parsed(message(FRAME))


values = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(values, st.booleans())
def test_any_message_survives(value: object, ascii_only: bool) -> None:
    frame = json.dumps(value, ensure_ascii=ascii_only).encode() + b"\n"
    (event,) = parsed(message(frame))
    assert json.loads(event["data"]) == value


@pytest.mark.parametrize("blank", [b"\r", b"\r\r", b"\t\r "])
def test_a_line_break_between_tokens_does_not_break_the_event(blank: bytes) -> None:
    """An upstream may write CR between tokens: blank space in JSON, the end of a line in an event stream."""
    frame = b'{"jsonrpc":"2.0","id":1,"result":{%s"a":%s"b"}}\n' % (blank, blank)
    (event,) = parsed(message(frame))
    assert json.loads(event["data"]) == {"jsonrpc": "2.0", "id": 1, "result": {"a": "b"}}
