"""Lines of a server that are no messages: what is kept of them, and whether one may have been a call's answer."""

from typing import Final

from mcp_hub.masking import hide
from mcp_hub.protocol.envelope import BadMessage
from mcp_hub.protocol.rpc_errors import METHOD_NOT_FOUND

__all__ = ["note"]

_LINES: Final = 20
_HEAD: Final = 4096
"""Bytes of a line that are looked at."""
_NO_METHOD: Final = b"%d" % METHOD_NOT_FOUND


def note(noise: list[str], bad: BadMessage, line: bytes) -> bool:
    """Adds the line to the last ones; says whether it is an answer that could be given to nobody.

    A request that is broken is none, nor is what some servers say to a notification that they do not know.
    """
    head = line[:_HEAD]
    is_message = b'"jsonrpc"' in head or b'"result"' in head  # what it says is for one caller, noise is for all
    text = f"a message ({bad.reason})" if is_message else hide(head[:800].decode("utf-8", "replace"))[:200]
    noise.append(f"stdout: {text}")
    del noise[:-_LINES]
    return is_message and bad.id is None and b'"method"' not in head and _NO_METHOD not in head
