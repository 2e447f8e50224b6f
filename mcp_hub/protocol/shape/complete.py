"""Results of the modern era that are the end of their call, recognised without decoding them.

Source: specification 2026-07-28, basic/index "Result types".
"""

from typing import Final

from mcp_hub.types import RawJson

HEAD: Final = b'{"resultType":"complete",'
"""The beginning of a result of many modern servers."""
TAIL: Final = b',"resultType":"complete"}'
"""The end of a result of others (the Python SDK): a member before the last brace belongs to the whole."""


def begins(raw: RawJson, text: bytes) -> bool:
    return bytes(memoryview(raw)[: len(text)]) == text


def ends(raw: RawJson, text: bytes) -> bool:
    return bytes(memoryview(raw)[-len(text) :]) == text


def is_complete(result: RawJson) -> bool:
    """Whether a result is certainly neither a task nor a question; False says nothing."""
    return bytes(memoryview(result)[-len(TAIL) :]) == TAIL or begins(result, HEAD)
