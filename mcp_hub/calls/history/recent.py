"""The last calls that ended, and those that run, each as one `CallSummary`."""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final, Protocol

from mcp_hub.calls.log import newest_progress
from mcp_hub.calls.metering import Outcome
from mcp_hub.calls.plan import CallState
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.stored import asked
from mcp_hub.clock import wall_time
from mcp_hub.errors import RpcError
from mcp_hub.events import Cancelled, Failed
from mcp_hub.ids import new_session_id
from mcp_hub.masking import hide
from mcp_hub.protocol.rest.overview import CallSummary
from mcp_hub.types import Status

MOST: Final = 10_000
"""Endings that are kept."""
MOST_BYTES: Final = 8 << 20
MOST_LIVE: Final = 500
"""Running calls that are shown."""
_EACH: Final = 480
"""Bytes of a summary without its texts."""
_TEXT: Final = 200
"""Characters of one text."""
_STATUS: Final[tuple[Status, ...]] = ("completed", "tool_error", "failed", "cancelled", "failed")
"""By outcome."""


class SessionClients(Protocol):
    """The names of clients, by session."""

    def name_of(self, session: str) -> str: ...

    def called(self, session: str) -> str:
        """The name, for a call that has ended now."""


class RecentCalls:
    """A ring of endings, which have the numbers 1, 2, 3… up to `seq`.

    `clients` name the client of a session, and hear of each call.
    """

    def __init__(self, clients: SessionClients, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.epoch = new_session_id()[-8:]
        self.seq = 0
        self._clients = clients
        self._ring: deque[CallSummary] = deque()
        self._bytes = 0
        self._most, self._most_bytes = most, most_bytes

    def __len__(self) -> int:
        return len(self._ring)

    def ended(self, record: CallRecord, outcome: Outcome, now: float) -> None:
        """Keeps a call that has ended, in place of the oldest one if there are too many: a `CallObserver`."""
        took = now - record.times.started
        summary = CallSummary(
            record.call.id,
            record.call.upstream,
            asked(record.call)[:_TEXT],
            record.call.method,
            record.call.principal[:_TEXT],
            _STATUS[outcome],
            wall_time() - took,
            took,
            self._clients.called(record.call.session),
            record.stream is not None,
            "" if outcome <= Outcome.TOOL_ERROR else _why(record),
        )
        self.seq += 1
        self._ring.append(summary)
        self._bytes += _size(summary)
        while len(self._ring) > self._most or self._bytes > self._most_bytes:
            self._bytes -= _size(self._ring.popleft())

    def behind(self, seq: int) -> list[CallSummary] | None:
        """The endings behind number `seq`, the oldest first; None if some of them are gone, or were never there."""
        new = self.seq - seq
        if not 0 <= new <= len(self._ring):
            return None
        return list(islice(reversed(self._ring), new))[::-1]

    def newest(self) -> list[CallSummary]:
        """All that are kept, the newest first."""
        return list(reversed(self._ring))

    def live(self, records: Iterable[CallRecord], now: float) -> list[CallSummary]:
        """The newest calls of these that are not short quiet ones; `now` by the clock of the records."""
        lasting = [record for record in records if record.stream is not None or not record.is_short]
        return [self._running(record, now) for record in lasting[-MOST_LIVE:]]

    def _running(self, record: CallRecord, now: float) -> CallSummary:
        progress = newest_progress(record.log)
        took = now - record.times.started
        is_waiting = record.state is CallState.WAITING
        said = None if progress is None else progress.message
        return CallSummary(
            record.call.id,
            record.call.upstream,
            asked(record.call)[:_TEXT],
            record.call.method,
            record.call.principal[:_TEXT],
            "waiting" if is_waiting else "input_required" if record.open_questions else "working",
            round(wall_time() - took, 1),  # the same at each look
            0.0,
            self._clients.name_of(record.call.session),
            record.stream is not None,
            "" if said is None else hide(said[:_TEXT]),
            None if progress is None else progress.progress,
            None if progress is None else progress.total,
            len(record.open_questions),
        )


def _why(record: CallRecord) -> str:
    ending = record.log.ending
    if isinstance(ending, Cancelled):
        return hide((ending.reason or "")[:_TEXT])
    error = ending.error if isinstance(ending, Failed) else RpcError("")
    return hide(error.message[:_TEXT])


def _size(summary: CallSummary) -> int:
    return _EACH + len(summary.name) + len(summary.principal) + len(summary.client) + len(summary.message)
