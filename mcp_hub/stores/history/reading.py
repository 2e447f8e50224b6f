"""Queries over batches: filtered calls, one call by id, figures over time."""

import math
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from itertools import chain, compress
from typing import Final, TypeVar

import anyio.to_thread
import msgspec

from mcp_hub.protocol.rest.history import HistoryRow
from mcp_hub.stores.history.base import (
    COMPLETED,
    DURABLE,
    RUNNING,
    Batch,
    BatchKey,
    CallGroup,
    CallTexts,
    HistoryLimits,
    HistoryStore,
    floats,
    group_of,
    numbers,
    sizes,
)

_FIRST: Final = 4
_PAGE: Final = 64
"""Batches that are loaded at once: first, and at most."""
MOST_ROWS: Final = 200
"""Tools of which there are figures."""

_FAILED: Final = bytes(0 if flags & COMPLETED else 1 for flags in range(256))
"""Whether a call may have failed, by its flags."""

T = TypeVar("T")
Place = tuple[float, int, str]
"""Sort key of a call: end time, number at its hub, hub."""


class PastCall(msgspec.Struct, frozen=True, gc=False):
    """An ended call without its texts, at `index` of batch `key`."""

    id: str
    group: CallGroup
    hub: str
    number: int
    ended: float
    took: float
    waited: float
    arguments_bytes: int
    result_bytes: int
    flags: int
    code: str
    message: str
    key: BatchKey
    index: int

    @property
    def order(self) -> Place:
        return self.ended, self.number, self.hub

    @property
    def has_no_end(self) -> bool:
        """Whether its hub was gone before it ended."""
        return self.number >= RUNNING

    @property
    def is_durable(self) -> bool:
        return bool(self.flags & DURABLE)


class _Matches(dict[str, CallGroup | None]):
    """Matching groups by their lines; None for others."""

    def __init__(self, fits: Callable[[CallGroup], bool]) -> None:
        super().__init__()
        self._fits = fits

    def __missing__(self, line: str) -> CallGroup | None:
        group = group_of(line)
        self[line] = matching = group if self._fits(group) else None
        return matching


class CallFilter(msgspec.Struct):
    """Calls of matching groups that ended from `since` to before `until` and `before`, for one query.

    `failed` leaves out calls with the flag `COMPLETED`.
    """

    fits: Callable[[CallGroup], bool]
    since: float = 0.0
    until: float = math.inf
    before: Place | None = None
    failed: bool = False
    matches: dict[str, CallGroup | None] = {}

    def __post_init__(self) -> None:
        self.matches = _Matches(self.fits)

    @property
    def end(self) -> float:
        return self.until if self.before is None else min(self.until, self.before[0])


async def newest(store: HistoryStore, chosen: CallFilter, limit: int) -> list[PastCall]:
    """The newest matching calls, newest first. Raises `StoreError`."""
    calls: list[PastCall] = []
    keys = await _keys(store, chosen)
    start, size = 0, _FIRST
    while start < len(keys) and not (len(calls) == limit and calls[-1].ended > keys[start].last):
        portions = await store.scan(keys[start : start + size], partial(_fitting, chosen=chosen, limit=limit))
        calls = await anyio.to_thread.run_sync(_merged, calls, portions, limit)
        start, size = start + size, min(2 * size, _PAGE)
    return calls


async def scanned(store: HistoryStore, chosen: CallFilter, extract: Callable[[Batch], T]) -> AsyncIterator[T]:
    """The results of `extract` for each batch within the filter's time, the newest first. Raises `StoreError`."""
    keys = await _keys(store, chosen)
    for start in range(0, len(keys), _PAGE):
        for result in await store.scan(keys[start : start + _PAGE], extract):
            yield result


async def within(store: HistoryStore, limits: HistoryLimits, now: float) -> float:
    """End time of the oldest call within the limits."""
    oldest, remaining = now - limits.keep, limits.calls
    for key in sorted(await store.index(), key=lambda key: -key.last):
        if remaining < key.calls:
            [ended] = await store.scan([key], lambda batch: floats(batch.ended)) or [()]
            return max(oldest, ended[max(len(ended) - remaining, 0)] if ended and remaining else key.last + 1e-6)
        remaining -= key.calls
    return oldest


