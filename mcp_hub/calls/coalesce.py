"""What may be merged for a reader that does not keep up: progress (newest wins) and log messages (counted).

Order, the last value, all content and the ending are kept (streams.md §4). Sans-I/O.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.events import Log, Progress

__all__ = ["LAG", "merge", "suppressed"]

LAG: Final = 8192
"""Unread events above which a reader counts as slow and merging begins: more than one read of an upstream's pipe can
hold (256 KiB of the shortest notifications), so that a reader which takes all there is each time never loses any."""


def merge(held: Progress, new: Progress) -> Progress:
    """One notification that stands for both: the newer, which says how many it hides."""
    return replace(new, skipped=held.skipped + new.skipped + 1)


def suppressed(count: int) -> Log:
    """Stands where `count` log messages were dropped for a slow reader."""
    text = f"{count} log messages suppressed: the reader was too slow"
    params = {"level": "warning", "logger": "mcp-hub", "data": text}
    return Log("warning", msgspec.json.encode(params))
