"""Ended calls that wait for the history, in portions."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeVar, cast

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
_FEW: Final = 64
_LITTLE: Final = 16 << 10
"""Calls and bytes of texts that take less time than a turn in a thread."""
_PORTIONS: Final = 7
"""Portions that may wait."""
PORTION_BYTES: Final = 2 << 20
"""Bytes of a portion's texts."""
_UNKNOWN: Final = "The hub that ran this call is gone. The outcome of the call is unknown."
_NOTHING: Final = msgspec.Raw()
_WITH_RESULT: Final = int(Outcome.TOOL_ERROR)
"""The last outcome with a result; an enum compares five times slower."""

_NO_CALL: Final = Call(
    id=CallId(""), upstream="", method="", params={}, meta={}, session="", principal="", era=Era.MODERN, capabilities={}
)
_NO_GROUP: Final = _NO_CALL, Outcome.OK, msgspec.Raw()

_FACTS: Final = 3
"""Facts of each waiting call: id, times of end and start."""


_T = TypeVar("_T")


class _Groups:
    """Groups of calls that differ in times and texts only, numbered in order of their `firsts`."""

    __slots__ = ("_numbers", "_runs", "firsts", "latest")

    def __init__(self) -> None:
        self.firsts: list[tuple[Call, Outcome]] = []
        self.latest = _NO_GROUP
        self._numbers: dict[object, int] = {}
        self._runs: list[tuple[int, int]] = []

    def turn_to(self, call: Call, outcome: Outcome, name: msgspec.Raw, index: int) -> None:
        """Makes the call's group the `latest`, from `index` on; `name` is the called one."""
        caller = call.client or call.session, call.principal, call.parent
        key = (*caller, call.upstream, call.method, outcome, bytes(name))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.firsts)
            self.firsts.append((call, outcome))
        self.latest = call, outcome, name
        self._runs.append((index, number))

    def spread(self, values: Sequence[_T], calls: int) -> list[_T]:
        every: list[_T] = []
        for (first, group), (behind, _) in pairwise((*self._runs, (calls, 0))):
            every += [values[group]] * (behind - first)
        return every


