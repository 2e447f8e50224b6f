"""Scenarios, templates that match messages, and rules of docs/specification/streams.md. Pure; raise `Mismatch`."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from mcp_hub.files import LARGEST_OF_CLIENTS, read_file
from mcp_hub.types import Era, JsonObject

_ANY: Final = "$_"
_SHOWN: Final = 120
"""Characters of a value that an explanation shows."""


class Mismatch(Exception):
    """The server differs from the specification, or is gone."""


class Scenario(msgspec.Struct, frozen=True, rename={"name": "scenario"}, forbid_unknown_fields=True):
    """One file: a header, then one step a line.

    `rules` are the ids that it tests. `needs` is a case that a server has to be able to show, or "". `eras` and
    `transports` (stdio, http, sse) are those in which it can be played.
    """

    name: str
    section: str
    says: str
    rules: tuple[str, ...]
    needs: str = ""
    eras: tuple[Era, ...] = tuple(Era)
    transports: tuple[str, ...] = ("stdio", "http", "sse")
    steps: tuple[JsonObject, ...] = ()


def read(path: Path) -> Scenario:
    """The scenario in a file. Raises `OSError`, `ValueError` with the line."""
    first, *lines = read_file(path, LARGEST_OF_CLIENTS).data.decode().splitlines() or [""]
    number = 1
    try:
        head = msgspec.json.decode(first, type=Scenario)
        steps: list[JsonObject] = []
        for line in lines:
            number += 1
            steps.append(msgspec.json.decode(line, type=JsonObject))
    except msgspec.DecodeError as exc:
        raise ValueError(f"{path}:{number}: {exc}") from None
    return msgspec.structs.replace(head, steps=tuple(steps))


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
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_ID: Final = re.compile("[!-~]{1,128}")
_CURSOR: Final = re.compile("0|[1-9][0-9]{0,14}")
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "start": ("server", "tool", "name", "args_sha256", "attempt"),
    "delta": ("channel", "index", "content"), "progress": ("progress",), "log": ("level", "data"),
    "notification": ("method", "params"), "input-required": ("key", "method", "params"), "input-received": ("key",),
    "tool-call": ("call", "name", "arguments"), "tool-result": ("call", "isError", "content"),
    "attempt": ("attempt", "reason", "after"), "reset": ("attempt", "reason", "discard_from"), "end": ("outcome",),
    "error": ("code", "class", "retryable", "detail", "jsonrpc"),
}  # fmt: skip
"""The members of `data` by type (section 3.1)."""
_MOST_MESSAGE: Final = 200
"""Characters of the message beside a delta."""
_STEP: Final = 0.001
"""By which the number of a notification is raised at most, if it is not that of an event."""


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


def shown_progress(notifications: Sequence[JsonObject], token: object) -> None:
    """Checks the number and the line that notifications show (section 4.1)."""
    last = 0.0
    for message in notifications:
        params = message.get("params") or {}
        if message.get("method") != "notifications/progress" or params.get("progressToken") != token:
            continue
        events = ((params.get("_meta") or {}).get(STREAMS) or {}).get("events") or [{}]
        newest, value = events[-1], params["progress"]
        if newest.get("type") == "progress" and newest["data"]["progress"] > last:
            check(
                value == newest["data"]["progress"], f"progress is {value} beside an event of {shown(newest['data'])}"
            )
        else:
            check(value - last <= max(_STEP, math.ulp(last)), f"progress is {value} after {last}: the step is large")
        if newest.get("type") == "delta":
            _shown_text(params.get("message", ""), newest["data"]["content"])
        last = value


def _shown_text(message: object, content: Sequence[JsonObject]) -> None:
    """The line beside a delta is the beginning of its text."""
    text = " ".join("".join(block.get("text", "") for block in content).split())
    fits = isinstance(message, str) and len(message) <= _MOST_MESSAGE and "\n" not in message
    is_its = fits and text.startswith(" ".join(str(message).split())) and bool(text) == bool(message)
    check(is_its, f"the message beside a delta is {shown(message)}")


def logged(notifications: Sequence[JsonObject]) -> None:
    """A log message comes directly after the notification of its event, and says the same (section 4.2)."""
    check(any(message.get("method") == "notifications/message" for message in notifications), "no log message came")
    for earlier, later in pairwise([{}, *notifications]):
        if later.get("method") == "notifications/message":
            part = ((earlier.get("params") or {}).get("_meta") or {}).get(STREAMS) or {}
            newest = (part.get("events") or [{}])[-1]
            params = {key: value for key, value in later["params"].items() if key != "_meta"}
            is_same = newest.get("type") == "log" and newest["data"] == params
            check(is_same, f"before the log message {shown(params)} comes {shown(newest)}")


def _part_events(part: _Part, stream: object) -> list[SeenEvent]:
    check(part.stream == stream, f"a notification is of stream {part.stream}, the mark of {stream}")
    check(_ID.fullmatch(part.stream) is not None, f"{shown(part.stream)} is not an id")
    check(bool(part.events), "a notification has no events")
    check(part.cursor == str(part.events[-1].seq), f"cursor {part.cursor} is not that of event {part.events[-1].seq}")
    return part.events


def whole_log(events: Sequence[JsonObject], stream: object) -> list[SeenEvent]:
    """All events of an ended stream (section 3)."""
    for event in events:
        check(event.get("v") == 1, f"event {event.get('seq')}: v is {shown(event.get('v'))}, not 1")
        check(event.get("stream") == stream, f"event {event.get('seq')} is of stream {event.get('stream')}")
        check(
            _TIME.fullmatch(str(event.get("ts"))) is not None,
            f"event {event.get('seq')}: ts is {shown(event.get('ts'))}",
        )
    seen = [_read({key: event.get(key) for key in _BRIEF}, SeenEvent, "an event") for event in events]
    check(bool(seen), "the stream has no events")
    check((seen[0].seq, seen[0].type) == (1, "start"), f"the first event is {seen[0].seq} {seen[0].type}")
    _in_order(seen)
    check([event.type for event in seen].count("start") == 1, "there is more than one start")
    endings = [event.seq for event in seen if event.is_ending]
    check(len(endings) == 1, f"{len(endings)} events are endings: {endings}")
    check(seen[-1].is_ending, f"event {seen[-1].seq} comes after the ending, {endings[0]}")
    for entry in seen:
        _as_its_type(entry)
    _attempts(seen)
    _questions(seen)
    return seen


def _as_its_type(event: SeenEvent) -> None:
    missing = [name for name in _REQUIRED.get(event.type, ()) if name not in event.data]
    check(not missing, f"event {event.seq}: {event.type} has no {', '.join(missing)}")
    if event.type == "end" and event.data["outcome"] != "cancelled":
        check("result" in event.data, "the ending has no result")
        is_error = event.data["result"].get("isError", False)
        check(is_error == (event.data["outcome"] == "tool_error"), f"isError is {is_error} in {event.data['outcome']}")
    if event.data.get("outcome") == "unknown":
        check(event.data.get("retryable") is False, "an error of unknown outcome is retryable")


def _attempts(events: Sequence[SeenEvent]) -> None:
    """Each attempt is counted, and takes back the partial content of the one before it (section 3.3)."""
    attempt, has_delta, is_stale = events[0].data["attempt"], False, False
    for event in events:
        if event.type == "attempt":
            check(event.data["attempt"] > attempt, f"attempt {event.data['attempt']} follows {attempt}")
            attempt, is_stale = event.data["attempt"], has_delta
        elif event.type == "reset":
            check(event.data["attempt"] == attempt, f"event {event.seq} resets attempt {event.data['attempt']}")
            check(
                event.data["discard_from"] < event.seq, f"event {event.seq} discards from {event.data['discard_from']}"
            )
            has_delta = is_stale = False
        elif event.type == "delta":
            check(not is_stale, f"no reset before event {event.seq} of attempt {attempt}")
            has_delta = True


def _questions(events: Sequence[SeenEvent]) -> None:
    """A key is asked once, before it is answered (section 3.4)."""
    open_, keys = set(), set()
    for event in events:
        if event.type == "input-required":
            check(event.data["key"] not in keys, f"the key {event.data['key']} is used twice")
            keys.add(event.data["key"])
            open_.add(event.data["key"])
        elif event.type == "input-received":
            check(event.data["key"] in open_, f"event {event.seq} answers {event.data['key']}, which is not open")
            open_.discard(event.data["key"])


def _own(result: JsonObject) -> JsonObject:
    """A result without the members that belong to one response."""
    of_response = ["_meta", "requestState", *(["resultType"] if result.get("resultType") == "complete" else [])]
    return {key: value for key, value in result.items() if key not in of_response}


def same_result(ending: SeenEvent, response: JsonObject, era: Era) -> None:
    """The result in the log is that of the response (section 3.5), if both are of one era."""
    if "error" in response:
        check(
            ending.data.get("jsonrpc") == response["error"],
            f"the log has the error {shown(ending.data.get('jsonrpc'))}",
        )
        return
    check(ending.type == "end", f"the ending is {ending.type}, the response a result")
    if (ending.data.get("era") == "modern") == (era is Era.MODERN):
        mine, its = (_own(result) for result in (ending.data["result"], response["result"]))
        check(mine == its, f"the log has the result {shown(mine)}")


def joined(events: Sequence[SeenEvent]) -> None:
    """The text of each index is that of the block of the result (section 3.2)."""
    texts: dict[int, list[tuple[int, str]]] = {}
    for event in events:
        if event.type == "delta" and event.data["channel"] == "content":
            text = "".join(block.get("text", "") for block in event.data["content"] if block["type"] == "text")
            texts.setdefault(event.data["index"], []).append((event.seq, text))
        elif event.type == "reset":
            first = event.data["discard_from"]
            texts = {index: [piece for piece in parts if piece[0] < first] for index, parts in texts.items()}
    content = events[-1].data["result"]["content"]
    for index, parts in texts.items():
        text = "".join(part for _, part in parts)
        its = content[index].get("text", "") if index < len(content) else None
        check(text in ("", its), f"the deltas of block {index} make {shown(text)}")


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
    check(numbers == expected, f"after cursor {after} come events {shown(numbers)}")
    last = str(numbers[-1]) if numbers else str(after)
    check(read.cursor == last, f"the cursor of a page up to event {last} is {read.cursor}")
    check(_CURSOR.fullmatch(read.cursor) is not None, f"{shown(read.cursor)} is not a cursor")
    check(bool(numbers) or not read.truncated, "a truncated page has no events")
    ends = any(event.get("type") in ENDINGS for event in read.events)
    check(read.closed or not ends, "the page has the ending and is not closed")
    return read


def may_follow(first: _Page, limit: int | None) -> bool:
    """Whether a further page may have events that this one has room for."""
    return bool(first.events) and not first.closed and (limit is None or len(first.events) < limit)


def together(first: _Page, following: _Page) -> _Page:
    """One page of two. Raises `Mismatch`."""
    check(not following.truncated, "events after a page are gone already")
    return _Page([*first.events, *following.events], following.cursor, first.truncated, following.closed)


_Shape = TypeVar("_Shape", bound=msgspec.Struct)


def _read(value: object, type_: type[_Shape], path: str) -> _Shape:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as exc:
        raise Mismatch(f"{path}: {exc}") from None
