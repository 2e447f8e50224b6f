"""The measurements of the history of calls: what it adds to a call, to each kB that is kept, and reading it.

What the audit and the limits of calls add is measured in the same way.
"""

import json
import signal
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import anyio

from bench.cases import TEXT, Figures, Result, Run, echoes, merged, share, timed, warm
from bench.ledger import Call, RelayFailed, Stats
from bench.relays import CONFIG, GATES, HISTORIES, Setup, Side
from mcp_hub.calls.history.journal import PACE
from mcp_hub.clock import SystemClock
from mcp_hub.stores.history.base import COMPLETED, Batch, CallGroup, HistoryLimits, group_line
from mcp_hub.stores.history.file import HistoryFile
from mcp_hub.stores.history.reading import CallFilter, newest

CALLS, TEXTS, READ, GATED = "history-calls", "history-texts", "history-read", "gates-calls"
CASES = (CALLS, TEXTS, READ, GATED)
KEPT = 3500
"""Bytes of the text of a call, which its result repeats: all of both is kept."""
LAUNCHES = 9
"""Hubs of each side that are started for what gates add to a call."""
SWITCHES = {CALLS: 12, TEXTS: 4}
"""Times that the history is switched to each side in a round: texts cost more than the machine's speed changes."""
PATIENCE = 30.0
"""Seconds for a changed setting to hold."""
MANY = 100_000
_BATCH = HistoryLimits().batch
_SERVERS, _TOOLS = 10, 20
_STARTED = 1_700_000_000.0
_Load = Callable[[Side], Iterator[Call]]


def calls(run: Run, case: str, sides: list[Side]) -> None:
    """Echo calls of 100 bytes, one in flight."""
    warm(sides, 1)
    run.alternate(case, "1 in flight", sides, lambda side: timed(side, echoes(side, run.options.seconds), 1))


def switched(run: Run, sides: list[Side]) -> None:
    """The echo calls of 100 bytes, one in flight, through one hub whose history is switched by turns."""
    _by_turns(run, CALLS, "1 in flight", sides, partial(echoes, seconds=run.options.seconds), 2 * len(TEXT) / 1000)


def _by_turns(run: Run, case: str, variant: str, sides: list[Side], load: _Load, kept_kb: float) -> None:
    """One hub differs from the next by more than its history costs, so there is one.

    The last batch of a side is written before the next one is measured. Off comes before and after each other side:
    `ratio` and `more_us` are to the mean of both. `kept_kb`: of arguments and result of a call, with `full`.

    The speed of the machine changes from turn to turn by more than the history costs, for the client as well, which
    does the same for a call on each side. So the ratio is that of the hub's CPU to the client's.
    """
    [hub] = sides
    warm(sides, 1)
    off, *others = (replace(hub, name=name) for name in HISTORIES)
    before, last = Figures(), Figures()

    def action(side: Side) -> tuple[Figures, Stats]:
        nonlocal before, last
        _switch(side)
        side.client().run(echoes(side, PACE / 2), 1)
        begun = time.process_time()
        figures, stats = timed(side, load(side), 1)
        client_us = (time.process_time() - begun) / max(1, stats.calls) * 1e6
        figures["to_client"] = figures["cpu_us"] / client_us
        time.sleep(PACE / 2 + 0.1)
        if side.name == off.name:
            last |= _to(last, before, figures)  # of the side before, now that both are known
            before, last = figures, {}
        else:
            figures |= {"kept_kb": kept_kb} | _to(figures, before)
            last = figures
        return figures, stats

    rounds = SWITCHES[case] * run.options.rounds
    run.alternate(case, variant, [one for other in others for one in (off, other)], action, rounds)


def _to(figures: Figures, *off: Figures) -> Figures:
    """What is more than without a history; nothing without figures of a side."""
    if not figures or not all(off):
        return {}
    ratio = figures["to_client"] / mean(one["to_client"] for one in off)
    return {"ratio": ratio, "more_us": (ratio - 1) * mean(one["cpu_us"] for one in off)}


def _switch(side: Side) -> None:
    """Gives the hub the history of this side. Raises `RelayFailed`."""
    config, until = side.stderr.parent / CONFIG, time.monotonic() + PATIENCE
    settings = json.loads(config.read_text())
    if settings["hub"].get("history") == HISTORIES[side.name]:
        return
    settings["hub"]["history"] = HISTORIES[side.name]
    before = side.stderr.read_text().count('"config_reloaded"')
    draft = config.with_suffix(".draft")
    draft.write_text(json.dumps(settings))
    draft.replace(config)
    side.process.send_signal(signal.SIGHUP)
    while side.stderr.read_text().count('"config_reloaded"') == before:
        if time.monotonic() > until:
            raise RelayFailed(f"its history is not switched to {side.name}")
        time.sleep(0.02)