class _Texts:
    """Arguments and results by turns: their `sizes`, and the `joined` ones, NUL-terminated.

    Those in `long`, by index, are empty there.
    """

    __slots__ = ("_long_size", "joined", "long", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.joined = bytearray()
        self.long: dict[int, tuple[bytes, bytes]] = {}
        self._long_size = 0

    @property
    def size(self) -> int:
        """Bytes that all of them take."""
        return len(self.joined) + self._long_size

    def put(self, index: int, arguments: RawJson, result: RawJson) -> None:
        """Adds long texts, cut to what masking needs."""
        texts = self.long[index] = bytes(memoryview(arguments)[:MOST_DECODED]), bytes(memoryview(result)[:_RESULT])
        self._long_size += len(texts[0]) + len(texts[1])
        self.joined += b"\0\0"

    def fields(self) -> list[bytes]:
        """Each text, found by its size: they may hold NULs."""
        fields: list[bytes] = []
        at = 0
        for number, size in enumerate(self.sizes):
            length = 0 if number // 2 in self.long else size
            fields.append(bytes(self.joined[at : at + length]))
            at += length + 1
        return fields


class Portion:
    """Ended calls that wait to be written, in order.

    `facts` are id, end and start of each, in one list. By index: `endings`, `begins` of calls that waited (None: their
    turn never came), and `durable` calls, those with a stream.
    """

    __slots__ = ("begins", "durable", "endings", "facts", "groups", "texts")

    def __init__(self, *, has_texts: bool) -> None:
        self.facts: list[str | float] = []
        self.groups = _Groups()
        self.texts = _Texts() if has_texts else None
        self.begins: dict[int, float | None] = {}
        self.endings: dict[int, Ending] = {}
        self.durable: list[int] = []

    def __len__(self) -> int:
        return len(self.facts) // _FACTS

    @property
    def is_small(self) -> bool:
        """Whether its batch takes under 0.2 ms."""
        return len(self) <= _FEW and (self.texts is None or self.texts.size <= _LITTLE)

    @property
    def ids(self) -> list[str]:
        return cast("list[str]", self.facts[::_FACTS])

    @property
    def ends(self) -> list[float]:
        return cast("list[float]", self.facts[1::_FACTS])

    @property
    def starts(self) -> list[float]:
        return cast("list[float]", self.facts[2::_FACTS])

    @property
    def durable_ids(self) -> list[str]:
        return [cast(str, self.facts[index * _FACTS]) for index in self.durable]

    def tool_errors(self, places: Sequence[int]) -> list[int]:
        """Numbers within `places` of calls whose results are errors."""
        are_errors = [outcome == Outcome.TOOL_ERROR for _, outcome in self.groups.firsts]
        every = self.groups.spread(are_errors, len(self)) if any(are_errors) else ()
        return [number for number, index in enumerate(places) if every[index]] if every else []

    def put_running(self, record: CallRecord, time: float) -> None:
        """Adds a running call, as the only one, that its hub has not ended."""
        call, times = record.call, record.times
        self.groups.turn_to(call, Outcome.RPC_ERROR, _NOTHING, 0)
        self.endings[0] = Failed(HubRestarted(_UNKNOWN))
        if self.texts is not None:
            arguments = call.params.get("arguments", _NOTHING)
            self.texts.sizes += len(arguments), 0
            if len(arguments) > VALUE:
                self.texts.put(0, arguments, _NOTHING)
            else:
                self.texts.joined += bytes(arguments) + b"\0\0"
        if times.began != times.started:
            self.begins[0] = times.began
        if record.stream is not None:
            self.durable.append(0)
        self.facts += call.id, time, times.started


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

    def use(self, keeping: str, *, is_audited: bool = False) -> None:
        """Applies `keeping` from now on; the audit takes every call."""
        has_texts = is_audited or keeping in ("hash", "full")
        if has_texts is not self.keeps_texts and self._open.facts:
            self._seal()
        self.keeps, self.keeps_texts = is_audited or keeping != "off", has_texts
        if not self._open.facts:
            self._open = Portion(has_texts=has_texts)

    def ended(self, record: CallRecord, outcome: Outcome, now: float) -> None:
        """Adds an ended call. One function: each further one costs 2 % of a quick call."""
        if not self.keeps:
            return
        call, times, portion = record.call, record.times, self._open
        params, facts, started = call.params, portion.facts, times.started
        name = params.get("name") or params.get("uri", _NOTHING)
        last, before, called = portion.groups.latest
        if (
            name != called or outcome is not before or call.client is not last.client or call.upstream != last.upstream
            or call.method != last.method or call.principal != last.principal or call.parent is not last.parent
            or (call.client is None and call.session != last.session)
        ):  # fmt: skip
            portion.groups.turn_to(call, outcome, name, len(portion))
        if outcome > _WITH_RESULT:
            portion.endings[len(portion)] = record.log.ending
        if times.began is not started:
            portion.begins[len(portion)] = times.began
        if record.stream is not None:
            portion.durable.append(len(portion))
        if (texts := portion.texts) is not None:
            arguments = params.get("arguments", _NOTHING)
            result = record.log.ending.result if outcome <= _WITH_RESULT else _NOTHING  # type: ignore[union-attr]
            argument_size, result_size, joined = len(arguments), len(result), texts.joined
            texts.sizes += argument_size, result_size
            if argument_size > VALUE or result_size > VALUE:
                texts.put(len(portion), arguments, result)
                self._next = 0  # the size is looked at
            else:
                joined += arguments
                joined += b"\0"
                joined += result
                joined += b"\0"
            if len(joined) > PORTION_BYTES:
                self._next = 0
        facts += call.id, now, started
        if len(facts) >= self._next:
            self._crowded()

    def _crowded(self) -> None:
        portion = self._open
        if not self.begun.is_set():
            self.begun.set()
        self._next = FULL * _FACTS
        if len(portion) >= FULL or (portion.texts is not None and portion.texts.size > PORTION_BYTES):
            self._seal()

    def _seal(self) -> None:
        self._sealed.append(self._open)
        self._open, self._next = Portion(has_texts=self.keeps_texts), 1
        self.full.set()
        while len(self._sealed) > _PORTIONS or sum(map(len, self._sealed)) > MOST - FULL:
            portion = self._sealed.pop(0)
            self._dropped += len(portion)
            self._dropped_ids += portion.durable_ids
            del self._dropped_ids[:-MOST]

    def take(self) -> tuple[list[Portion], int, list[str]]:
        """Waiting portions, the number of dropped calls, and ids of calls with streams."""
        portions, dropped, ids = [*self._sealed, self._open], self._dropped, self._dropped_ids
        self._sealed, self._open = [], Portion(has_texts=self.keeps_texts)
        self._dropped, self._next, self._dropped_ids = 0, 1, []
        self.begun.set()  # somebody else may wait for them
        self.full.set()
        self.begun, self.full = anyio.Event(), anyio.Event()
        return [portion for portion in portions if portion.facts], dropped, ids
