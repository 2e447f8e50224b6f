"""The deep checks: the newest client libraries, each against one reference server, without and with the hub.

`python -m rigs.clients.deep` runs every check without the hub (over a pipe and over HTTP), then in the `MODES`: through
a hub process of the client's own, attached to the background hub, over HTTP, through a hub that reaches the server over
HTTP, and through one that speaks the other era with the server. A check that passes without the hub and not through it
is a fault, unless the table in docs/clients.md names it. Exit code 1 for a fault or a client that is not installed;
2 for a usage error.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

import anyio

from rigs import report
from rigs.clients import clients
from rigs.clients.clients import MODERN_VERSION, Client
from rigs.clients.install import ROOT, NotInstalled
from rigs.clients.rig import BOTH
from rigs.clients.run import ENDS, Outcome, Row, run

PAGE = ROOT / "docs" / "clients.md"
CHECKS = (  # in this order: the first call comes before any list
    *("connect", "call", "lists", "prompt", "read", "complete", "progress", "log", "elicit", "sample", "roots"),
    *("cancel", "changed", "updates", "written", "refused", "failed", "unknown", "large", "together", "ping"),
)
MODES = {"own": "stdio", "attached": "attached", "http": "http", "remote": "remote", "bridged": "bridged"}
"""The front of each mode."""
DIRECT = {"own": "direct", "attached": "direct", "http": "direct-http", "remote": "direct", "bridged": "direct"}
"""The front that each mode is compared with."""
AT_ONCE = 2
TRIES = 3
"""How often a check is tried again without the hub, where only one side fails: some faults are of chance."""

MODERN_LACKS = frozenset({"ping"})
"""Checks for which the modern era has no message."""
FASTMCP_LACKS = MODERN_LACKS | {"updates", "changed"}
"""It has no `subscriptions/listen`, and hears nothing by itself in the modern era."""
PYDANTIC_LACKS = FASTMCP_LACKS | {"complete"}
CALLER_LACKS = frozenset({"progress", "log", "sample", "roots", "updates", "changed", "ping"})
"""Checks that a library cannot do which only lists and calls."""
OPENAI_LACKS = CALLER_LACKS | {"complete", "elicit"}
NO_CANCEL = frozenset({"cancel"})
"""It forgets a request that is cancelled, and never sends `notifications/cancelled`."""
SMALL_EVENTS = frozenset({"large"})
"""It refuses events over 1 MiB, as which the server sends its result; the hub has to send it as plain JSON."""
FRONT_LACKS = {
    **{("ai-sdk", front): NO_CANCEL for front in ("direct", "stdio", "attached", "remote", "bridged")},
    **{(name, "direct-http"): SMALL_EVENTS for name in ("python-mcp-2-legacy", "fastmcp-legacy")},
}
"""Checks that a client cannot do on one front. Over HTTP the end of a request is its cancellation."""

DEEP = (
    Client("python-mcp-2", clients.mcp_2, "auto", MODERN_VERSION, MODERN_LACKS, has_large_integers=True),
    Client("python-mcp-1", clients.mcp_1, lacks=NO_CANCEL, has_large_integers=True),
    Client("python-mcp-2-legacy", clients.mcp_2, has_large_integers=True),
    Client("fastmcp-legacy", clients.fastmcp, has_large_integers=True),
    Client("typescript-client-2-legacy", clients.client_2),
    Client("fastmcp", clients.fastmcp, "auto", MODERN_VERSION, FASTMCP_LACKS, has_large_integers=True),
    Client("pydantic-ai", clients.pydantic_ai, "auto", MODERN_VERSION, PYDANTIC_LACKS, has_large_integers=True),
    Client("openai-agents", clients.openai_agents, "auto", MODERN_VERSION, OPENAI_LACKS, has_large_integers=True),
    Client("langchain", clients.langchain, lacks=NO_CANCEL, has_large_integers=True),
    Client("typescript-client-2", clients.client_2, "auto", MODERN_VERSION, MODERN_LACKS),
    Client("typescript-sdk-1", clients.sdk_1),
    Client("ai-sdk", clients.ai_sdk, "auto", MODERN_VERSION, CALLER_LACKS),
)

Results = Mapping[tuple[str, str], Sequence[Outcome]]
"""The outcomes by name of the client and front."""
Chance = Set[tuple[str, str, str]]
"""Client, front and check of what came out in another way when it was tried again without the hub."""


@dataclass(frozen=True)
class Difference:
    """A row of the table of the page: a check that may fail in this way through the hub, for these clients and modes.

    `clients` are patterns as in `typescript-*`; `says` is a part of the check's message.
    """

    check: str
    clients: tuple[str, ...]
    modes: tuple[str, ...]
    says: str

    def covers(self, cell: "Cell") -> bool:
        return cell.mode in self.modes and self.is_of(cell.client, cell.check, cell.detail)

    def is_of(self, client: str, check: str, detail: str) -> bool:
        return self.check == check and self.says in detail and any(fnmatch(client, name) for name in self.clients)


@dataclass(frozen=True)
class Cell:
    """One check of one client in one mode, with what went wrong; `verdict` is `ok`, `–`, `named` or `FAIL`."""

    client: str
    mode: str
    check: str
    verdict: str
    detail: str = ""


@dataclass
class Measured:
    """`missing` are the clients that are not installed, with the reason."""

    results: dict[tuple[str, str], Sequence[Outcome]] = field(default_factory=dict)
    chance: set[tuple[str, str, str]] = field(default_factory=set)
    libraries: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def documented(page: str) -> list[Difference]:
    """The rows of the table between the marks `<!-- deep -->` and `<!-- /deep -->`."""
    text = page.partition("<!-- deep -->")[2].partition("<!-- /deep -->")[0]
    rows = [[re.findall("`([^`]+)`", cell) for cell in line.split("|")] for line in text.splitlines() if "`" in line]
    return [Difference(row[1][0], tuple(row[2]), tuple(row[3]), row[4][0]) for row in rows]


def judged(results: Results, differences: Sequence[Difference], chance: Chance = frozenset()) -> Iterator[Cell]:
    """Every cell. A check that fails without the hub too does not count, nor does one of `chance` there."""
    for (client, front), outcomes in results.items():
        mode = next((mode for mode, name in MODES.items() if name == front), None)
        if mode is None:
            continue
        direct = {outcome.step: outcome.ok for outcome in results[client, DIRECT[mode]]}
        for outcome in outcomes:
            cell = Cell(client, mode, outcome.step, "ok", outcome.detail)
            if outcome.ok or (client, DIRECT[mode], outcome.step) in chance:
                yield cell
            elif outcome.step != ENDS and not direct.get(outcome.step, True):
                yield replace(cell, verdict="–")
            else:
                is_named = any(difference.covers(cell) for difference in differences)
                yield replace(cell, verdict="named" if is_named else "FAIL")


def complaints(measured: Measured, differences: Sequence[Difference]) -> list[str]:
    """Cells that are worse than without the hub and not named; checks that failed without it; missing clients."""
    cells = judged(measured.results, differences, measured.chance)
    lines = [f"{cell.client}, {cell.mode}, {cell.check}: {cell.detail}" for cell in cells if cell.verdict == "FAIL"]
    lines += [
        f"{client}, {front}, {outcome.step}: {outcome.detail}"
        for (client, front), outcomes in measured.results.items()
        if front in DIRECT.values()
        for outcome in outcomes
        if not outcome.ok and (client, front, outcome.step) not in measured.chance
        if not any(difference.is_of(client, outcome.step, outcome.detail) for difference in differences)
    ]
    return [*lines, *(f"not installed: {name}: {reason}" for name, reason in measured.missing.items())]


def table(measured: Measured, differences: Sequence[Difference]) -> list[str]:
    verdicts = {(c.client, c.mode, c.check): c.verdict for c in judged(measured.results, differences, measured.chance)}
    columns = (*CHECKS, ENDS)
    lines = [["client", "mode", *columns], ["---"] * (len(columns) + 2)]
    for client, mode in dict.fromkeys((client, mode) for client, mode, _ in verdicts):
        lines.append([client, mode, *(verdicts.get((client, mode, check), "–") for check in columns)])
    return ["| " + " | ".join(line) + " |" for line in lines]


def possible(client: Client, front: str) -> list[str]:
    """The checks that the library can do on that front."""
    lacks = client.lacks | FRONT_LACKS.get((client.name, front), frozenset())
    return [check for check in CHECKS if check not in lacks]


async def measure(
    chosen: Sequence[Client], modes: Sequence[str], say: Callable[[str], None], logs: Path | None = None
) -> Measured:
    """Runs every check of these clients without the hub and in these modes, `AT_ONCE` at a time."""
    measured = Measured()
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def play(row: Row, steps: Sequence[str]) -> Sequence[Outcome]:
        async with limit:
            return await run(row, steps, logs)

    async def client(it: Client) -> None:
        fronts = dict.fromkeys([*(DIRECT[mode] for mode in modes), *(MODES[mode] for mode in modes)])
        for front in fronts:
            outcomes = await play(Row(it, front, BOTH), possible(it, front))
            measured.results[it.name, front] = outcomes
            wrong = [outcome.step for outcome in outcomes if not outcome.ok]
            say(f"{it.name}, {front}: {'not ok: ' + ', '.join(wrong) if wrong else 'ok'}")

    installed = [it for it in chosen if _is_installed(it, measured)]
    async with anyio.create_task_group() as tasks:
        for it in installed:
            tasks.start_soon(client, it)
    for it in installed:
        await _see_chance(it, modes, measured)
    return measured


async def _see_chance(client: Client, modes: Sequence[str], measured: Measured) -> None:
    """Tries checks again, without the hub, that failed on one side only."""

    def passed(front: str) -> dict[str, bool]:
        return {outcome.step: outcome.ok for outcome in measured.results[client.name, front]}

    for front in {DIRECT[mode] for mode in modes}:
        direct = passed(front)
        through = [passed(MODES[mode]) for mode in modes if DIRECT[mode] == front]
        uneven = {step for step in direct for hub in through if step != ENDS and direct[step] != hub.get(step, True)}
        for _ in range(TRIES):
            if not uneven:
                break
            for outcome in await run(Row(client, front, BOTH), sorted(uneven, key=CHECKS.index)):
                if outcome.step in uneven and outcome.ok != direct[outcome.step]:
                    measured.chance.add((client.name, front, outcome.step))
                    uneven.discard(outcome.step)


def _is_installed(client: Client, measured: Measured) -> bool:
    try:
        client.library.argv()
        measured.libraries.append(client.library.version())
    except NotInstalled as reason:
        measured.missing[client.name] = str(reason)
        return False
    return True


def main() -> int:
    parser = report.arguments("clients.deep", __doc__)
    add = parser.add_argument
    add("--only", action="append", default=[], metavar="NAME", help=", ".join(client.name for client in DEEP))
    add("--mode", action="append", choices=MODES, help="only this one")
    add("--logs", type=Path, metavar="FOLDER", help="write what each driver says on stderr there")
    options = parser.parse_args()
    begun = time.perf_counter()
    chosen = [client for client in DEEP if not options.only or client.name in options.only]
    if not chosen:
        report.say("no such client")
        return 2
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)

    def say(line: str) -> None:
        report.say(f"{time.perf_counter() - begun:5.0f} s  {line}")

    modes = options.mode or list(MODES)
    measured = anyio.run(measure, chosen, modes, say, options.logs)
    differences = documented(PAGE.read_text("utf-8"))
    head = [f"Deep checks: {', '.join(measured.libraries)}.", ""]
    return report.reported([*head, *table(measured, differences)], complaints(measured, differences))


if __name__ == "__main__":
    sys.exit(main())