def texts(run: Run, sides: list[Side]) -> None:
    """Echo calls of several kB, one in flight: plain text, and a text with escapes."""
    plain = "the quick brown fox " * (KEPT // 20)
    for variant, text in (("plain text", plain), ("text with line breaks", plain.replace(" fox", "\n"))):
        encoded = b'{"text":"%b"}' % text.replace("\n", "\\n").encode()
        same = partial(_same, arguments=encoded, text=text, seconds=run.options.seconds)
        _by_turns(run, TEXTS, variant, sides, same, 2 * len(encoded) / 1000)


def _same(side: Side, arguments: bytes, text: str, seconds: float) -> Iterator[Call]:
    call, until = Call(side.tool("echo"), arguments, text), time.perf_counter() + seconds
    yield call
    while time.perf_counter() < until:
        yield call


def _batch(base: int) -> Batch:
    """One in a hundred of its calls has failed, and one in a thousand is of a rare tool."""
    groups = [
        CallGroup(f"s{server}", f"t{tool}", f"s{server}_t{tool}", "tools/call", "local", "Bench", status, "full", "d")
        for server in range(_SERVERS)
        for tool in range(_TOOLS)
        for status in ("completed", "failed")
    ]
    groups.append(CallGroup("rare", "rare", "rare", "tools/call", "local", "Bench", "completed", "full", "d"))
    every = range(base, base + _BATCH)
    chosen = [len(groups) - 1 if n % 1000 == 0 else 2 * (n % 200) + (n % 100 == 7) for n in every]
    numbers = {mark: number for number, mark in enumerate(dict.fromkeys(chosen))}
    lines, marks = "\n".join(group_line(groups[mark]) for mark in numbers), array("H", map(numbers.__getitem__, chosen))
    ended, took = array("d", (_STARTED + n for n in every)), array("d", (n % 97 / 1000 for n in every))
    ids = " ".join(f"st_{n:026d}" for n in every)
    sizes, flags = array("I", [100] * 2 * _BATCH), bytes(0 if n % 100 == 7 else COMPLETED for n in every)
    notes = {place: ("upstream_refused", "no such thing") for place, n in enumerate(every) if n % 100 == 7}
    times = ended.tobytes(), took.tobytes(), b""  # as usual: none has waited
    return Batch("in_bench", base, lines, marks.tobytes(), ids, *times, sizes.tobytes(), flags, notes)


FILTERS: dict[str, CallFilter] = {
    "everything": CallFilter(lambda group: True),
    "failed": CallFilter(lambda group: group.status != "completed", failed=True),
    "one tool": CallFilter(lambda group: group.tool == "t7" and group.server == "s3"),
    "a rare tool": CallFilter(lambda group: group.tool == "rare"),
    "none": CallFilter(lambda group: group.server == "gone"),
    "the oldest": CallFilter(lambda group: True, until=_STARTED + 500),
    "failed of one server since a time": CallFilter(
        lambda group: group.server == "s7" and group.status != "completed", since=_STARTED + MANY / 2
    ),
}


async def _reads(rounds: int, most: int) -> dict[str, list[Figures]]:
    """Milliseconds to the answer of each filter, by turns."""
    samples: dict[str, list[Figures]] = {name: [] for name in FILTERS}
    with TemporaryDirectory() as folder:
        store = HistoryFile(Path(folder), "in_bench", lambda hub: False, time.time, SystemClock())
        limits = HistoryLimits(keep=1e12, calls=10 * MANY, size=1 << 40)
        for base in range(0, MANY, _BATCH):
            own = b"\0".join([b'{"text":"%s"}' % (b"x" * 90), b'{"content":[]}'] * _BATCH)
            await store.write(_batch(base), _BATCH, own, [], limits)
        for _ in range(rounds):
            for name, chosen in FILTERS.items():
                begun = time.perf_counter()
                await newest(store, chosen, most)
                samples[name].append({"read_ms": (time.perf_counter() - begun) * 1e3})
        await store.close()
    return samples


def _of_many_hubs(run: Run, case: str, names: Sequence[str]) -> list[Result]:
    """The medians over hubs that are started anew: one differs from the next by more than gates cost."""
    launches = [Run(run.options, run.say) for _ in range(LAUNCHES)]
    for launch in launches:
        share(launch, Setup("stdio"), {case: partial(calls, launch, case)}, names)
    first, *others = ({result.side: result for result in launch.results} for launch in launches)
    for side, result in first.items():
        every = [result, *(results[side] for results in others if side in results)]
        result.failed, result.note = sum(one.failed for one in every), next((one.note for one in every if one.note), "")
        figures = [one.figures for one in every if one.figures]
        result.figures = merged(figures) if figures else {}
    return list(first.values())


def measure_history(run: Run) -> None:
    """The wanted ones of these cases."""
    share(run, Setup("stdio"), {CALLS: partial(switched, run), TEXTS: partial(texts, run)}, tuple(HISTORIES)[:1])
    if run.wants(GATED):
        run.results += _of_many_hubs(run, GATED, tuple(GATES))
    if run.wants(READ):
        for most in (100, 1000):
            variant = f"{MANY:,} calls, {most} of them"
            run.say(f"  {READ}: {variant}")
            samples = anyio.run(_reads, 2 * run.options.rounds, most)
            run.results += [Result(READ, variant, side, merged(found)) for side, found in samples.items()]
