"""Limits of a stream store. Pure."""

from collections.abc import Sequence
from typing import Final

import msgspec

MAX_MESSAGES: Final = 256
"""Pending messages of one stream; a live owner reads them every second."""
PAGE_BYTES: Final = 1 << 20
"""Bytes of one page, unless its first event is longer."""


class StoreLimits(msgspec.Struct, frozen=True):
    """Limits for each stream and the whole store.

    A sweep removes the oldest ended streams over `ended` or `total_bytes`. Over `memory_bytes` they go at once, then
    the oldest events of the growing stream.
    """

    stream_events: int = 10_000
    stream_bytes: int = 64 << 20
    ended: int = 100_000
    sessions: int = 10_000
    total_bytes: int = 4 << 30
    memory_bytes: int = 256 << 20


def surplus(chunks: Sequence[tuple[int, int]], most_events: int, most_bytes: int) -> int:
    """The number of oldest chunks, as (events, bytes), to drop: down to 7/8 of the limits, never the newest."""
    events, size = sum(count for count, _ in chunks), sum(length for _, length in chunks)
    if events <= most_events and size <= most_bytes:
        return 0
    gone = 0
    while gone < len(chunks) - 1 and (events > most_events * 7 // 8 or size > most_bytes * 7 // 8):
        events -= chunks[gone][0]
        size -= chunks[gone][1]
        gone += 1
    return gone
