"""What was asked and what came back: every answer is checked, by id and by content."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

# a run can have a thousand failures with one cause; the first few name it
KEPT_ERRORS = 5


class RelayFailed(Exception):
    """The relay ended, closed its wire or stayed silent; the message says what was seen."""


class Call(NamedTuple):
    """One tool call: `arguments` is JSON, `expected` the text of the answer, `events` the progress asked for."""

    tool: str
    arguments: bytes
    expected: str
    events: int = 0


@dataclass
class Stats:
    """The outcome of one run; latencies and `wall` are seconds."""

    calls: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    wall: float = 0.0
    events: int = 0
    lost: int = 0
    late: int = 0
    broken: bool = False

    def fail(self, reason: str) -> None:
        self.failed += 1
        if len(self.errors) < KEPT_ERRORS:
            self.errors.append(reason[:300])


class Message(msgspec.Struct):
    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class Block(msgspec.Struct):
    text: str = ""


class ToolResult(msgspec.Struct):
    content: list[Block] = []
    isError: bool = False


class Progress(msgspec.Struct):
    progressToken: int | str
    progress: float


decode_message = msgspec.json.Decoder(Message).decode
decode_result = msgspec.json.Decoder(ToolResult).decode
decode_progress = msgspec.json.Decoder(Progress).decode


class Ledger:
    """The open calls of one run. A call's id is its progress token too."""

    def __init__(self, source: Iterator[Call]) -> None:
        self.stats = Stats()
        self.open: dict[int, tuple[Call, float]] = {}
        self.exhausted = False
        self._source = source
        self._progress: dict[int, float] = {}
        self._ended: set[int] = set()

    def take(self, call_id: int) -> Call | None:
        """The next call, now open under this id; None once there are no more."""
        call = next(self._source, None)
        if call is None:
            self.exhausted = True
            return None
        self.open[call_id] = (call, time.perf_counter())
        return call

    def receive(self, line: bytes) -> Message | None:
        """Books one message; returns it when it is a request, which is not this class's business."""
        try:
            message = decode_message(line)
        except msgspec.DecodeError as error:
            self.stats.fail(f"unreadable message ({error}): {line[:120]!r}")
            return None
        if message.method is None:
            self._answer(message)
        elif message.id is not None:
            return message
        elif message.method == "notifications/progress" and message.params:
            self._event(message.params)
        return None

    def _answer(self, message: Message) -> None:
        found = self.open.pop(message.id, None) if isinstance(message.id, int) else None
        if found is None or not isinstance(message.id, int):
            self.stats.fail(f"answer to an id that is not open: {message.id!r}")
            return
        call, sent = found
        self.stats.latencies.append(time.perf_counter() - sent)
        self.stats.calls += 1
        if call.events:
            self._ended.add(message.id)
            self.stats.lost += call.events - int(self._progress.get(message.id, 0))
        if reason := wrong(message, call):
            self.stats.fail(reason)

    def _event(self, params: msgspec.Raw) -> None:
        event = decode_progress(params)
        token = event.progressToken
        if not isinstance(token, int) or (token not in self.open and token not in self._ended):
            self.stats.fail(f"progress for a token that was not given: {token!r}")
            return
        self.stats.events += 1
        if token in self._ended:
            self.stats.late += 1
            return
        last = self._progress.get(token, 0)
        if event.progress <= last:
            self.stats.fail(f"progress {event.progress:g} after {last:g}")
        # what was skipped is lost; the rest is settled when the answer comes
        self.stats.lost += int(event.progress - last) - 1
        self._progress[token] = event.progress

    def give_up(self, reason: str) -> None:
        """Fails whatever is still open: the relay is gone or silent."""
        self.stats.broken = True
        for _ in self.open:
            self.stats.fail(reason)
        self.open.clear()


def wrong(message: Message, call: Call) -> str:
    """What is wrong with an answer; empty when nothing is."""
    if not message.result:
        return f"{call.tool}: error {bytes(message.error)[:200]!r}"
    try:
        result = decode_result(message.result)
    except msgspec.DecodeError as error:
        return f"{call.tool}: unreadable result ({error})"
    if result.isError:
        return f"{call.tool}: tool error {bytes(message.result)[:200]!r}"
    if not result.content or result.content[0].text != call.expected:
        return f"{call.tool}: other content than expected: {bytes(message.result)[:120]!r}"
    return ""


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of the values lies; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
