"""What people and programs are shown of events and results."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.cli.render.results import (
    ShownResult,
    content_text,
    error_line,
    event_line,
    log_text,
    message_of,
    result_line,
    urls_of,
)
from mcp_hub.errors import RpcError, UpstreamLost
from mcp_hub.events import (
    Attempt,
    CallEvent,
    Delta,
    InputReceived,
    InputRequired,
    Log,
    Progressed,
    Reset,
    Started,
    ToolCall,
    ToolResult,
)
from mcp_hub.masking import visible

TEXT = {"type": "text", "text": "hello"}
IMAGE = {"type": "image", "mimeType": "image/png", "data": "AAAA"}


def encoded(value: object) -> bytes:
    return msgspec.json.encode(value)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [TEXT, TEXT]}, "hello\nhello"),
        ({"content": [TEXT], "structuredContent": {"a": 1}}, "hello"),
        ({"content": [], "structuredContent": {"a": 1}}, '{\n  "a": 1\n}'),
        ({"content": [IMAGE]}, "[image image/png 3 bytes]"),
        ({"content": [{"type": "resource_link", "name": "n", "uri": "u:1"}]}, "[resource_link n u:1]"),
        ({"content": [{"type": "resource", "resource": {"uri": "u:1", "text": "t"}}]}, "[resource u:1]\nt"),
        ({"content": [{"type": "resource", "resource": {"uri": "u:1", "blob": "AA=="}}]}, "[resource u:1 1 byte]"),
        ({"content": ["odd", {"type": 5}]}, "['odd']\n[5]"),
        ({"content": "odd"}, ""),
        ({}, ""),
    ],
)
def test_result_reads_as_text(result: dict[str, Any], text: str) -> None:
    assert ShownResult.of(encoded(result)).text == text


def test_result_that_cannot_be_read_is_shown_raw() -> None:
    assert ShownResult.of(b"{nonsense").text == "{nonsense"


def test_only_true_is_an_error() -> None:
    assert ShownResult.of(b'{"isError":true}').is_error
    assert not ShownResult.of(b'{"isError":"yes"}').is_error


def test_content_of_a_delta_is_text_without_added_line_breaks() -> None:
    assert content_text(encoded([TEXT, TEXT])) == "hellohello"
    assert content_text(b"[oops") == "[oops"


def test_terminal_gets_no_control_characters() -> None:
    assert visible("a\x1b[2Jb\r\nc\td\x07\x9b\n") == "a\\x1b[2Jb\nc\td\\x07\\x9b\n"


def test_log_reads_level_logger_and_data() -> None:
    assert log_text(Log("info", b'{"level":"info","logger":"db","data":"slow"}')) == "info db: slow"
    assert log_text(Log("error", b'{"level":"error","data":{"a":1}}')) == 'error: {"a":1}'
    assert log_text(Log("error", b"[]")) == "error: null"


def test_message_of_progress_is_its_text_if_it_is_one() -> None:
    assert message_of(Progressed(1, members={"message": msgspec.Raw(b'"half"')})) == "half"
    assert message_of(Progressed(1, members={"message": msgspec.Raw(b"5")})) == ""
    assert message_of(Progressed(1)) == ""


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            Progressed(1, 2, {"message": msgspec.Raw(b'"m"'), "type": msgspec.Raw(b"0")}, skipped=3),
            {"type": "progress", "progress": 1, "total": 2, "message": "m", "skipped": 3},
        ),
        (Progressed(0.5), {"type": "progress", "progress": 0.5}),
        (Delta(encoded([TEXT]), 1), {"type": "delta", "index": 1, "content": [TEXT]}),
        (Delta(b"[]", 0, "aux"), {"type": "delta", "channel": "aux", "index": 0, "content": []}),
        (ToolCall("c", "a", b'{"x":1}'), {"type": "tool-call", "call": "c", "name": "a", "arguments": {"x": 1}}),
        (ToolResult("c", b"[]", True), {"type": "tool-result", "call": "c", "isError": True, "content": []}),
        (
            InputRequired("q", "roots/list", b"{}"),
            {"type": "input-required", "key": "q", "method": "roots/list", "params": {}},
        ),
        (InputReceived("q"), {"type": "input-received", "key": "q"}),
        (InputReceived("q", 1, "accept"), {"type": "input-received", "key": "q", "action": "accept"}),
        (Log("info", b'{"data":[1],"level":"info"}'), {"type": "log", "level": "info", "data": [1]}),
        (
            Attempt(2, "lost", 0.5, "gone"),
            {"type": "attempt", "attempt": 2, "reason": "lost", "after": 0.5, "detail": "gone"},
        ),
        (Reset(2, "lost", 3), {"type": "reset", "attempt": 2, "reason": "lost", "discard_from": 3}),
        (Started(), None),
        (Progressed(1, server_value=0.5, is_hubs=True), None),
    ],
)
def test_event_becomes_a_line(event: CallEvent, line: object) -> None:
    made = event_line(event)
    assert line == (None if made is None else json.loads(made))
    assert made is None or made.endswith(b"\n")


def test_result_line_holds_the_result_as_sent() -> None:
    line = result_line(ShownResult.of(b'{"content":[], "isError":true, "x":1.0}'))
    assert line == b'{"type":"end","outcome":"tool_error","result":{"content":[], "isError":true, "x":1.0}}\n'


def test_error_line_has_code_message_and_data() -> None:
    own = {"type": "error", "code": 1002, "message": "gone", "data": {"code": "upstream_crashed"}}
    assert json.loads(error_line(UpstreamLost("gone"))) == own
    raw = b'{"code":-5,"message":"no","data":{"a":1},"type":"theirs"}'
    relayed = json.loads(error_line(RpcError("no", code=-5, raw=raw)))
    assert relayed == {"type": "error", "code": -5, "message": "no", "data": {"a": 1}}


def test_pages_that_a_call_requires_are_found_in_its_error() -> None:
    data = {"elicitations": [{"mode": "url", "url": "https://a/b", "message": "m"}, {"mode": "url"}]}
    assert urls_of(RpcError("first a page", code=-32042, data=data)) == ["https://a/b"]
    assert urls_of(RpcError("other", code=-5, data=data)) == []
    for odd in (None, {"elicitations": 5}, {"elicitations": [1]}):
        assert urls_of(RpcError("odd", code=-32042, data=odd)) == []


def shown(method: str, **result: object) -> ShownResult:
    return ShownResult.of(msgspec.json.encode(result), method)


def test_prompt_is_shown_as_its_messages() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    messages = [{"role": "user", "content": {"type": "text", "text": "a"}}, {"role": "assistant", "content": image}]
    found = shown("prompts/get", messages=[*messages, 5])
    assert found.text == "user: a\nassistant: [image image/png 3 bytes]\nNone: [None]"
    assert found.blocks[1] == image


@pytest.mark.parametrize(
    ("contents", "text", "data"),
    [
        ([{"uri": "a", "text": "only"}], "only", None),
        ([{"uri": "a", "text": "x"}, {"uri": "b", "text": "y"}], "[resource a]\nx\n[resource b]\ny", None),
        ([{"uri": "a", "blob": "AAAA"}], "[resource a 3 bytes]", b"\0\0\0"),
        ([{"uri": "a", "blob": "%"}], "[resource a 0 bytes]", None),
        ([], "", None),
        ("odd", "", None),
    ],
)
def test_resource_is_shown_as_its_text_or_kept_as_its_bytes(contents: object, text: str, data: bytes | None) -> None:
    found = shown("resources/read", contents=contents)
    assert (found.text, found.data) == (text, data)
    assert ShownResult.of(found.raw, "resources/read", is_saved=True).data is None
