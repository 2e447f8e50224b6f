"""What a short call costs in the machinery of calls and streams by itself: record, limits, log, meters, alarm, ending.

In one process and without any relaying: a handler that answers at once is awaited in a task of its own ("task"), and is
begun as a call of a registry whose streams are kept in SQLite, its log read to the ending ("sqlite").
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from bench.cases import Figures, Result, Run, merged
from mcp_hub.call import Call, CallChannel
from mcp_hub.calls.plan import StreamLimits, TimeLimits
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.clock import SystemClock
from mcp_hub.events import Completed, Ending
from mcp_hub.stores.base import StoreLimits
from mcp_hub.stores.recovery.failsafe import failsafe_on_file
from mcp_hub.types import CallId, Era

DEPTH = 32
VARIANT = "in one process"
DONE = Completed(b'{"content":[]}')
LIMITS = TimeLimits(60.0, 60.0)
Batch = Callable[[], Awaitable[None]]

_numbers = count()


def machinery(run: Run) -> None:
    """Both by turns, round after round; medians become results of the case "short-call"."""
    run.say(f"  short-call: {VARIANT}")
    found = uvloop.run(_measured(run.options.rounds * 3, run.options.seconds / 3))
    run.results += [Result("short-call", VARIANT, name, merged(samples)) for name, samples in found.items()]


async def _measured(rounds: int, seconds: float) -> dict[str, list[Figures]]:
    samples: dict[str, list[Figures]] = {"task": [], "sqlite": []}
    with TemporaryDirectory() as folder:
        clock = SystemClock()
        streams = StreamTable(failsafe_on_file(Path(folder), StoreLimits(), clock), clock, StreamLimits())
        registry = CallRegistry(clock, DEPTH, 0, on_durable=streams.begin)
        await streams.store.open()
        running = asyncio.create_task(streams.run())
        for _ in range(rounds):
            for name, batch in (("task", _tasks), ("sqlite", partial(_calls, registry))):
                samples[name].append(await _round(batch, seconds))
        await registry.close(1.0)
        await streams.close(1.0)
        await running
    return samples


async def _round(batch: Batch, seconds: float) -> Figures:
    """CPU µs of one call, and calls a second."""
    calls, began, cpu = 0, time.perf_counter(), time.process_time()
    while (took := time.perf_counter() - began) < seconds:
        await batch()
        calls += DEPTH
    return {"cpu_us": (time.process_time() - cpu) / calls * 1e6, "rate": calls / took}


def _call() -> Call:
    return Call(CallId(f"st_{next(_numbers)}"), "git", "tools/call", {}, {}, "s", "p", Era.HANDSHAKE, {})


async def _answer(call: Call, channel: CallChannel | None) -> Completed:
    return DONE


async def _tasks() -> None:
    await asyncio.gather(*(asyncio.create_task(_answer(_call(), None)) for _ in range(DEPTH)))


async def _calls(registry: CallRegistry) -> None:
    over, left = asyncio.Event(), DEPTH

    def news() -> None:
        nonlocal left
        ended = sum(isinstance(event, Ending) for reader in readers for event in reader.take())
        left -= ended
        if left == 0:
            over.set()

    records = [registry.start(_call(), _answer, LIMITS) for _ in range(DEPTH)]
    readers = [record.log.reader(news) for record in records]
    await over.wait()
