"""Scenarios, templates that match messages, and rules of docs/specification/streams.md. Pure; raise `Mismatch`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from mcp_hub.files import LARGEST_OF_CLIENTS, read_file
from mcp_hub.types import JsonObject

_ANY: Final = "$_"
_SHOWN: Final = 120
"""Characters of a value that an explanation shows."""


class Mismatch(Exception):
    """The server differs from the specification, or is gone."""


class Scenario(msgspec.Struct, frozen=True):
    """One file: a header, then one step a line."""

    name: str
    section: str
    says: str
    steps: tuple[JsonObject, ...]


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    scenario: str
    section: str
    says: str


def read(path: Path) -> Scenario:
    """The scenario in a file. Raises `OSError`, `ValueError` with the line."""
    first, *lines = read_file(path, LARGEST_OF_CLIENTS).data.decode().splitlines() or [""]
    number = 1
    try:
        head = msgspec.json.decode(first, type=_Head)
        steps: list[JsonObject] = []
        for line in lines:
            number += 1
            steps.append(msgspec.json.decode(line, type=JsonObject))
    except msgspec.DecodeError as exc:
        raise ValueError(f"{path}:{number}: {exc}") from None
    return Scenario(head.scenario, head.section, head.says, tuple(steps))


def read_all(folder: Path) -> list[Scenario]:
    """The scenarios in a folder. Raises `OSError`, `ValueError`."""
    scenarios = [read(path) for path in sorted(folder.glob("*.jsonl"))]
    if not scenarios:
        raise ValueError(f"{folder} has no vectors (*.jsonl)")
    return scenarios


def filled(template: object, values: Mapping[str, object]) -> object:
    """The template with its variables replaced. Raises `Mismatch`."""
    if isinstance(template, str) and template.startswith("$"):
        if template not in values:
            raise Mismatch(f"{template} has no value yet")
        return values[template]
    if isinstance(template, dict):
        return {key: filled(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(value, values) for value in template]
    return template


def matched(template: object, value: object, values: dict[str, object], path: str = "") -> None:
    """Binds new variables in `values`; objects may have more members. Raises `Mismatch`."""
    if template == _ANY:
        return
    if isinstance(template, str) and template.startswith("$"):
        if values.setdefault(template, value) != value:
            raise Mismatch(f"{path or 'the value'} is {shown(value)}, not {shown(values[template])}")
        return
    if isinstance(template, dict):
        for key, expected, its in _members(template, value, path):
            matched(expected, its, values, f"{path}.{key}" if path else key)
    elif type(value) is not type(template) or value != template:
        raise Mismatch(f"{path or 'the value'} is {shown(value)}, not {shown(template)}")


def _members(template: Mapping[str, object], value: object, path: str) -> Iterator[tuple[str, object, object]]:
    if not isinstance(value, dict):
        raise Mismatch(f"{path or 'the value'} is {shown(value)}, not an object")
    for key, expected in template.items():
        if key not in value:
            raise Mismatch(f"{path + '.' if path else ''}{key} is missing")
        yield key, expected, value[key]


def shown(value: object) -> str:
    """A value as JSON, cut if long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


STREAMS: Final = "dev.mcp-hub/streams"
ENDINGS: Final = ("end", "error")
_BRIEF: Final = ("seq", "type", "data")


class SeenEvent(msgspec.Struct, frozen=True):
    """An event in a notification."""

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
    if not claim:
        raise Mismatch(otherwise)


def live_events(notifications: Sequence[JsonObject], stream: object, token: str) -> list[SeenEvent]:
    """The events in notifications (section 4)."""
    seen: list[SeenEvent] = []
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
            seen += _part_events(_read(part, _Part, f"_meta[{STREAMS!r}]"), stream)
    check(bool(seen), "no notification has events")
    check(seen[0].seq > 1 or seen[0].type != "start", "the event start is sent")
    _in_order(seen)
    check(not any(event.is_ending for event in seen), "the ending is sent before the response")
    return seen


def _part_events(part: _Part, stream: object) -> list[SeenEvent]:
    check(part.stream == stream, f"a notification is of stream {part.stream}, the mark of {stream}")
    check(bool(part.events), "a notification has no events")
    check(part.cursor == str(part.events[-1].seq), f"cursor {part.cursor} is not that of event {part.events[-1].seq}")
    return part.events


def whole_log(events: Sequence[JsonObject], stream: object) -> list[SeenEvent]:
    """All events of an ended stream (section 3)."""
    for event in events:
        check(event.get("v") == 1, f"event {event.get('seq')}: v is {shown(event.get('v'))}, not 1")
        check(event.get("stream") == stream, f"event {event.get('seq')} is of stream {event.get('stream')}")
        check(isinstance(event.get("ts"), str), f"event {event.get('seq')} has no time")
    seen = [_read({key: event.get(key) for key in _BRIEF}, SeenEvent, "an event") for event in events]
    check(bool(seen), "the stream has no events")
    check((seen[0].seq, seen[0].type) == (1, "start"), f"the first event is {seen[0].seq} {seen[0].type}")
    _in_order(seen)
    check([event.type for event in seen].count("start") == 1, "there is more than one start")
    endings = [event.seq for event in seen if event.is_ending]
    check(len(endings) == 1, f"{len(endings)} events are endings: {endings}")
    check(seen[-1].is_ending, f"event {seen[-1].seq} comes after the ending, {endings[0]}")
    return seen


def _in_order(events: Sequence[SeenEvent]) -> None:
    for earlier, later in pairwise(events):
        check(later.seq == earlier.seq + 1, f"event {earlier.seq} is followed by {later.seq}")


def same(first: Sequence[SeenEvent], second: Sequence[SeenEvent]) -> None:
    """Compares two logs."""
    for mine, its in zip(first, second, strict=False):
        check(mine == its, f"event {mine.seq} differs: {shown(mine.data)} and {shown(its.data)}")
    check(len(first) == len(second), f"{len(first)} events here, {len(second)} there")


def page(result: object, after: int, limit: int | None) -> _Page:
    """Checks a page (section 6)."""
    read = _read(result, _Page, "the result")
    numbers = [event.get("seq") for event in read.events]
    check(limit is None or len(numbers) <= limit, f"{len(numbers)} events where maxEvents is {limit}")
    first = numbers[0] if numbers and read.truncated else after + 1
    expected = list(range(first, first + len(numbers))) if isinstance(first, int) else []
    check(numbers == expected, f"behind cursor {after} come events {shown(numbers)}")
    last = str(numbers[-1]) if numbers else str(after)
    check(read.cursor == last, f"the cursor of a page up to event {last} is {read.cursor}")
    ends = any(event.get("type") in ENDINGS for event in read.events)
    check(read.closed or not ends, "the page has the ending and is not closed")
    return read


_Shape = TypeVar("_Shape", bound=msgspec.Struct)


def _read(value: object, type_: type[_Shape], path: str) -> _Shape:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as exc:
        raise Mismatch(f"{path}: {exc}") from None
