"""Ended calls that wait to be written into the history, in portions."""

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
"""Characters kept of an argument's value, and of a result."""
MOST_DECODED: Final = 1 << 20
"""Bytes of arguments searched for long values."""
_RESULT: Final = 64 << 10
"""Bytes of a waiting result: enough to mask a long secret at its beginning."""
FULL: Final = 2048
"""Calls of a portion, which is then written at once."""
MOST: Final = 8192
"""Calls that may wait."""
PORTION_BYTES: Final = 4 << 20
"""Bytes of a portion's texts."""
_UNKNOWN: Final = "The hub that ran this call is gone. The outcome of the call is unknown."
_NOTHING: Final = msgspec.Raw()
_WITH_RESULT: Final = int(Outcome.TOOL_ERROR)
"""The last outcome with a result; an enum compares five times slower."""

_NO_CALL: Final = Call(
    id=CallId(""), upstream="", method="", params={}, meta={}, session="", principal="", era=Era.MODERN, capabilities={}
)
_NO_GROUP: Final = _NO_CALL, Outcome.OK, msgspec.Raw(), 0

_Row = tuple[int, str, float, float, float | None, int, int, bool]
"""Group, id, times of end, start and begin, bytes of arguments and result, whether durable."""


class Portion:
    """Ended calls that wait to be written.

    `texts` are arguments and results by turns, NUL-terminated, empty for calls in `long`. `groups` number calls with
    equal texts; `firsts` have each group's first call and outcome. `endings` are by index. `latest` is the last group.
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
        """The number of the call's group, now the latest; `name` is the called one."""
        key = (call.client or call.session, call.upstream, call.method, call.principal, outcome, bytes(name))
        number = self.groups.get(key)
        if number is None:
            number = self.groups[key] = len(self.firsts)
            self.firsts.append((call, outcome))
        self.latest = call, outcome, name, number
        return number

    def put(self, index: int, arguments: RawJson, result: RawJson) -> None:
        """Adds long texts, cut to what masking needs."""
        texts = self.long[index] = bytes(memoryview(arguments)[:MOST_DECODED]), bytes(memoryview(result)[:_RESULT])
        self.size += len(texts[0]) + len(texts[1])

    def put_running(self, record: CallRecord, time: float) -> None:
        """Adds a running call, as one that its hub has not ended."""
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
    """Waiting calls, in portions; of too many the oldest is dropped.

    It `keeps` calls at all, and `keeps_texts`.
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
        """Applies `keeping` from now on."""
        has_texts = keeping in ("hash", "full")
        if has_texts is not self.keeps_texts and self._open.rows:
            self._seal()
        self.keeps, self.keeps_texts = keeping != "off", has_texts
        if not self._open.rows:
            self._open = Portion(has_texts=has_texts)

    def ended(self, record: CallRecord, outcome: Outcome, now: float) -> None:
        """Adds an ended call. One function: each further one costs 2 % of a quick call."""
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
        """Waiting portions, the number of dropped calls, and ids of calls with streams."""
        portions, dropped, ids = [*self._sealed, self._open], self._dropped, self._dropped_ids
        self._sealed, self._open = [], Portion(has_texts=self.keeps_texts)
        self._dropped, self._next, self._dropped_ids = 0, 1, []
        self.begun, self.full = anyio.Event(), anyio.Event()
        return [portion for portion in portions if portion.rows], dropped, ids
