"""The calls that have ended and wait to be written into the history, in portions."""

from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call
from mcp_hub.calls.metering import Outcome
from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import HubRestarted
from mcp_hub.events import Ending, Failed
from mcp_hub.types import CallId, Era, RawJson

VALUE: Final = 4096
"""Characters of a value of the arguments, and of a result, that are kept."""
MOST_DECODED: Final = 1 << 20
"""Bytes of arguments that are looked through for long values."""
_RESULT: Final = 64 << 10
"""Bytes of a result that wait: enough to mask a long secret in its beginning as a whole."""
FULL: Final = 2048
"""Calls of a portion, which is written at once, without waiting for the next batch."""
MOST: Final = 8192
"""Calls that may wait."""
PORTION_BYTES: Final = 4 << 20
"""Bytes of the arguments and results of a portion."""
_UNKNOWN: Final = "The hub that ran this call is gone. The outcome of the call is unknown."
_NOTHING: Final = msgspec.Raw()
_WITH_RESULT: Final = int(Outcome.TOOL_ERROR)
"""The last outcome with a result; a member of an enumeration takes five times as long to compare."""

_NO_CALL: Final = Call(
    id=CallId(""), upstream="", method="", params={}, meta={}, session="", principal="", era=Era.MODERN, capabilities={}
)
_NO_GROUP: Final = _NO_CALL, Outcome.OK, msgspec.Raw(), 0

_Row = tuple[int, str, float, float, float | None, int, int, bool]
"""The number of a call's group, its id, when it ended, started and began, bytes of its arguments and of its result, and
whether it is durable.
"""


class Portion:
    """Calls that have ended and wait to be written.

    `texts` are arguments and results by turns, each with a NUL behind it; those of calls in `long` are empty. `groups`
    number calls with the same texts, `firsts` have the first call of each and its outcome. `endings` are by the places
    of calls without a result. The `latest` group is that of such a call, outcome and name, and has that number.
    """

    __slots__ = ("endings", "firsts", "groups", "has_texts", "latest", "long", "rows", "size", "texts")

    def __init__(self, *, has_texts: bool) -> None:
        self.has_texts = has_texts
        self.rows: list[_Row] = []
        self.texts = bytearray()
        self.groups: dict[object, int] = {}
        self.firsts: list[tuple[Call, Outcome]] = []
        self.latest = _NO_GROUP
        self.endings: dict[int, Ending] = {}
        self.long: dict[int, tuple[bytes, bytes]] = {}
        self.size = 0

    def turn_to(self, call: Call, outcome: Outcome, name: msgspec.Raw) -> int:
        """The number of the group of this call, which is now the last one; `name` is what it calls."""
        key = (call.client or call.session, call.upstream, call.method, call.principal, outcome, bytes(name))
        number = self.groups.get(key)
        if number is None:
            number = self.groups[key] = len(self.firsts)
            self.firsts.append((call, outcome))
        self.latest = call, outcome, name, number
        return number

    def put(self, index: int, arguments: RawJson, result: RawJson) -> None:
        """Takes texts of which one is long; only so much of them as masking needs."""
        texts = self.long[index] = bytes(memoryview(arguments)[:MOST_DECODED]), bytes(memoryview(result)[:_RESULT])
        self.size += len(texts[0]) + len(texts[1])

    def put_running(self, record: CallRecord, time: float) -> None:
        """Takes a call that runs, as one that its hub has not ended."""
        call, times = record.call, record.times
        arguments = call.params.get("arguments", _NOTHING) if self.has_texts else _NOTHING
        number = self.turn_to(call, Outcome.RPC_ERROR, _NOTHING)
        self.endings[len(self.rows)] = Failed(HubRestarted(_UNKNOWN))
        if len(arguments) > VALUE:
            self.put(len(self.rows), arguments, _NOTHING)
        else:
            self.texts += arguments
        self.texts += b"\0\0"
        is_durable = record.stream is not None
        self.rows.append((number, call.id, time, times.started, times.began, len(arguments), 0, is_durable))


