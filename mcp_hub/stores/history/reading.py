"""Queries over batches: filtered calls, one call by id, figures over time."""

import math
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from itertools import chain
from typing import Final

import anyio.to_thread
import msgspec

from mcp_hub.protocol.rest.history import HistoryRow
from mcp_hub.stores.history.base import (
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
        """Whether its hub was gone before it ended: nobody knows its duration."""
        return self.number >= RUNNING

    @property
    def is_durable(self) -> bool:
        return bool(self.flags & DURABLE)


class _Matches(dict[str, bool]):
    """Whether a group matches, by its line."""

    def __init__(self, fits: Callable[[CallGroup], bool]) -> None:
        super().__init__()
        self._fits = fits

    def __missing__(self, line: str) -> bool:
        matches = self[line] = self._fits(group_of(line))
        return matches


class CallFilter(msgspec.Struct):
    """Calls of matching groups that ended from `since` to before `until` and `before`, for one query."""

    fits: Callable[[CallGroup], bool]
    since: float = 0.0
    until: float = math.inf
    before: Place | None = None
    matches: dict[str, bool] = {}

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
        batches = await store.load(keys[start : start + size])
        calls = await anyio.to_thread.run_sync(_merged, calls, batches, chosen, limit)
        start, size = start + size, min(2 * size, _PAGE)
    return calls


async def pages(store: HistoryStore, chosen: CallFilter) -> AsyncIterator[list[Batch]]:
    """Batches within the filter's time, in portions."""
    keys = await _keys(store, chosen)
    for start in range(0, len(keys), _PAGE):
        yield await store.load(keys[start : start + _PAGE])


async def within(store: HistoryStore, limits: HistoryLimits, now: float) -> float:
    """End time of the oldest call within the limits."""
    oldest, remaining = now - limits.keep, limits.calls
    for key in sorted(await store.index(), key=lambda key: -key.last):
        if remaining < key.calls:
            loaded = await store.load([key])
            ended = floats(loaded[0].ended) if loaded else ()
            return max(oldest, ended[max(len(ended) - remaining, 0)] if ended and remaining else key.last + 1e-6)
        remaining -= key.calls
    return oldest


async def by_id(store: HistoryStore, id_: str, chosen: CallFilter) -> PastCall | None:
    """The call with this id, if it matches. Raises `StoreError`."""
    async for batches in pages(store, chosen):
        for batch in batches:
            if id_ in batch.ids:
                for index, call_id in enumerate(batch.ids.split(" ")):
                    if call_id == id_:
                        [call] = _calls(batch, [index], batch.groups.split("\n"))
                        return call if chosen.fits(call.group) and call.ended >= chosen.since else None
    return None


async def clients_of(store: HistoryStore, ids: Collection[str]) -> dict[str, str]:
    """The client of each of these calls that is in the history. Raises `StoreError`."""
    clients: dict[str, str] = {}
    missing = set(ids)
    if missing:
        async for batches in pages(store, CallFilter(lambda group: True)):
            clients |= await anyio.to_thread.run_sync(_clients_in, batches, missing)
            missing.difference_update(clients)
            if not missing:
                break
    return clients


def _clients_in(batches: Sequence[Batch], ids: Collection[str]) -> dict[str, str]:
    clients = {}
    for batch in batches:
        lines, marks = batch.groups.split("\n"), numbers(batch.marks)
        for id_, mark in zip(batch.ids.split(" "), marks, strict=True):
            if id_ in ids:
                clients[id_] = group_of(lines[mark]).client
    return clients


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


def _merged(calls: list[PastCall], batches: Sequence[Batch], chosen: CallFilter, limit: int) -> list[PastCall]:
    for batch in batches:
        calls += _fitting(batch, chosen, limit)
    calls.sort(key=lambda call: call.order, reverse=True)
    return calls[:limit]


def _fitting(batch: Batch, chosen: CallFilter, limit: int) -> list[PastCall]:
    lines = batch.groups.split("\n")
    matches = chosen.matches
    groups = {number for number, line in enumerate(lines) if matches[line]}
    marks = numbers(batch.marks)
    if not groups or groups.isdisjoint(marks):
        return []
    indexes = [index for index, mark in enumerate(marks) if mark in groups]
    ended, since, end, before = floats(batch.ended), chosen.since, chosen.end, chosen.before
    if since > 0.0 or end < math.inf:
        indexes = [index for index in indexes if since <= ended[index] <= end]
    if before is not None:
        indexes = [index for index in indexes if (ended[index], batch.base + index, batch.hub) < before]
    return _calls(batch, indexes[: -limit - 1 : -1], lines)  # the newest first


def _calls(batch: Batch, indexes: Sequence[int], lines: Sequence[str]) -> list[PastCall]:
    ids, marks, ended, took = batch.ids.split(" "), numbers(batch.marks), floats(batch.ended), floats(batch.took)
    waited = floats(batch.waited) if batch.waited else (0.0,) * len(ended)
    lengths = sizes(batch.sizes) if batch.sizes else (0,) * (2 * len(ended))
    key, flags, notes, nothing = batch.key, batch.flags, batch.notes, ("", "")
    calls = []
    for index in indexes:
        code, message = notes.get(index, nothing)
        calls.append(PastCall(
            id=ids[index], group=group_of(lines[marks[index]]), hub=batch.hub, number=batch.base + index,
            ended=ended[index], took=took[index], waited=waited[index], arguments_bytes=lengths[2 * index],
            result_bytes=lengths[2 * index + 1], flags=flags[index], code=code, message=message, key=key, index=index,
        ))  # fmt: skip
    return calls


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

    def add(self, batches: Sequence[Batch], chosen: CallFilter) -> None:
        oldest = chosen.since
        for batch in batches:
            lines = batch.groups.split("\n")
            cells = [self._cell(group_of(line)) if chosen.matches[line] else None for line in lines]
            took, since, step, points = floats(batch.took), self._since, self._step, self._points
            for index, (mark, ended) in enumerate(zip(numbers(batch.marks), floats(batch.ended), strict=True)):
                cell, point = cells[mark], int((ended - since) // step)
                if cell is not None and 0 <= point < points and ended >= oldest:
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
