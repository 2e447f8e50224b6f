"""Clients that would cut a long call get an answer in time: what there is so far, and how to go on (streams.md §2).

Who has such a deadline is decided here, from what the client calls itself and what it was started as. The call goes on
without its request, as a task would; the tools `hub_wait` and `hub_cancel` (`calls.own_tools`) do the rest.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from mcp_hub.aio import call_later
from mcp_hub.calls.hub_tools.transcript import Transcript, still_running
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.stream import StreamReader
from mcp_hub.errors import Busy
from mcp_hub.events import Completed
from mcp_hub.fronts.mcp.partials import marked
from mcp_hub.hub import HubPort
from mcp_hub.logs import get_logger
from mcp_hub.protocol.extensions import TASKS, declares
from mcp_hub.protocol.shape import results
from mcp_hub.sessions.session import Session
from mcp_hub.types import OWN, Era

__all__ = ["SoftAnswer", "SoftDeadlines", "soft_answer"]

log = get_logger(__name__)

_MOST: Final = 2000
"""Bytes of what the call has said: the end of it."""
_LATEST: Final = 1024
"""Events that are looked at for it."""
_AGAIN: Final = 0.25
"""Seconds between two looks whether the questions of a call that is overdue are answered."""
_NAME: Final = 256
"""Characters of a client's name that count."""
_NAMES: Final = 1024
"""Clients whose deadline is remembered."""


class Find(Protocol):
    """The deadline of a client of that name, or of the kind that was `chosen` for it; None is never.

    `known_only`: what is configured for unknown clients does not count.
    """

    def __call__(self, client_name: str | None, chosen: str | None, *, known_only: bool) -> float | None: ...


class SoftDeadlines:
    """After how many seconds the calls of a session are answered though they still run.

    A client without a name that is known has a deadline only where it waits by itself for what it started: handshake
    clients over stdio. Whoever takes tasks needs none.
    """

    def __init__(self, find: Find) -> None:
        self._find = lru_cache(_NAMES)(lambda name, chosen, known_only: find(name, chosen, known_only=known_only))

    def forget(self) -> None:
        """The configuration is another one: every client is looked up again."""
        self._find.cache_clear()

    def __call__(self, session: Session) -> float | None:
        caller = session.caller
        name = session.client_info.get("name")
        known_only = session.era is Era.MODERN or not caller.has_own_hub
        found: float | None = self._find(name[:_NAME] if isinstance(name, str) else None, caller.client, known_only)
        return None if found is None or declares(session.capabilities, session.era, TASKS) else found


class SoftAnswer:
    """What there is so far, in place of the result of a call that takes longer than `after`. A `Substitute`.

    While the call asks a handshake client something the client is busy with that, and nothing takes the place of the
    result; a modern one is asked by the answer to its request anyway.
    """

    __slots__ = ("_hub", "_reader", "_ready", "_record", "_said", "_session", "after")

    def __init__(self, hub: HubPort, session: Session, record: CallRecord, after: float) -> None:
        self.after = after
        self._hub = hub
        self._session = session
        self._record = record
        self._said: Transcript
        self._reader: StreamReader
        self._ready: Callable[[], None]

    def prepare(self, ready: Callable[[], None]) -> None:
        """`ready` once no question is open and hub_wait could be asked for the call: its first event is committed."""
        if self._record.log.ended:
            return
        if self._record.open_questions:
            call_later(_AGAIN, lambda: self.prepare(ready))
            return
        self._ready = ready
        stream = self._hub.streams.begin(self._record).stream
        after = max(stream.row.last - _LATEST, stream.row.first - 1)
        self._said = Transcript(_MOST)
        self._said.is_cut = after > 0
        self._reader = stream.reader(_nobody, after)
        self._reader.wake = self._look
        self._look()

    def _look(self) -> None:
        """Takes what is committed; with the last of it the answer can be given."""
        reader = self._reader
        if reader.is_closed:
            return
        for entry in reader.take_entries():
            self._said.add(entry.read)
        if self._record.log.ended or reader.failed is not None:
            reader.close()
        elif 0 < reader.stream.row.last <= reader.cursor:
            reader.close()  # a follower would keep the call going
            self._let_go()

    def _let_go(self) -> None:
        try:
            self._hub.streams.detach(self._record)
        except Busy as busy:
            log.info("soft_answer_refused", call_id=self._record.call.id, reason=str(busy))
        else:
            self._ready()

    def answer(self) -> bytes:
        """A result with the last that the call has said. Whoever asks after the call from here on keeps it going."""
        self._hub.leave(self._session, self._record)
        row, cursor = self._reader.stream.row, self._reader.cursor
        text = still_running(row.id, cursor, self._said, "Output so far")
        result = msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": False})
        done = marked(Completed(result), row.id, cursor, row.status)
        return b"".join(results.call_result("tools/call", done, self._session.era))


def _nobody() -> None:
    """Nobody is told yet."""


def soft_answer(hub: HubPort, session: Session, record: CallRecord) -> SoftAnswer | None:
    """For a tool's call of a client that would cut it."""
    if record.call.method != "tools/call" or record.call.upstream == OWN:
        return None
    after = hub.soft_deadline(session)
    return None if after is None else SoftAnswer(hub, session, record, after)
