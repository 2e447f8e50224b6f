"""Each target in a process of its own, so that an input that ends or stops the process is a finding like any other."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized

from rigs.fuzz.call_targets import CALL_TARGETS
from rigs.fuzz.catalog_targets import CATALOG_TARGETS
from rigs.fuzz.config_targets import CONFIG_TARGETS
from rigs.fuzz.proxy_targets import PROXY_TARGETS
from rigs.fuzz.recovery_targets import RECOVERY_TARGETS
from rigs.fuzz.search import HANG, Finding, Search, drawn
from rigs.fuzz.target import Target
from rigs.fuzz.wire_targets import WIRE_TARGETS

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (*WIRE_TARGETS, *PROXY_TARGETS, *RECOVERY_TARGETS, *CONFIG_TARGETS, *CATALOG_TARGETS, *CALL_TARGETS)
}

_MEMORY = 4 << 30
"""Bytes of address space: an input that asks for more fails with MemoryError instead of taking the machine along."""
_STUCK = 10 * HANG + 60
"""Seconds without a new input, shrinking included, after which the process is ended: it hangs where no signal helps."""


@dataclass
class Outcome:
    """What came of one target."""

    target: str
    seconds: float = 0.0
    inputs: int = 0
    findings: list[Finding] = field(default_factory=list)


def run_all(names: Sequence[str], seconds: float, seed: int, jobs: int) -> Iterator[Outcome]:
    """The targets, `jobs` at a time, as they are done."""
    with ThreadPoolExecutor(jobs) as threads:
        for done in as_completed([threads.submit(_run_one, name, seconds, seed) for name in names]):
            yield done.result()


def _run_one(name: str, seconds: float, seed: int) -> Outcome:
    outcome = Outcome(name)
    began = time.monotonic()
    first = 0
    while (left := began + seconds - time.monotonic()) > 0 and len(outcome.findings) < 10:
        inputs, findings, last = _in_process(name, left, seed, first)
        outcome.inputs += inputs
        outcome.findings += findings
        if last is None:
            break
        data = drawn(TARGETS[name], seed, last)
        outcome.findings.append(Finding(name, data, f"input {last}", "the process ended or did not get on"))
        first = last + 1
    outcome.seconds = time.monotonic() - began
    return outcome


def _in_process(name: str, seconds: float, seed: int, first: int) -> tuple[int, list[Finding], int | None]:
    """Inputs, findings, and the number of the input that the process did not survive, if there was one."""
    context = multiprocessing.get_context("spawn")
    number = context.Value("q", first)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, seconds, seed, first, number, theirs), daemon=True)
    process.start()
    theirs.close()
    seen, since = first, time.monotonic()
    try:
        while not ours.poll(0.5):
            if (now := number.value) != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > _STUCK:
                return seen - first, [], seen
        inputs, findings = ours.recv()
        return inputs, findings, None
    except EOFError:
        return number.value - first, [], number.value
    finally:
        process.kill()
        process.join()
        ours.close()


def _work(name: str, seconds: float, seed: int, first: int, number: "Synchronized[int]", out: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    search = Search(TARGETS[name], seed)
    told: Callable[[int], None] = lambda at: setattr(number, "value", at)  # noqa: E731  it is handed on
    search.run(seconds, first, told)
    out.send((search.inputs, search.findings))
