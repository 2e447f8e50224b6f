"""Runs one target: draws inputs, notes which are not treated as promised, and makes those smaller.

Input `number` of a seed is always the same. One that takes more than `HANG` seconds of processor time is a fault.
"""

import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import FrameType

from rigs.fuzz.target import Target

HANG = 3.0
"""Seconds of the process's own time; the slowest promised input takes a few tenths."""
_MOST_FINDINGS = 10
_TRIES = 2000
_SHRINKING = 20.0


class _Hang(BaseException):
    """Not an Exception, so that no boundary takes it for a fault of its own."""


@dataclass(frozen=True)
class Finding:
    """An input, where it failed (`place` tells faults apart) and how."""

    target: str
    data: bytes
    place: str
    report: str


@dataclass
class Search:
    """What was done, and each fault once."""

    target: Target
    seed: int
    inputs: int = 0
    findings: list[Finding] = field(default_factory=list)

    def run(self, seconds: float, first: int = 0, before: Callable[[int], None] = lambda number: None) -> None:
        """From input `first` on until the time is over; `before` is told the number of each."""
        until = time.monotonic() + seconds
        number = first
        while time.monotonic() < until and len(self.findings) < _MOST_FINDINGS:
            before(number)
            data = drawn(self.target, self.seed, number)
            found = fault_of(self.target, data)
            if found is not None and found.place not in {known.place for known in self.findings}:
                self.findings.append(smaller(self.target, found))
            number += 1
            self.inputs += 1


def drawn(target: Target, seed: int, number: int) -> bytes:
    """Input `number` of a seed."""
    return target.make(Random(f"{target.name} {seed} {number}"))


def fault_of(target: Target, data: bytes) -> Finding | None:
    """What is wrong with how this input is treated."""
    try:
        with _limited(HANG):
            target.check(data)
    except (Exception, _Hang) as problem:  # whatever it is, that is what is looked for
        kind = "hang" if isinstance(problem, _Hang) else type(problem).__name__
        frames = traceback.extract_tb(problem.__traceback__)
        place = "hang" if kind == "hang" else f"{kind} at {frames[-1].filename}:{frames[-1].lineno}"
        return Finding(target.name, data, place, "".join(traceback.format_exception(problem)[-12:]))
    return None


def smaller(target: Target, found: Finding) -> Finding:
    """A shorter input with the same fault: pieces are left out as long as it stays, for a bounded time."""
    until = time.monotonic() + _SHRINKING
    tries = 0
    size = max(len(found.data) // 2, 1)
    while size and tries < _TRIES and time.monotonic() < until:
        shorter = next(
            (
                again
                for candidate in _without(found.data, size)
                if (again := fault_of(target, candidate)) is not None and again.place == found.place
            ),
            None,
        )
        tries += 1
        if shorter is None:
            size //= 2
        else:
            found = shorter
            size = min(size, max(len(found.data) // 2, 1))
    return found


def _without(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, min(len(data), 200 * size), size):
        yield data[:at] + data[at + size :]


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def over(number: int, frame: FrameType | None) -> None:
        raise _Hang(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