async def by_id(store: HistoryStore, id_: str, chosen: CallFilter) -> PastCall | None:
    """The call with this id, if it matches. Raises `StoreError`."""
    async for call in scanned(store, chosen, partial(_with_id, id_=id_)):
        if call is not None:
            return call if chosen.fits(call.group) and call.ended >= chosen.since else None
    return None


def _with_id(batch: Batch, id_: str) -> PastCall | None:
    ids = batch.ids.split(" ") if id_ in batch.ids else []
    return _calls(batch, [ids.index(id_)], batch.groups.split("\n"))[0] if id_ in ids else None


async def clients_of(store: HistoryStore, ids: Collection[str]) -> dict[str, str]:
    """The client of each of these calls that is in the history. Raises `StoreError`."""
    clients, calls = dict[str, str](), frozenset(ids)
    if calls:
        async for more in scanned(store, CallFilter(lambda group: True), partial(_clients_in, ids=calls)):
            clients |= more
            if len(clients) == len(calls):
                break
    return clients


def _clients_in(batch: Batch, ids: Collection[str]) -> dict[str, str]:
    lines, marks = batch.groups.split("\n"), numbers(batch.marks)
    called = zip(batch.ids.split(" "), marks, strict=True)
    return {id_: group_of(lines[mark]).client for id_, mark in called if id_ in ids}


async def texts_of(store: HistoryStore, calls: Sequence[PastCall]) -> list[CallTexts]:
    """The texts of each call. Raises `StoreError`."""
    indexes_by_batch: dict[BatchKey, list[int]] = {}
    for call in calls:
        indexes_by_batch.setdefault(call.key, []).append(call.index)
    texts = {key: await store.texts(key, indexes) for key, indexes in indexes_by_batch.items()}
    return [texts[call.key].get(call.index, ("", "")) for call in calls]


async def _keys(store: HistoryStore, chosen: CallFilter) -> list[BatchKey]:
    keys = [key for key in await store.index() if key.last >= chosen.since and key.first <= chosen.end]
    return sorted(keys, key=lambda key: (key.last, key.base, key.hub), reverse=True)


def _merged(calls: Sequence[PastCall], portions: Sequence[Sequence[PastCall]], limit: int) -> list[PastCall]:
    return sorted(chain(calls, *portions), key=lambda call: call.order, reverse=True)[:limit]


def _fitting(batch: Batch, chosen: CallFilter, limit: int) -> list[PastCall]:
    indexes: Sequence[int] = range(len(batch))
    if chosen.failed:
        indexes = [*compress(indexes, batch.flags.translate(_FAILED))]
    if not indexes:
        return []
    lines, marks, matches = batch.groups.split("\n"), numbers(batch.marks), chosen.matches
    if 2 * len(indexes) < len(lines):
        indexes = [index for index in indexes if matches[lines[marks[index]]] is not None]
    else:
        groups = {number for number, group in enumerate(map(matches.__getitem__, lines)) if group is not None}
        if not groups or groups.isdisjoint(marks):
            return []
        indexes = [index for index in indexes if marks[index] in groups]
    ended, since, end, before = floats(batch.ended), chosen.since, chosen.end, chosen.before
    if since > 0.0 or end < math.inf:
        indexes = [index for index in indexes if since <= ended[index] <= end]
    if before is not None:
        indexes = [index for index in indexes if (ended[index], batch.base + index, batch.hub) < before]
    return _calls(batch, indexes[: -limit - 1 : -1], lines)  # the newest first


