"""The measurements of single costs of the hub: its commands, sessions over HTTP, and a start with many servers."""

import os
import subprocess
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import measure
from bench.cases import Figures, Result, Run, merged
from bench.ledger import RelayFailed, Stats
from bench.load import PipeClient
from bench.load_http import HttpClient
from bench.relays import CONFIG, Setup, Side, Unavailable, command, environment, launched, spawn

COMMANDS, SESSIONS, SERVERS = "commands", "sessions", "many-servers"
CASES = (COMMANDS, SESSIONS, SERVERS)
# each is given to `mcp-hub`; those of a running hub are given its configuration, too
LINES: dict[str, tuple[str, ...]] = {"--help": (), "status": ("--config", CONFIG), "list": ("--config", CONFIG)}
# no limit of the hub is to be met by the sessions of one client
ROOM = {"max_sessions": 20_000, "sessions_per_principal": 20_000, "session_rate": 1_000_000}
# sessions that are opened before the memory is looked at: the first ones load what all share
FIRST = 50
EACH = 50
"""Tools of each of many servers."""


def hubs(run: Run) -> list[str]:
    """The hub, and the earlier one if it was asked for."""
    return [relay for relay in run.options.relays if relay in ("hub", "before")]


def with_room(hub: dict[str, object]) -> dict[str, object]:
    """The hub's configuration, with room for many sessions."""
    given = hub.get("http")
    return hub | {"http": ROOM | (given if isinstance(given, dict) else {})}


def commands(run: Run) -> None:
    """CPU of commands on the command line while a hub runs over HTTP."""
    unavailable: dict[str, str] = {}
    with launched(hubs(run), Setup("http"), run.options.hub, unavailable) as sides:
        run.absent(COMMANDS, unavailable)
        for name in LINES if sides else ():
            for side in sides:
                once(side, name=name)  # compiles what has been edited
            run.alternate(COMMANDS, name, sides, partial(once, name=name))


def once(side: Side, *, name: str) -> tuple[Figures, Stats]:
    """One command, with all processes that it starts; `failed` if it said something else than it should."""
    stats, place = Stats(calls=1), side.stderr.parent
    program = command(side.name, side.setup, place / CONFIG, side.port)[0]
    begun = time.perf_counter()
    process = subprocess.Popen(
        [program, name, *LINES[name]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=place,
        env=environment(place, side.name),
    )
    with process:
        assert process.stdout is not None
        said = process.stdout.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    took = time.perf_counter() - begun
    expected = {"--help": "Usage", "status": str(side.port), "list": "e0"}[name]
    if process.returncode or expected not in said:
        stats.fail(f"mcp-hub {name}: exit {process.returncode}: {said[-200:]}")
    return {"cpu_ms": (usage.ru_utime + usage.ru_stime) * 1e3, "wall_ms": took * 1e3}, stats


def opened(port: int, count: int) -> None:
    """So many sessions, each with one list, over one connection. Raises RelayFailed."""
    client = HttpClient(port, modern=False)
    try:
        for _ in range(count):
            client.start()
    finally:
        client.close()


def sessions(run: Run) -> None:
    """What a session over HTTP holds that has asked for the tools once."""
    count = 200 if run.options.quick else 1_000
    launches = [Run(run.options, run.say) for _ in range(run.options.fixed_rounds or (1 if run.options.quick else 3))]
    for launch in launches:
        unavailable: dict[str, str] = {}
        with launched(hubs(run), Setup("http"), with_room(run.options.hub), unavailable) as sides:
            launch.absent(SESSIONS, unavailable)
            if sides:
                launch.alternate(SESSIONS, f"{count} over HTTP", sides, partial(held, count=count), rounds=1)
    run.results += combined(launches)


def held(side: Side, *, count: int) -> tuple[Figures, Stats]:
    """By how much a hub grows for so many sessions, and their CPU, each."""
    opened(side.port, FIRST)
    before, cpu = measure.rss_mb(side.pid), side.cpu_seconds()
    opened(side.port, count)
    used = side.cpu_seconds() - cpu
    figures = {"session_kb": (measure.rss_mb(side.pid) - before) / count * 1e3, "cpu_us": used / count * 1e6}
    return figures, Stats(calls=count)


def combined(launches: list[Run]) -> list[Result]:
    """One row for each side: the medians over relays that were started anew."""
    rows: dict[tuple[str, str, str], list[Result]] = {}
    for launch in launches:
        for result in launch.results:
            rows.setdefault((result.case, result.variant, result.side), []).append(result)
    found = []
    for (case, variant, side), results in rows.items():
        figures = [result.figures for result in results if result.figures]
        note = next((result.note for result in results if result.note), "")
        failed = sum(result.failed for result in results)
        found.append(Result(case, variant, side, merged(figures) if figures else {}, failed, note))
    return found


def many_servers(run: Run) -> None:
    """The first list of a hub that knows its servers from an earlier start, over stdio.

    Servers that start with the hub take the cores from it while it starts; lazy ones do not.
    """
    setup = Setup("stdio", 20 if run.options.quick else 100, EACH)
    for is_lazy in (False, True):
        variant = f"{setup.upstreams} {'lazy ' if is_lazy else ''}servers, {setup.upstreams * EACH:,} tools, remembered"
        run.say(f"  {SERVERS}: {variant}")
        for relay in hubs(run):
            row = Result(SERVERS, variant, relay)
            try:
                row.figures = merged(remembered(relay, setup, run, is_lazy))
            except Unavailable as error:
                run.absent(SERVERS, {relay: str(error)})
                continue
            except (RelayFailed, OSError) as error:
                row.failed, row.note = 1, f"failed: {error}"
            run.results.append(row)


def remembered(relay: str, setup: Setup, run: Run, is_lazy: bool) -> list[Figures]:
    """Starts on one state folder, without the first. Raises RelayFailed when a first list is not complete."""
    with TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / relay
        first_list(relay, setup, run.options.hub, folder, is_known=False)
        later = replace(setup, is_lazy=is_lazy)
        return [first_list(relay, later, run.options.hub, folder, is_known=True) for _ in range(run.options.rounds)]


def first_list(relay: str, setup: Setup, hub: dict[str, object], folder: Path, is_known: bool) -> Figures:
    """Spawn to the first answer to `tools/list`, or to the complete one where nothing is known yet."""
    begun = time.monotonic()
    side = spawn(relay, setup, folder, hub)
    try:
        client = PipeClient(side.process)
        client.initialize()
        initialized = time.monotonic()
        wanted = setup.upstreams * setup.tools
        while (count := len(client.list_tools().names)) < wanted:
            if is_known or time.monotonic() - begun > 60:
                raise RelayFailed(f"{count} of {wanted} tools in the first list")
            time.sleep(0.05)
        listed = time.monotonic()
        cpu = measure.OwnProcesses(side.process.pid).cpu_seconds()
        return {"init_s": initialized - begun, "list_s": listed - begun, "cpu_ms": cpu * 1e3}
    finally:
        side.stop()


def measure_costs(run: Run) -> None:
    """The wanted ones of these cases, if a hub is to be measured at all."""
    if not hubs(run):
        return
    for case, measured in ((COMMANDS, commands), (SESSIONS, sessions), (SERVERS, many_servers)):
        if run.wants(case):
            measured(run)
