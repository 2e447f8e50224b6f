"""Recently ended and running calls, each as one `CallSummary`."""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Final, Literal

import msgspec

from mcp_hub.calls.metering import Outcome
from mcp_hub.calls.progress import question_text
from mcp_hub.calls.reading.stored import exported_name
from mcp_hub.calls.runner import QUIET, CallRecord, newest_progress
from mcp_hub.clock import wall_time
from mcp_hub.events import Cancelled, Completed, Ending, Failed
from mcp_hub.ids import new_session_id
from mcp_hub.masking import hide_head, hide_start
from mcp_hub.protocol.rest.overview import CallSummary
from mcp_hub.types import Status, plural

MOST: Final = 10_000
"""Endings kept."""
_PORTION: Final = 100
"""Endings packed together: 10,000 small objects would fragment memory."""
_MOST_BYTES: Final = 8 << 20
MOST_LIVE: Final = 500
"""Running calls shown."""
_EACH: Final = 480
"""Bytes of a summary without texts."""
_TEXT: Final = 200
"""Characters of one text."""
_TEXTS: Final = _MOST_BYTES // MOST - _EACH
"""Characters of a summary's texts."""
_SHORT: Final = _TEXTS // 4
_PRINCIPAL: Final = 80
"""Characters of a principal shown whole."""
_STATUS: Final[tuple[Status | Literal["timed_out"], ...]] = (
    "completed", "tool_error", "failed", "cancelled", "timed_out",
)  # fmt: skip
"""By outcome."""
_decode_text = msgspec.json.Decoder(str).decode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[CallSummary]).decode
_STEADY: Final = 1.0
"""Seconds for which both clocks are taken to run alike."""
_OK: Final = Outcome.OK
_BEGINNING: Final = 1024
"""Characters of a result that are searched for its first text."""
_HEX: Final = "[0-9a-fA-F]"
_FIRST_TEXT: Final = re.compile(
    rf'"text"\s*:\s*"((?:[^"\\]|\\[^u]|\\u[dD][89abAB]{_HEX}{{2}}\\u{_HEX}{{4}}|\\u(?![dD][89abAB]){_HEX}{{4}})*)'
)  # up to an escape that is cut


