"""Results of prompts and resources as text."""

import msgspec
import pytest

from mcp_hub.cli.render.results import ShownResult


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
