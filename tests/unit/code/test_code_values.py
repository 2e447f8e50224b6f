"""Results of tools as values of a script, and its output as a result."""

import base64
import tracemalloc
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from mcp_hub.code.steps import CodeRaise
from mcp_hub.code.values import encoded_output, handle_parts, result_of, value_of

PICTURE = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"12345").decode()}
LINK = {"type": "resource_link", "uri": "file:///a.txt", "name": "a", "mimeType": "text/plain", "size": 7}


def text(value: str) -> Mapping[str, object]:
    return {"type": "text", "text": value}


def value(*content: object, **members: object) -> object:
    result = value_of(msgspec.json.encode({"content": content, **members}), "3")
    return result if isinstance(result, CodeRaise) else msgspec.json.decode(result)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([text("hello")], "hello"),
        ([text('{"a": [1]}')], {"a": [1]}),
        ([text("12")], 12),
        ([text('{"a": 1} and more')], '{"a": 1} and more'),
        ([text("[" * 5000)], "[" * 5000),
        ([], None),
        ([text("a"), text("2")], ["a", 2]),
        ([PICTURE], {"mime": "image/png", "size": 5, "handle": "media 3.0"}),
        ([text("a"), LINK], ["a", {"mime": "text/plain", "size": 7, "handle": "media 3.1"}]),
        ([{"type": "resource", "resource": {"uri": "x", "text": "t"}}], "t"),
        (
            [{"type": "resource", "resource": {"uri": "x", "blob": "YWI="}}],
            {"mime": "application/octet-stream", "size": 2, "handle": "media 3.0"},
        ),
        ([{"type": "new"}, 1], [{"mime": "application/octet-stream", "size": 0, "handle": "media 3.0"}, 1]),
    ],
)
def test_content_is_a_value(content: list[object], expected: object) -> None:
    assert value(*content) == expected


def test_structured_content_is_the_value_and_an_error_is_raised() -> None:
    assert value(text("a"), structuredContent={"x": 1}) == {"x": 1}
    assert value(text("no"), text("disk"), isError=True) == CodeRaise("ToolError", "no\ndisk")
    assert value(PICTURE, isError=True) == CodeRaise("ToolError", "the tool failed and gave no text")


def test_handle_names_call_and_part() -> None:
    assert handle_parts("media 3.0") == ("3", 0)
    assert handle_parts("media a.b.12") == ("a.b", 12)
    for handle in ("", "media 3", "media 3.x", "3.0", "media 3.1234567", "media 3.²"):
        assert handle_parts(handle) is None


def result(output: object) -> dict[str, Any]:
    blocks = {"media 3.0": msgspec.json.encode(PICTURE)}
    decoded: dict[str, Any] = msgspec.json.decode(result_of(msgspec.json.encode(output), blocks.get))
    return decoded


def test_output_is_a_result() -> None:
    assert result("a") == {"content": [text("a")]}
    assert result(None) == {"content": []}
    assert result([1, "é"]) == {"content": [text('[1,"é"]')]}
    assert result({"a": 1}) == {"content": [text('{"a":1}')], "structuredContent": {"a": 1}}


def test_returned_media_are_their_blocks() -> None:
    media = {"mime": "image/png", "size": 5, "handle": "media 3.0"}
    bare = {"mime": "image/png", "size": 5}
    assert result(media) == {"content": [PICTURE]}
    assert result([media, media]) == {"content": [PICTURE, PICTURE]}
    assert result({"a": media}) == {
        "content": [text('{"a":{"mime":"image/png","size":5}}'), PICTURE],
        "structuredContent": {"a": bare},
    }
    foreign = {"mime": "image/png", "size": 5, "handle": "media 9.9"}
    lacking, two = result(foreign), result([media, foreign])
    assert lacking["structuredContent"].pop("missing").startswith("not kept: ") and "blob" not in lacking
    assert lacking["structuredContent"] == bare and "not kept" in lacking["content"][0]["text"]
    assert two["content"][1:] == [PICTURE] and two["content"][0]["text"].count("not kept") == 1


def test_output_with_an_object_that_occurs_often_is_looked_at_once() -> None:
    nested: object = "a"
    for _ in range(40):
        nested = [nested] * 10
    with pytest.raises(ValueError, match="longer than 1000 bytes"):
        encoded_output(nested, 1000)
    media = {"mime": "image/png", "size": 5, "handle": "media 3.0"}
    assert msgspec.json.decode(encoded_output([media, media], 1000)) == [media, media]


@pytest.mark.parametrize("part", ["[],", "{},", "1,", '{"":0},'])
def test_value_that_would_take_much_memory_is_refused_and_as_text_it_stays_text(part: str) -> None:
    much = "[" + part * (5_000_000 // len(part)) + "0]"
    result = msgspec.json.encode({"content": [], "structuredContent": msgspec.Raw(much.encode())})
    tracemalloc.start()
    refused = value_of(result, "3")
    as_text = value_of(msgspec.json.encode({"content": [text(much)]}), "3")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(refused, CodeRaise) and "more than a script can take" in refused.message
    assert msgspec.json.decode(bytes(as_text)) == much  # type: ignore[arg-type]
    assert peak < 60 << 20


def test_number_that_no_script_has_and_a_long_error_are_errors_of_the_tool() -> None:
    refused = value_of(b'{"content":[],"structuredContent":{"x":1e400}}', "3")
    assert isinstance(refused, CodeRaise) and refused.kind == "ToolError"
    assert value(text("12e4567")) == "12e4567"
    long = value(text("a" * 300_000), isError=True)
    assert isinstance(long, CodeRaise) and len(long.message) <= 64 << 10
