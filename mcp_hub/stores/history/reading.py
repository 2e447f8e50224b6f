"""Queries over batches: filtered calls, one call by id, figures over time."""

import math
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from itertools import chain
from typing import Final

import anyio.to_thread
import msgspec

from mcp_hub.stores.history.base import (
    DURABLE,
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
"""Where a call stands in the order: when it ended, its number at its hub, its hub."""


class PastCall(msgspec.Struct, frozen=True, gc=False):
    """An ended call without its texts, at index `place` of batch `key`."""

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
    place: int

    @property
    def order(self) -> Place:
        return self.ended, self.number, self.hub

    @property
    def is_durable(self) -> bool:
        return bool(self.flags & DURABLE)


class CallFilter(msgspec.Struct, frozen=True):
    """Calls of matching groups that ended from `since` to before `until` and `before`, for one query."""

    fits: Callable[[CallGroup], bool]
    since: float = 0.0
    until: float = float("inf")
    before: Place | None = None
    _known: dict[str, bool] = msgspec.field(default_factory=dict)

    def wants(self, line: str) -> bool:
        """Whether the group in this line matches."""
        known = self._known.get(line)
        if known is None:
            known = self._known[line] = self.fits(group_of(line))
        return known

    @property
    def end(self) -> float:
        return self.until if self.before is None else min(self.until, self.before[0])


async def newest(store: HistoryStore, chosen: CallFilter, most: int) -> list[PastCall]:
    """The newest matching calls, newest first. Raises `StoreError`."""
    found: list[PastCall] = []
    keys = await _keys(store, chosen)
    start, size = 0, _FIRST
    while start < len(keys) and not (len(found) == most and found[-1].ended > keys[start].last):
        batches = await store.load(keys[start : start + size])
        found = await anyio.to_thread.run_sync(_merged, found, batches, chosen, most)
        start, size = start + size, min(2 * size, _PAGE)
    return found


async def pages(store: HistoryStore, chosen: CallFilter) -> AsyncIterator[list[Batch]]:
    """Batches within the filter's time, in portions."""
    keys = await _keys(store, chosen)
    for start in range(0, len(keys), _PAGE):
        yield await store.load(keys[start : start + _PAGE])


async def within(store: HistoryStore, limits: HistoryLimits, now: float) -> float:
    """End time of the oldest call within the limits."""
    oldest, left = now - limits.keep, limits.calls
    for key in sorted(await store.index(), key=lambda key: -key.last):
        if left < key.calls:
            loaded = await store.load([key])
            ended = floats(loaded[0].ended) if loaded else ()
            return max(oldest, ended[max(len(ended) - left, 0)] if ended and left else key.last + 1e-6)
        left -= key.calls
    return oldest


async def by_id(store: HistoryStore, id_: str, chosen: CallFilter) -> PastCall | None:
    """The call with this id, if it matches. Raises `StoreError`."""
    async for batches in pages(store, chosen):
        for batch in batches:
            if id_ in batch.ids:
                for place, other in enumerate(batch.ids.split(" ")):
                    if other == id_:
                        line = batch.groups.split("\n")[numbers(batch.marks)[place]]
                        found = _call(batch, batch.key, place, id_, line)
                        return found if chosen.fits(found.group) and found.ended >= chosen.since else None
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
    places: dict[BatchKey, list[int]] = {}
    for call in calls:
        places.setdefault(call.key, []).append(call.place)
    found = {key: await store.texts(key, own) for key, own in places.items()}
    return [found[call.key].get(call.place, CallTexts()) for call in calls]


async def _keys(store: HistoryStore, chosen: CallFilter) -> list[BatchKey]:
    found = [key for key in await store.index() if key.last >= chosen.since and key.first <= chosen.end]
    return sorted(found, key=lambda key: (key.last, key.base, key.hub), reverse=True)


def _merged(found: list[PastCall], batches: Sequence[Batch], chosen: CallFilter, most: int) -> list[PastCall]:
    for batch in batches:
        found += _fitting(batch, chosen, most)
    found.sort(key=lambda call: call.order, reverse=True)
    return found[:most]


def _fitting(batch: Batch, chosen: CallFilter, most: int) -> list[PastCall]:
    lines = batch.groups.split("\n")
    wanted = {number for number, line in enumerate(lines) if chosen.wants(line)}
    marks = numbers(batch.marks)
    if not wanted or wanted.isdisjoint(marks):
        return []
    ended, key = floats(batch.ended), batch.key
    places = [
        place
        for place in range(len(marks) - 1, -1, -1)
        if marks[place] in wanted and chosen.since <= ended[place] <= chosen.end
    ]
    if chosen.before is not None:
        before = chosen.before
        places = [place for place in places if (ended[place], batch.base + place, batch.hub) < before]
    ids = batch.ids.split(" ")
    return [_call(batch, key, place, ids[place], lines[marks[place]]) for place in places[:most]]


def _call(batch: Batch, key: BatchKey, place: int, id_: str, line: str) -> PastCall:
    code, message = batch.notes.get(place, ("", ""))
    size = sizes(batch.sizes)
    return PastCall(
        id=id_,
        group=group_of(line),
        hub=batch.hub,
        number=batch.base + place,
        ended=floats(batch.ended)[place],
        took=floats(batch.took)[place],
        waited=floats(batch.waited)[place],
        arguments_bytes=size[2 * place],
        result_bytes=size[2 * place + 1],
        flags=batch.flags[place],
        code=code,
        message=message,
        key=key,
        place=place,
    )


# -- figures


class FigureRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """Figures of a tool, or of a server if `tool` is empty; times in seconds.

    Each entry of `series`: point, calls, failed calls, median, 95th percentile.
    """

    server: str
    tool: str
    calls: int
    failed: int
    p50: float
    p95: float
    max: float
    series: list[tuple[int, int, int, float, float]]


_Points = dict[int, list[float]]
"""Durations by point."""


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
            cells = [self._cell(group_of(line)) if chosen.wants(line) else None for line in lines]
            took, since, step, points = floats(batch.took), self._since, self._step, self._points
            for place, (mark, ended) in enumerate(zip(numbers(batch.marks), floats(batch.ended), strict=True)):
                cell, point = cells[mark], int((ended - since) // step)
                if cell is not None and 0 <= point < points and ended >= oldest:
                    cell.setdefault(point, []).append(took[place])

    def _cell(self, group: CallGroup) -> _Points:
        return self._cells.setdefault((group.server, group.tool, group.status != "completed"), {})

    def rows(self) -> tuple[list[FigureRow], list[FigureRow], int]:
        """Tools, servers (most calls first), and the number of tools left out."""
        tools: dict[tuple[str, str], list[tuple[bool, _Points]]] = {}
        for (server, tool, has_failed), points in self._cells.items():
            for key in ((server, tool), (server, "")) if points else ():
                tools.setdefault(key, []).append((has_failed, points))
        rows = [_row(*key, cells) for key, cells in tools.items()]
        rows.sort(key=lambda row: (-row.calls, row.server, row.tool))
        of_tools, of_servers = [row for row in rows if row.tool], [row for row in rows if not row.tool]
        return of_tools[:MOST_ROWS], of_servers[:MOST_ROWS], max(0, len(of_tools) - MOST_ROWS)


def _row(server: str, tool: str, cells: Sequence[tuple[bool, _Points]]) -> FigureRow:
    durations: _Points = {}
    failed: dict[int, int] = {}
    for has_failed, points in cells:
        for point, took in points.items():
            durations.setdefault(point, []).extend(took)
            failed[point] = failed.get(point, 0) + (len(took) if has_failed else 0)
    for took in durations.values():
        took.sort()
    series = [
        (point, len(took), failed[point], percentile(took, 0.5), percentile(took, 0.95))
        for point, took in sorted(durations.items())
    ]
    every = sorted(chain.from_iterable(durations.values()))
    halves = percentile(every, 0.5), percentile(every, 0.95)
    return FigureRow(server, tool, len(every), sum(failed.values()), *halves, every[-1], series)


def percentile(durations: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of sorted durations."""
    return durations[max(math.ceil(share * len(durations)) - 1, 0)]