def _calls(batch: Batch, indexes: Sequence[int], lines: Sequence[str]) -> list[PastCall]:
    marks, ended, took = numbers(batch.marks), floats(batch.ended), floats(batch.took)
    waited = floats(batch.waited) if batch.waited else (0.0,) * len(ended)
    lengths = sizes(batch.sizes) if batch.sizes else (0,) * (2 * len(ended))
    key, flags, notes, nothing = batch.key, batch.flags, batch.notes, ("", "")
    calls = []
    for index, id_ in zip(indexes, _ids(batch, indexes), strict=True):
        code, message = notes.get(index, nothing)
        calls.append(PastCall(
            id=id_, group=group_of(lines[marks[index]]), hub=batch.hub, number=batch.base + index,
            ended=ended[index], took=took[index], waited=waited[index], arguments_bytes=lengths[2 * index],
            result_bytes=lengths[2 * index + 1], flags=flags[index], code=code, message=message, key=key, index=index,
        ))  # fmt: skip
    return calls


def _ids(batch: Batch, indexes: Sequence[int]) -> list[str]:
    text, count = batch.ids, len(batch)
    width = (len(text) + 1) // count
    if width * count == len(text) + 1 and text[width - 1 :: width] == " " * (count - 1):  # of equal lengths, as usual
        return [text[index * width : (index + 1) * width - 1] for index in indexes]
    every = text.split(" ")
    return [every[index] for index in indexes]


# -- figures


_Points = dict[int, list[float]]
"""Durations by point; -1 where it is not known."""


class PastFigures:
    """Figures of calls since a time, in `points` steps of `step` seconds."""

    def __init__(self, since: float, step: float, points: int) -> None:
        self._since = since
        self._step = step
        self._points = points
        self._cells: dict[tuple[str, str, bool], _Points] = {}
        """By server, tool and whether the calls failed."""

    def add(self, batch: Batch, chosen: CallFilter) -> None:
        groups = map(chosen.matches.__getitem__, batch.groups.split("\n"))
        cells = [None if group is None else self._cell(group) for group in groups]
        took, since, step, points = floats(batch.took), self._since, self._step, self._points
        for index, (mark, ended) in enumerate(zip(numbers(batch.marks), floats(batch.ended), strict=True)):
            cell, point = cells[mark], int((ended - since) // step)
            if cell is not None and 0 <= point < points and ended >= chosen.since:
                cell.setdefault(point, []).append(took[index] if batch.base < RUNNING else -1.0)

    def _cell(self, group: CallGroup) -> _Points:
        return self._cells.setdefault((group.server, group.tool, group.status != "completed"), {})

    def rows(self) -> tuple[list[HistoryRow], list[HistoryRow], int]:
        """Tools, servers (most calls first), and the number of tools left out."""
        tools: dict[tuple[str, str], list[tuple[bool, _Points]]] = {}
        for (server, tool, has_failed), points in self._cells.items():
            for key in ((server, tool), (server, "")) if points else ():
                tools.setdefault(key, []).append((has_failed, points))
        rows = [_row(*key, cells) for key, cells in tools.items()]
        rows.sort(key=lambda row: (-row.calls, row.server, row.tool))
        of_tools, of_servers = [row for row in rows if row.tool], [row for row in rows if not row.tool]
        return of_tools[:MOST_ROWS], of_servers[:MOST_ROWS], max(0, len(of_tools) - MOST_ROWS)


def _row(server: str, tool: str, cells: Sequence[tuple[bool, _Points]]) -> HistoryRow:
    durations: _Points = {}
    failed: dict[int, int] = {}
    for has_failed, points in cells:
        for point, took in points.items():
            durations.setdefault(point, []).extend(took)
            failed[point] = failed.get(point, 0) + (len(took) if has_failed else 0)
    for took in durations.values():
        took.sort()
    series: list[list[float]] = [
        [point, len(took), failed[point], percentile(took, 0.5), percentile(took, 0.95)]
        for point, took in sorted(durations.items())
    ]
    every = sorted(chain.from_iterable(durations.values()))
    return HistoryRow(
        server=server, tool=tool, calls=len(every), failed=sum(failed.values()),
        p50=percentile(every, 0.5), p95=percentile(every, 0.95), max=max(every[-1], 0.0), series=series,
    )  # fmt: skip


def percentile(durations: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of sorted durations; negative ones are unknown. 0 without any."""
    first = bisect_left(durations, 0.0)
    rank = first + max(math.ceil(share * (len(durations) - first)) - 1, 0)
    return durations[rank] if rank < len(durations) else 0.0