class CallQueue:
    """The calls that wait to be written, in portions; `ended` is on the way of each call.

    `keeps` calls at all, and `keeps_texts`. A portion that is full is sealed; of too many the oldest is dropped.
    """

    def __init__(self) -> None:
        self.keeps = self.keeps_texts = False
        self._open = Portion(has_texts=False)
        self._sealed: list[Portion] = []
        self._dropped = 0
        self._dropped_ids: list[str] = []
        self._next = 1
        self.begun, self.full = anyio.Event(), anyio.Event()

    def use(self, keeping: str) -> None:
        """Keeps so much from now on."""
        has_texts = keeping in ("hash", "full")
        if has_texts is not self.keeps_texts and self._open.rows:
            self._seal()
        self.keeps, self.keeps_texts = keeping != "off", has_texts
        if not self._open.rows:
            self._open = Portion(has_texts=has_texts)

    def ended(self, record: CallRecord, outcome: Outcome, now: float) -> None:
        """Takes a call that has ended. All in one function: each further one would take a fiftieth of a quick call."""
        if not self.keeps:
            return
        call, times, portion = record.call, record.times, self._open
        params = call.params
        name = params.get("name") or params.get("uri", _NOTHING)
        last, before, called, mark = portion.latest
        if (
            name != called
            or outcome is not before
            or call.client is not last.client
            or (call.session != last.session and call.client is None)
            or call.upstream != last.upstream
            or call.method != last.method
            or call.principal != last.principal
        ):
            mark = portion.turn_to(call, outcome, name)
        if outcome > _WITH_RESULT:
            portion.endings[len(portion.rows)] = record.log.ending
        argument_size = result_size = 0
        if self.keeps_texts:
            arguments = params.get("arguments", _NOTHING)
            result = record.log.ending.result if outcome <= _WITH_RESULT else _NOTHING  # type: ignore[union-attr]
            argument_size, result_size, texts = len(arguments), len(result), portion.texts
            if argument_size > VALUE or result_size > VALUE:
                portion.put(len(portion.rows), arguments, result)
                texts += b"\0\0"
            else:
                texts += arguments
                texts += b"\0"
                texts += result
                texts += b"\0"
            if len(texts) > PORTION_BYTES or portion.size > PORTION_BYTES:
                self._next = 0
        portion.rows.append(
            (mark, call.id, now, times.started, times.began, argument_size, result_size, record.stream is not None)
        )
        if len(portion.rows) >= self._next:
            self._crowded()

    def _crowded(self) -> None:
        """The first call of a portion, or the last one that it takes."""
        portion = self._open
        if not self.begun.is_set():
            self.begun.set()
        self._next = FULL
        if len(portion.rows) >= FULL or max(portion.size, len(portion.texts)) > PORTION_BYTES:
            self._seal()

    def _seal(self) -> None:
        self._sealed.append(self._open)
        self._open, self._next = Portion(has_texts=self.keeps_texts), 1
        self.full.set()
        while len(self._sealed) > MOST // FULL:
            rows = self._sealed.pop(0).rows
            self._dropped += len(rows)
            self._dropped_ids += [id_ for _, id_, *_, is_durable in rows if is_durable]
            del self._dropped_ids[:-MOST]

    def take(self) -> tuple[list[Portion], int, list[str]]:
        """The portions that wait, how many calls were dropped before them, and the ids of those with streams."""
        portions, dropped, ids = [*self._sealed, self._open], self._dropped, self._dropped_ids
        self._sealed, self._open = [], Portion(has_texts=self.keeps_texts)
        self._dropped, self._next, self._dropped_ids = 0, 1, []
        self.begun, self.full = anyio.Event(), anyio.Event()
        return [portion for portion in portions if portion.rows], dropped, ids
