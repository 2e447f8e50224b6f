"""Messages that a server wrote after one another on one line, as two threads do that share a pipe."""

import re
from itertools import chain, islice
from typing import Final

from mcp_hub.protocol.jsonrpc.envelope import MESSAGE, BadMessage, begins_with_noise, decode

_MOST: Final = 64
"""Messages that are taken from one line."""
_MOST_NOISE: Final = 4
"""Ends of objects at which noise may end."""
_WHOLE: Final = 1 << 20
"""Bytes of a line that is looked at all over."""
_LOOK: Final = 1 << 16
"""Bytes that are looked at, at either end of a longer one."""
_CUT: Final = re.compile(rb"\}\s*(?=%b)" % MESSAGE)
"""Between two messages. Valid JSON holds no such thing: its strings have no quotes of their own."""


def several(line: bytes, bad: BadMessage) -> tuple[list[bytes], tuple[BadMessage, bytes] | None]:
    """The messages of a line that is none as a whole, and what is left: why it cannot be read, and its bytes.

    What follows something that cannot be read stays with it: it may be a part of that.
    """
    parts: list[bytes] = []
    start, noise = 0, _MOST_NOISE if begins_with_noise(line) else 0
    for cut in _cuts(line):
        if not isinstance(decode(line[start:cut]), BadMessage):
            parts.append(line[start:cut])
            start, noise = cut, 0
        elif noise == 0:
            break
        else:
            noise -= 1
    if not parts:
        return [], (bad, line)
    rest = line[start:]
    last = decode(rest)
    return (parts, (last, rest)) if isinstance(last, BadMessage) else ([*parts, rest], None)


def _cuts(line: bytes) -> list[int]:
    if len(line) <= _WHOLE:
        found = _CUT.finditer(line)
    else:
        found = chain(_CUT.finditer(line, 0, _LOOK), _CUT.finditer(line, len(line) - _LOOK))
    return [cut.end() for cut in islice(found, _MOST - 1)]
