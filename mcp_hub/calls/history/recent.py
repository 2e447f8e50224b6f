"""The last calls that ended, and those that run, each as one `CallSummary`."""

from collections import deque
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, Protocol

import msgspec

from mcp_hub.calls.hub_tools.transcript import question_text
from mcp_hub.calls.log import newest_progress
from mcp_hub.calls.metering import Outcome
from mcp_hub.calls.plan import CallState
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.stored import asked
from mcp_hub.clock import wall_time
from mcp_hub.errors import RpcError
from mcp_hub.events import Cancelled, Failed
from mcp_hub.ids import new_session_id
from mcp_hub.masking import hide_head
from mcp_hub.protocol.rest.overview import CallSummary
from mcp_hub.types import Status

MOST: Final = 10_000
"""Endings that are kept."""
_PORTION: Final = 100
"""Endings that are packed together: 10,000 small objects would scatter those of all later calls over the memory."""
_MOST_BYTES: Final = 8 << 20
MOST_LIVE: Final = 500
"""Running calls that are shown."""
_EACH: Final = 480
"""Bytes of a summary without its texts."""
_TEXT: Final = 200
"""Characters of one text."""
_TEXTS: Final = _MOST_BYTES // MOST - _EACH
"""Characters of all texts of a summary."""
_SHORT: Final = _TEXTS // 4
_PRINCIPAL: Final = 80
"""Characters of a principal that is shown as it is."""
_STATUS: Final[tuple[Status, ...]] = ("completed", "tool_error", "failed", "cancelled", "failed")
"""By outcome."""
_decode_text = msgspec.json.Decoder(str).decode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[CallSummary]).decode
_STEADY: Final = 1.0
"""Seconds in which the wall clock is taken to go as the other one."""
_DONE: Final = (Outcome.OK, Outcome.TOOL_ERROR)


class CallingClient(Protocol):
    """A client: its name, its calls that have ended, and when it was last seen, in Unix seconds."""

    name: str
    calls: int
    last: float


class SessionClients(Protocol):
    """The clients that are known, by session, and the names of all."""

    @property
    def by_session(self) -> Mapping[str, CallingClient]: ...

    def name_of(self, session: str) -> str: ...


class RecentCalls:
    """The last endings, which have the numbers 1, 2, 3… up to `seq`; the oldest `portion` of them go together.

    `clients` name the client of a session; it is noted that it has called.
    """

    def __init__(self, clients: SessionClients, *, most: int = MOST, portion: int = _PORTION) -> None:
        self.epoch = new_session_id()[-8:]
        self.seq = 0
        self._clients = clients
        self._portion = portion
        self._fresh: list[CallSummary] = []
        self._packed: deque[bytes] = deque(maxlen=most // portion - 1)
        self._wall = 0.0  # what makes a time by the wall clock of one by the registry's clock
        self._until = float("-inf")

    def __len__(self) -> int:
        return len(self._packed) * self._portion + len(self._fresh)

    def ended(self, record: CallRecord, outcome: Outcome, now: float) -> None:
        """Keeps a call that has ended, in place of the oldest ones if there are too many: a `CallObserver`.

        All in one function: each further one would take a hundredth of what a call does.
        """
        if now >= self._until:
            self._wall, self._until = wall_time() - now, now + _STEADY
        call, started = record.call, record.times.started
        caller = self._clients.by_session.get(call.session)
        if caller is None:
            client = self._clients.name_of(call.session)
        else:
            client = caller.name
            caller.calls += 1
            caller.last = now + self._wall
        raw, principal = call.asked, call.principal
        try:
            name = _decode_text(raw) if isinstance(raw, msgspec.Raw) else asked(call)
        except msgspec.DecodeError:
            name = ""
        why = "" if outcome in _DONE else _why(record)
        if len(principal) > _PRINCIPAL:
            principal = shown_principal(principal)
        if why or len(name) > _SHORT:
            name, client, why = _cut(_TEXTS - len(principal), name, client, why)
        self.seq += 1
        self._fresh.append(CallSummary(
            call.id, call.upstream, name, call.method, principal, _STATUS[outcome], started + self._wall, now - started,
            client, record.stream is not None, why,
        ))  # fmt: skip
        if len(self._fresh) == self._portion:
            self._packed.append(_pack(self._fresh))
            self._fresh.clear()

    def behind(self, seq: int) -> list[CallSummary] | None:
        """The endings behind number `seq`, the oldest first; None if some of them are gone, or were never there."""
        new = self.seq - seq
        if not 0 <= new <= len(self):
            return None
        found = self._fresh[:]
        for packed in reversed(self._packed):
            if len(found) >= new:
                break
            found = _unpack(packed) + found
        return found[len(found) - new :]

    def newest(self) -> list[CallSummary]:
        """All that are kept, the newest first."""
        packed = [summary for portion in self._packed for summary in _unpack(portion)]
        return [*packed, *self._fresh][::-1]

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
            hide_head(asked(record.call), _TEXT),
            record.call.method,
            shown_principal(record.call.principal),
            "waiting" if is_waiting else "input_required" if record.open_questions else "working",
            round(wall_time() - took, 1),  # the same at each look
            0.0,
            self._clients.name_of(record.call.session),
            record.stream is not None,
            "" if said is None else hide_head(said, _TEXT),
            None if progress is None else progress.progress,
            None if progress is None else progress.total,
            len(record.open_questions),
            next((question_text(question) for question in record.open_questions.values()), ""),
        )


def shown_principal(principal: str) -> str:
    """The principal as summaries have it, by which callers are found: different for any two principals.

    A long one is its beginning and a digest, which together are longer than any that is whole.
    """
    if len(principal) <= _PRINCIPAL:
        return principal
    return (
        f"{hide_head(principal, _PRINCIPAL - 32)}…{sha256(principal.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    )


def _cut(most: int, *texts: str) -> Iterable[str]:
    """These texts, none longer than `_SHORT` if they are longer than `most` together."""
    return texts if sum(map(len, texts)) <= most else [hide_head(text, _SHORT) for text in texts]


def _why(record: CallRecord) -> str:
    ending = record.log.ending
    if isinstance(ending, Cancelled):
        return hide_head(ending.reason or "", _TEXT)
    error = ending.error if isinstance(ending, Failed) else RpcError("")
    return hide_head(error.message, _TEXT)