class RecentCalls:
    """The last endings, numbered 1, 2, 3… up to `seq`; the oldest `portion` are dropped together."""

    def __init__(self, *, capacity: int = MOST, portion: int = _PORTION) -> None:
        self.epoch = new_session_id()[-8:]
        self.seq = 0
        self._portion = portion
        self._fresh: list[CallSummary] = []
        self._packed: deque[bytes] = deque(maxlen=capacity // portion - 1)
        self._wall = 0.0  # what makes a time by the wall clock of one by the registry's clock
        self._until = float("-inf")

    def __len__(self) -> int:
        return len(self._packed) * self._portion + len(self._fresh)

    def ended(self, record: CallRecord, outcome: Outcome, now: float) -> None:
        """Adds an ended call. One function, for speed."""
        if now >= self._until:
            self._wall, self._until = wall_time() - now, now + _STEADY
        call, started = record.call, record.times.started
        caller = call.client
        if caller is None:
            client = call.client_name
        else:
            client = caller.name
            caller.ended(now + self._wall)
        raw, principal = call.exported_name, call.principal
        try:
            name = _decode_text(raw) if isinstance(raw, msgspec.Raw) else exported_name(call)
        except msgspec.DecodeError:
            name = ""
        if call.method != "tools/call":  # a URI may have a secret
            name = hide_head(name, _TEXT)
        why = "" if outcome is _OK else reason_of(record.log.ending)
        if len(principal) > _PRINCIPAL:
            principal = shown_principal(principal)
        if why or len(name) > _SHORT:
            name, client, why = _cut(_TEXTS - len(principal), name, client, why)
        self.seq += 1
        self._fresh.append(CallSummary(
            id=call.id, server=call.upstream, name=name, method=call.method, principal=principal,
            status=_STATUS[outcome], at=started + self._wall, took=now - started, client=client,
            stream=record.stream is not None, message=why,
        ))  # fmt: skip
        if len(self._fresh) == self._portion:
            self._packed.append(_pack(self._fresh))
            self._fresh.clear()

    def behind(self, seq: int) -> list[CallSummary] | None:
        """Endings after number `seq`, oldest first; None if some are gone."""
        new = self.seq - seq
        if not 0 <= new <= len(self):
            return None
        summaries = self._fresh[:]
        for packed in reversed(self._packed):
            if len(summaries) >= new:
                break
            summaries = _unpack(packed) + summaries
        return summaries[len(summaries) - new :]

    def newest(self) -> list[CallSummary]:
        packed = [summary for portion in self._packed for summary in _unpack(portion)]
        return [*packed, *self._fresh][::-1]

    def live(
        self, records: Collection[CallRecord], now: float, every: "_RunningCalls | None" = None
    ) -> list[CallSummary]:
        """The newest of these calls, without short quiet ones. `every`: all running calls."""
        lasting = [record for record in records if _lasts(record, now)]
        calls = _RunningCalls(records) if every is None else every
        return [self._running(record, now, calls.wait_of(record)) for record in lasting[-MOST_LIVE:]]

    def running(self, records: Collection[CallRecord], names: Callable[[CallRecord], bool]) -> "_RunningCalls":
        return _RunningCalls(records, names)

    def _running(self, record: CallRecord, now: float, wait: "_NamedWait | None") -> CallSummary:
        progress = newest_progress(record)
        took = now - record.times.started
        message = None if progress is None else progress.message
        return CallSummary(
            id=record.call.id, server=record.call.upstream, name=hide_head(exported_name(record.call), _TEXT),
            method=record.call.method, principal=shown_principal(record.call.principal),
            status="waiting" if wait is not None else "input_required" if record.questions.open else "working",
            at=round(wall_time() - took, 1), took=0.0, client=record.call.client_name,
            stream=record.stream is not None, message="" if message is None else hide_head(message, _TEXT),
            progress=None if progress is None else progress.progress,
            total=None if progress is None else progress.total, questions=len(record.questions.open),
            question=next((question_text(question) for question in record.questions.open.values()), ""),
            waits_for="" if wait is None else wait.reason,
            waits_since=0.0 if wait is None else round(wall_time() - (now - wait.since), 1),
        )  # fmt: skip


class _NamedWait(msgspec.Struct, frozen=True):
    """A wait in words (`slow_tool of Cursor`), `since` by the calls' clock."""

    reason: str
    since: float


class _RunningCalls:
    """Running calls and their waits. Calls that `names` refuses stay anonymous."""

    def __init__(
        self,
        records: Collection[CallRecord],
        names: Callable[[CallRecord], bool] = lambda record: True,
    ) -> None:
        self._records = records
        self._names = names

    @cached_property
    def _of(self) -> dict[str, list[CallRecord]]:
        groups: dict[str, list[CallRecord]] = {}
        for record in self._records:
            if record.state != "waiting":
                groups.setdefault(record.call.principal, []).append(record)
        return groups

    @cached_property
    def _at(self) -> dict[tuple[str, str], list[CallRecord]]:
        groups: dict[tuple[str, str], list[CallRecord]] = {}
        for record in self._records:
            if record.state != "waiting" and record.times.waits is None:
                groups.setdefault((record.call.upstream, record.call.session), []).append(record)
        return groups

    def wait_of(self, record: CallRecord) -> _NamedWait | None:
        """Why a call does not run yet, or None."""
        wait, call = record.times.waits, record.call
        if record.state == "waiting":
            return _NamedWait(self._named(self._of.get(call.principal, ()), "its turn"), record.times.started)
        if wait is None:
            return None
        if isinstance(wait.reason, str):
            return _NamedWait(hide_head(wait.reason, _TEXT), wait.since)
        there = [running for session in wait.reason() for running in self._at.get((call.upstream, session), ())]
        turn = f'its turn at server "{hide_head(call.upstream, _TEXT)}"'
        return _NamedWait(self._named(sorted(there, key=_start), turn), wait.since)

    def _named(self, calls: Sequence[CallRecord], otherwise: str) -> str:
        if not calls:
            return otherwise
        first = next(filter(self._names, calls), None)
        if first is None:
            return "a call of somebody else" if len(calls) == 1 else f"{len(calls)} calls of others"
        client = hide_head(first.call.client_name, _TEXT)
        more = len(calls) - 1
        suffix = f" and {plural(more, 'more call')}" if more else ""
        return f"{hide_head(exported_name(first.call), _TEXT)}{f' of {client}' if client else ''}{suffix}"


def _start(record: CallRecord) -> float:
    return record.times.started


def _lasts(record: CallRecord, now: float) -> bool:
    if record.stream is not None or not record.is_short:
        return True
    since = record.times.started if record.state == "waiting" else _waits_since(record)
    return since is not None and now - since >= QUIET


def _waits_since(record: CallRecord) -> float | None:
    return None if record.times.waits is None else record.times.waits.since


def shown_principal(principal: str) -> str:
    """A unique short form: a long principal's beginning and digest."""
    if len(principal) <= _PRINCIPAL:
        return principal
    return (
        f"{hide_head(principal, _PRINCIPAL - 32)}…{sha256(principal.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    )


def _cut(limit: int, *texts: str) -> Iterable[str]:
    return texts if sum(map(len, texts)) <= limit else [hide_head(text, _SHORT) for text in texts]


def reason_of(ending: Ending) -> str:
    """A failure's or cancellation's reason, or the text of a result with an error; masked and cut."""
    if isinstance(ending, Completed):
        return first_text(hide_start(memoryview(ending.result), _BEGINNING)[0])
    if isinstance(ending, Cancelled):
        return hide_head(ending.reason or "", _TEXT)
    return hide_head(ending.error.message, _TEXT) if isinstance(ending, Failed) else ""


def first_text(result: str) -> str:
    """The beginning of the first text in a masked result, of which only the beginning may be there."""
    match = _FIRST_TEXT.search(result[:_BEGINNING], max(result.find('"content"'), 0))
    try:
        return "" if match is None else hide_head(_decode_text(f'"{match[1]}"'), _TEXT)
    except msgspec.DecodeError:
        return ""
