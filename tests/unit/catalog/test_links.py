"""Where URIs stand in results, and whose an unlisted one is."""

import json
from typing import Any

import pytest

from mcp_hub.catalog.resources.uris import Remembered, readdress
from mcp_hub.types import JsonObject

BLOCKS: list[JsonObject] = [
    {"type": "text", "text": 'see "uri"'},
    {"type": "resource_link", "uri": "x:1", "name": "n", "x-future": [1, {"uri": "x:2"}]},
    {"type": "resource", "resource": {"uri": "x:3", "text": "t", "_meta": {"uri": "x:4"}}, "uri": "x:5"},
]
RENAMED: list[JsonObject] = [
    BLOCKS[0],
    {**BLOCKS[1], "uri": "hub://x:1"},
    {**BLOCKS[2], "resource": {"uri": "hub://x:3", "text": "t", "_meta": {"uri": "x:4"}}},
]
ELSEWHERE = {"structuredContent": {"uri": "x:6", "content": [BLOCKS[1]]}, "_meta": {"uri": "x:7"}, "uri": "x:8"}


def readdressed(method: str, result: object) -> tuple[Any, list[str]]:
    """The result with `hub://` before each URI, and the URIs in their order."""
    seen: list[str] = []

    def exported(uri: str) -> str:
        seen.append(uri)
        return "hub://" + uri

    return json.loads(bytes(readdress(method, json.dumps(result).encode(), exported))), seen


def test_links_and_embedded_resources_of_a_tool_result() -> None:
    shown, seen = readdressed("tools/call", {"content": BLOCKS, **ELSEWHERE})
    assert shown == {"content": RENAMED, **ELSEWHERE} and seen == ["x:1", "x:3"]


def test_links_and_embedded_resources_of_a_prompt() -> None:
    messages = [{"role": "user", "content": block, "x": 1} for block in BLOCKS]
    expected = [{"role": "user", "content": block, "x": 1} for block in RENAMED]
    shown, _ = readdressed("prompts/get", {"messages": messages, "description": "d", **ELSEWHERE})
    assert shown == {"messages": expected, "description": "d", **ELSEWHERE}


def test_the_contents_of_a_resource() -> None:
    contents = [{"uri": "x:1", "text": "a", "x": None}, {"uri": "x:2", "blob": ""}, {"text": "without"}]
    shown, seen = readdressed("resources/read", {"contents": contents, "content": BLOCKS})
    assert [item.get("uri") for item in shown["contents"]] == ["hub://x:1", "hub://x:2", None]
    assert seen == ["x:1", "x:2"] and shown["content"] == BLOCKS


@pytest.mark.parametrize("method", ["completion/complete", "tools/list"])
def test_other_results_have_no_links(method: str) -> None:
    result = {"content": BLOCKS, "contents": [{"uri": "x:1"}], "messages": [{"content": BLOCKS[1]}]}
    assert readdressed(method, result) == (result, [])


@pytest.mark.parametrize(
    "content",
    [
        None,
        {"uri": "x:1"},
        [5, "uri", None, []],
        [{"type": "resource_link", "uri": 5}],
        [{"type": "resource_link", "url": "uri"}],
        [{"type": "resource", "resource": ["uri"]}],
        [{"type": ["resource_link"], "uri": "x:1"}],
        [{"uri": "x:1"}],
    ],
)
def test_what_has_another_shape_is_left_alone_byte_for_byte(content: object) -> None:
    raw = json.dumps({"content": content, "uri": 1}).encode()
    assert readdress("tools/call", raw, lambda uri: "hub://" + uri) is raw


def test_a_broken_block_does_not_keep_others_from_being_mapped() -> None:
    shown, _ = readdressed("tools/call", {"content": [5, {"type": "resource"}, BLOCKS[1]]})
    assert shown == {"content": [5, {"type": "resource"}, RENAMED[1]]}


def test_a_result_without_links_is_not_decoded() -> None:
    """A link whose `uri` is written with escapes, which nobody does, shows that nobody looked."""
    raw = b'{"content":[{"type":"text","text":"{\\"uri\\":1}"},{"type":"resource_link","\\u0075ri":"x:1"}]}'
    assert readdress("tools/call", raw, lambda uri: "y:1") is raw


@pytest.mark.parametrize("raw", [b'{"content":["uri"', b'{"content":' + b"[" * 10**5 + b'"uri"', b'["uri"]', b'"uri"'])
def test_what_cannot_be_read_is_left_alone(raw: bytes) -> None:
    assert readdress("tools/call", raw, lambda uri: "y:1") is raw


def test_numbers_stay_as_written() -> None:
    raw = b'{"content":[{"type":"resource_link","uri":"x:1","size":1.50,"n":123456789012345678901234567890}]}'
    assert bytes(readdress("tools/call", raw, lambda uri: "y:1")) == raw.replace(b"x:1", b"y:1")


def test_a_uri_is_claimed_once() -> None:
    seen = Remembered()
    assert seen.owner("x:1") is None
    assert seen.claim("x:1", "a") and seen.claim("x:1", "a") and not seen.claim("x:1", "b")
    assert seen.owner("x:1") == "a" and len(seen) == 1


def test_a_long_uri_is_not_remembered() -> None:
    seen = Remembered()
    assert seen.claim("x" * 2048, "a") and not seen.claim("x" * 2049, "a")
    assert len(seen) == 1


def test_the_one_unused_for_longest_is_forgotten() -> None:
    seen = Remembered(limit=3)
    assert all(seen.claim(uri, "a") for uri in ("x:1", "x:2", "x:3"))
    assert seen.owner("x:1") == "a" and seen.claim("x:2", "a")
    assert seen.claim("x:4", "b")
    assert [seen.owner(f"x:{n}") for n in (1, 2, 3, 4)] == ["a", "a", None, "b"]
