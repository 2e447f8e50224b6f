"""Results that are too long, ways to count their tokens, and what is read of them."""

import json
from typing import Any

import msgspec

from mcp_hub.call import Call
from mcp_hub.calls.results.truncate import _Cut, cut
from mcp_hub.types import CallId, Era

LIMIT = 8000


def quarter(text: str) -> int:
    """About what tokenizers make of English."""
    return (len(text.encode()) + 3) // 4


def every_byte(text: str) -> int:
    """The most tokens that a text can have."""
    return len(text.encode())


def every_word(text: str) -> int:
    """Far fewer than it has characters, and not in proportion to them."""
    return len(text.split())


ESTIMATES = [quarter, every_byte, every_word]


def text_block(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def result(*blocks: dict[str, Any], **more: Any) -> bytes:
    return msgspec.json.encode({"content": list(blocks), **more})


def cut_of(body: bytes, limit: int = LIMIT, **more: Any) -> tuple[dict[str, Any], _Cut]:
    """What the model sees of it, and the cut."""
    found = cut(body, limit, quarter, **more)
    assert found is not None
    return json.loads(found.result), found


def lines_of(size: int) -> str:
    """A log of about so many bytes, each line like no other."""
    count = size // 50
    return "".join(f"{number:09d} the quick brown fox jumps over the dog\n" for number in range(count))


def call_of(principal: str = "me", **arguments: Any) -> Call:
    params = {"name": msgspec.Raw(b'"read_result"'), "arguments": msgspec.Raw(json.dumps(arguments).encode())}
    return Call(CallId("st_1"), "", "tools/call", params, {}, "s", principal, Era.MODERN, {})
