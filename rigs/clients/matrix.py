"""Which clients meet which server on which front, and the run of them all."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from rigs.clients.clients import CLIENTS, HANDSHAKE_VERSION, MODERN_VERSION, Client
from rigs.clients.install import NotInstalled
from rigs.clients.known import DIRECT, Shown, known_faults
from rigs.clients.run import Outcome, Row, run

FRONTS = ("stdio", "attached", "http")
# over stdio the hub is in the client's process, or is the one that all attach to
ERAS = ("handshake", "modern")
QUICK = ("connect", "list", "call", "progress", "cancel", "error", "elicit")
# each has a driver, a hub and two servers, and waits for seconds in some steps
AT_ONCE = 4
# a client's own fault may be one of chance
TRIES = 3


@dataclass(frozen=True)
class Choice:
    """What to run; clients by the beginnings of their names, all if there are none."""

    only: tuple[str, ...] = ()
    front: str | None = None
    is_quick: bool = False
    is_direct: bool = False
    logs: Path | None = None


@dataclass
class Measured:
    """What came of it; `shown` are the faults that clients have without the hub, `missing` who cannot be installed."""

    results: dict[Row, list[Outcome]] = field(default_factory=dict)
    shown: Shown = field(default_factory=set)
    libraries: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def rows(choice: Choice) -> list[Row]:
    """The lines of the table."""
    chosen = [client for client in CLIENTS.values() if not choice.only or client.name.startswith(choice.only)]
    found = [row for client in chosen for row in (_direct(client) if choice.is_direct else _through_hub(client))]
    if choice.is_quick and not choice.is_direct:
        found = [row for row in found if (row.era == "modern") != (row.client.version == MODERN_VERSION)]
    return [row for row in found if choice.front in (row.front, None)]


def _through_hub(client: Client) -> list[Row]:
    return [Row(client, front, era) for front in client.fronts for era in ERAS]


def _direct(client: Client) -> list[Row]:
    """To servers that it can talk to: none is bridged."""
    spoken = {"legacy": ERAS[:1], MODERN_VERSION: ERAS[1:], "modern": ERAS[1:]}.get(client.mode, ERAS)
    piped = [Row(client, "direct", era) for era in spoken] if "stdio" in client.fronts else []
    return [*piped, Row(client, "direct-http", ERAS[client.version != HANDSHAKE_VERSION])]


async def measure(choice: Choice, say: Callable[[str], None]) -> Measured:
    """Run the chosen rows, a few at once; then see whether the faults that are known show without the hub."""
    measured = Measured()
    there = []
    for row in rows(choice):
        if _is_installed(row.client, measured, say):
            there.append(row)
            measured.results[row] = []  # so that the table is in this order
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def one(row: Row) -> None:
        async with limit:
            steps = [step for step in row.client.steps(row.front) if not choice.is_quick or step in QUICK]
            measured.results[row] = await run(row, steps, choice.logs)
            wrong = [outcome.step for outcome in measured.results[row] if not outcome.ok]
            say(f"{row}: {'not ok: ' + ', '.join(wrong) if wrong else 'ok'}")

    async with anyio.create_task_group() as tasks:
        for row in there:
            tasks.start_soon(one, row)
    await _see_known_faults(measured, say)
    return measured


def _is_installed(client: Client, measured: Measured, say: Callable[[str], None]) -> bool:
    if client.name in measured.missing:
        return False
    try:
        client.library.argv()
        version = client.library.version()
        if client.bridge is not None:
            client.bridge("")
        client.extras()
    except NotInstalled as reason:
        measured.missing[client.name] = str(reason)
        say(f"{client.name}: not installed: {reason}")
        return False
    if version not in measured.libraries:
        measured.libraries.append(version)
        say(version)
    return True


async def _see_known_faults(measured: Measured, say: Callable[[str], None]) -> None:
    """Try each step that failed in a known way without the hub, unless that is what was run."""
    measured.shown = known_faults({row: found for row, found in measured.results.items() if row.front in DIRECT})
    open_ones = known_faults(measured.results) - measured.shown
    for name, fault in sorted(open_ones, key=lambda pair: (pair[0], pair[1].step)):
        row = next(row for row in _direct(CLIENTS[name]) if row.front == fault.directly)
        for _ in range(TRIES):
            if (name, fault) in known_faults({row: await run(row, [fault.step])}):
                measured.shown.add((name, fault))
                break
        say(f"{row}, {fault.step}: {'fails' if (name, fault) in measured.shown else 'does not fail'} without the hub")
