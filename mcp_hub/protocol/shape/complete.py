"""Results of the modern era that are the end of their call, told apart without being taken apart.

Source: specification 2026-07-28, basic/index "Result types".
"""

from typing import Final

from mcp_hub.types import RawJson

__all__ = ["HEAD", "TAIL", "begins", "ends", "is_complete"]

HEAD: Final = b'{"resultType":"complete",'
"""How many modern servers begin a result."""
TAIL: Final = b',"resultType":"complete"}'
"""How others end one (the Python SDK): what stands before the last brace is a member of the whole."""


def begins(raw: RawJson, text: bytes) -> bool:
    return bytes(memoryview(raw)[: len(text)]) == text


def ends(raw: RawJson, text: bytes) -> bool:
    return bytes(memoryview(raw)[-len(text) :]) == text


def is_complete(result: RawJson) -> bool:
    """Whether a result is certainly neither a task nor a question; False says nothing."""
    return bytes(memoryview(result)[-len(TAIL) :]) == TAIL or begins(result, HEAD)
