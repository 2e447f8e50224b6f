"""The rules of docs/specification/streams.md about logs, notifications and pages of events. Pure; raise `Mismatch`."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeVar

import msgspec

from mcp_hub.conformance.vectors import Mismatch, shown
from mcp_hub.types import JsonObject

STREAMS: Final = "dev.mcp-hub/streams"
ENDINGS: Final = ("end", "error")
_BRIEF: Final = ("seq", "type", "data")


class SeenEvent(msgspec.Struct, frozen=True):
    """An event as a notification has it."""

    seq: int
    type: str
    data: JsonObject

    @property
    def is_ending(self) -> bool:
        return self.type in ENDINGS


class _Part(msgspec.Struct):
    stream: str
    cursor: str
    events: list[SeenEvent]


class _Page(msgspec.Struct):
    events: list[JsonObject]
    cursor: str
    truncated: bool
    closed: bool


def check(claim: bool, otherwise: str) -> None:
    """Raises `Mismatch`."""
    if not claim:
        raise Mismatch(otherwise)


def live_events(notifications: Sequence[JsonObject], stream: object, token: str) -> list[SeenEvent]:
    """The events of a call's notifications (section 4)."""
    found: list[SeenEvent] = []
    last = -math.inf
    for message in notifications:
        params = message.get("params") or {}
        if message.get("method") != "notifications/progress" or params.get("progressToken") != token:
            continue
        value = params.get("progress")
        if not isinstance(value, int | float):
            raise Mismatch(f"progress is {shown(value)}, not a number")
        check(value > last, f"progress {value} follows {last}: it has to increase")
        last = value
        part = (params.get("_meta") or {}).get(STREAMS)
        if part is not None:
            found += _part_events(_read(part, _Part, f"_meta[{STREAMS!r}]"), stream)
    check(bool(found), "no notification has events")
    check(found[0].seq > 1 or found[0].type != "start", "the event start is sent")
    _in_order(found)
    check(not any(event.is_ending for event in found), "the ending is sent before the response")
    return found


def _part_events(part: _Part, stream: object) -> list[SeenEvent]:
    check(part.stream == stream, f"a notification is of stream {part.stream}, the mark of {stream}")
    check(bool(part.events), "a notification has no events")
    check(part.cursor == str(part.events[-1].seq), f"cursor {part.cursor} is not that of event {part.events[-1].seq}")
    return part.events


def whole_log(events: Sequence[JsonObject], stream: object) -> list[SeenEvent]:
    """The events of a stream that has ended, from the first on (section 3)."""
    for event in events:
        check(event.get("v") == 1, f"event {event.get('seq')}: v is {shown(event.get('v'))}, not 1")
        check(event.get("stream") == stream, f"event {event.get('seq')} is of stream {event.get('stream')}")
        check(isinstance(event.get("ts"), str), f"event {event.get('seq')} has no time")
    found = [_read({key: event.get(key) for key in _BRIEF}, SeenEvent, "an event") for event in events]
    check(bool(found), "the stream has no events")
    check((found[0].seq, found[0].type) == (1, "start"), f"the first event is {found[0].seq} {found[0].type}")
    _in_order(found)
    check([event.type for event in found].count("start") == 1, "there is more than one start")
    endings = [event.seq for event in found if event.is_ending]
    check(len(endings) == 1, f"{len(endings)} events are endings: {endings}")
    check(found[-1].is_ending, f"event {found[-1].seq} comes after the ending, {endings[0]}")
    return found


def _in_order(events: Sequence[SeenEvent]) -> None:
    for one, other in pairwise(events):
        check(other.seq == one.seq + 1, f"event {one.seq} is followed by {other.seq}")


def same(one: Sequence[SeenEvent], other: Sequence[SeenEvent]) -> None:
    """The same events, byte for byte as far as JSON goes."""
    for mine, its in zip(one, other, strict=False):
        check(mine == its, f"event {mine.seq} differs: {shown(mine.data)} and {shown(its.data)}")
    check(len(one) == len(other), f"{len(one)} events here, {len(other)} there")


def page(result: object, after: int, most: int | None) -> _Page:
    """A page behind a cursor (section 6)."""
    found = _read(result, _Page, "the result")
    numbers = [event.get("seq") for event in found.events]
    check(most is None or len(numbers) <= most, f"{len(numbers)} events where maxEvents is {most}")
    first = numbers[0] if numbers and found.truncated else after + 1
    expected = list(range(first, first + len(numbers))) if isinstance(first, int) else []
    check(numbers == expected, f"behind cursor {after} come events {shown(numbers)}")
    last = str(numbers[-1]) if numbers else str(after)
    check(found.cursor == last, f"the cursor of a page up to event {last} is {found.cursor}")
    ends = any(event.get("type") in ENDINGS for event in found.events)
    check(found.closed or not ends, "the page has the ending and is not closed")
    return found


_Shape = TypeVar("_Shape", bound=msgspec.Struct)


def _read(value: object, type_: type[_Shape], place: str) -> _Shape:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as exc:
        raise Mismatch(f"{place}: {exc}") from None
