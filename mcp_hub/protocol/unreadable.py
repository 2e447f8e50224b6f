"""What stands for the answer to a request of ours that cannot be decoded: an error, for nothing else is certain.

But a list is not lost for one number in it that is none: Python's `json` writes NaN and Infinity. Such a value becomes
`NOT_JSON`, by which the definition that holds it is put aside; the others go on (protocol.md §3).
"""

import re
from typing import Final

import msgspec

from mcp_hub.protocol.envelope import BadMessage, Envelope, Unset, decode
from mcp_hub.protocol.kinds import BY_LIST_METHOD

__all__ = ["NOT_JSON", "stand_in"]

NOT_JSON: Final = b'"dev.mcp-hub/not-json"'
"""In place of a value that JSON does not have."""
_LARGEST: Final = 1 << 20
"""Bytes of a list that is worth a second try: a longer one would keep everybody else waiting."""
_NUMBERS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|-?(?:NaN|Infinity)\b', re.DOTALL)
"""Strings, and outside of them what is taken for a number; linear in the line."""


def stand_in(bad: BadMessage, line: bytes, method: str) -> Envelope:
    """For the answer to a request of that method, which came as `line`; the hub's own error has `jsonrpc` "hub"."""
    if method in BY_LIST_METHOD and len(line) <= _LARGEST and (b"NaN" in line or b"Infinity" in line):
        mended = decode(_NUMBERS.sub(lambda found: found[0] if found[0][:1] == b'"' else NOT_JSON, line))
        if isinstance(mended, Envelope) and mended.result is not Unset:
            return mended
    error = {"code": bad.code, "message": bad.reason}
    return Envelope(error=msgspec.Raw(msgspec.json.encode(error)), jsonrpc="hub")
