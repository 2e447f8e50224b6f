"""What became of one script: its ending, its account against what the server counted, and what a lost file excuses."""

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rigs.chaos.jobs import PATIENCE, Job
from rigs.code.scripts import Script, doubled, judged, written

NAMED = ("code_not_resumable", "code_not_stored", "code_crashed")
"""Errors by which a script may end in place of its account."""
GONE = "unknown at all hubs"
_AWAY = "used when not defined"
"""What a script is told while the server of its tools is away, before it runs."""
_REFILLED = 20.0
"""Seconds after an outage in which streams return to the file: a hub waits longer after each further failure."""


@dataclass
class Outcome:
    """What a run came to."""

    acts: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    calls: int = 0
    unknown: int = 0
    again: int = 0
    cancelled: int = 0
    events: int = 0
    seconds: float = 0.0

    def lines(self) -> list[str]:
        ends = ", ".join(f"{count} {name}" for name, count in sorted(self.ended.items()))
        return [
            ", ".join(f"{count} {name}" for name, count in self.acts.items()),
            f"{sum(self.ended.values())} scripts ({ends}), {self.calls} calls, {self.unknown} writes told as unknown, "
            f"{self.again} sent a second time, {self.cancelled} cancelled, {self.events} events, {self.seconds:.0f} s",
        ]

    def note(self, ending: str) -> None:
        self.ended[ending] = self.ended.get(ending, 0) + 1


class Outages:
    """When hubs could not write to the file, by the monotonic clock, until streams had returned to it."""

    def __init__(self) -> None:
        self._times: list[tuple[float, float]] = []

    @contextmanager
    def outage(self) -> Iterator[None]:
        began = time.monotonic()
        self._times.append((began, math.inf))
        try:
            yield
        finally:
            self._times[-1] = began, time.monotonic() + _REFILLED

    def __str__(self) -> str:
        return ", ".join(f"{began:.1f}-{ended:.1f}" for began, ended in self._times)

    def was_away(self, since: float, until: float) -> bool:
        """Whether it was so at some time between these."""
        return any(began <= until and ended >= since for began, ended in self._times)


@dataclass(eq=False)
class Sent:
    """A script that was sent, `began` by the monotonic clock; `is_first`: else it is the same script once more."""

    script: Script
    job: Job
    is_first: bool = True
    others: list["Sent"] = field(default_factory=list)
    """The same script, sent another time."""
    began: float = field(default_factory=time.monotonic)
    begun: float = math.inf
    """When it was acknowledged."""

    def account(self) -> dict[str, Any]:
        """What it told at its end; empty without such an end."""
        data = self.job.events[-1]["data"] if self.job.lines else {}
        result = data.get("result") or {}
        return {} if result.get("isError") else result.get("structuredContent") or {}

    def wrote(self, counted: Mapping[str, int]) -> int:
        """How many writes the server saw that no other run of the script accounts for."""
        told = {key for other in self.others for name in ("ok", "unknown") for key in other.account().get(name, ())}
        return sum(counted.get(key, 0) for key in self.script.keys if key not in told)


def judge(sent: Sent, counted: Mapping[str, int], outages: Outages, outcome: Outcome) -> None:
    """Counts its ending, and notes what is wrong with it."""
    script, job = sent.script, sent.job
    faults = [*job.faults, *doubled(script, counted)]
    outcome.events += len(job.lines)
    outcome.calls += len(script.keys) + script.looks
    if script.counted is not None and (later := written(script, counted)) > script.counted:
        faults.append(f"{later - script.counted} writes after its cancel")
    if faults == [GONE] and not sent.wrote(counted) and _began_away(sent, outages):
        outcome.note("lost in memory, nothing sent")  # the stream of a hub that had no file at its begin
        return
    if not job.lines:
        kind = "first" if sent.is_first else "once more"
        faults.append(
            f"no event within {PATIENCE:g} s (sent {kind}, at {sent.began:.1f}, acknowledged at {sent.begun:.1f}, "
            f"{sent.wrote(counted)} of {written(script, counted)} written by it; no file at {outages})"
        )
    else:
        faults += _ended(sent, counted, outages, outcome)
    outcome.faults += [f"{job.stream or 'not begun'}: {fault}" for fault in faults]


def _began_away(sent: Sent, outages: Outages) -> bool:
    """Whether the file was away when it began: no hub but that one can know it."""
    return outages.was_away(sent.began, min(sent.begun, sent.began + PATIENCE))


def _ended(sent: Sent, counted: Mapping[str, int], outages: Outages, outcome: Outcome) -> list[str]:
    script, job, events = sent.script, sent.job, sent.job.events
    ending, data = events[-1]["type"], events[-1]["data"]
    if not job.is_done or sum(event["type"] in ("end", "error") for event in events) != 1:
        return [f"no end within {PATIENCE:g} s, or not one: {json.dumps(events[-6:])}"]
    if ending == "error":
        code = str(data.get("code"))
        outcome.note(code)
        is_unsent = not sent.wrote(counted) and (
            code == "store_unavailable" or (code == "hub_stopped" and _began_away(sent, outages))
        )
        written_by = f"{sent.wrote(counted)} written, sent at {sent.began:.1f}"
        return [] if code in NAMED or is_unsent else [f"ended with {json.dumps(data)[:500]} ({written_by})"]
    if (result := data.get("result")) is None:
        outcome.note("cancelled")
        return [] if script.is_cancelled else [f"ended with {json.dumps(data)[:500]}"]
    if result.get("isError"):
        text = result["content"][0]["text"]
        code = next((named for named in (*NAMED, _AWAY) if named in text), "error")
        outcome.note(code)
        return [] if code in NAMED or (code == _AWAY and not sent.wrote(counted)) else [f"ended with {text[:500]}"]
    account: dict[str, Any] = result["structuredContent"]
    outcome.note("with their account")
    outcome.unknown += len(account["unknown"])
    return judged(script, account, counted)
