"""`mcp-hub doctor`: starts every server and shows what is wrong with it and how to fix it."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click
import msgspec

from mcp_hub.app import readiness
from mcp_hub.cli.access import waiting
from mcp_hub.cli.parameters import Seconds
from mcp_hub.cli.programs import find_program
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.diagnosis import Diagnosis, diagnose
from mcp_hub.cli.render.notices import notices, unmatched_patterns
from mcp_hub.cli.setup import (
    EXIT_UNAVAILABLE,
    check_servers,
    config_option,
    load_config,
    quiet_logs,
    run_with_app,
    verbose_option,
)
from mcp_hub.clock import SystemClock
from mcp_hub.config.load.load import Loaded
from mcp_hub.errors import StartFailed
from mcp_hub.masking import hide, visible
from mcp_hub.types import JsonObject, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.app.build import App

_SPARE: Final = 5.0
"""Seconds beyond the longest `start_timeout`, for a server to stop and its last lines to be read."""


class ServerFinding(msgspec.Struct, frozen=True):
    """The verdict about one server; `seconds` until it was ready or had failed, None if it was neither in time."""

    diagnosis: Diagnosis
    status: UpstreamStatus
    program: str | None
    seconds: float | None


@click.command()
@click.argument("servers", nargs=-1, metavar="[SERVER]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--wait", type=Seconds(min=0), metavar="SECONDS",
    help="How long to wait for servers to start.  [default: the longest start_timeout]",
)  # fmt: skip
@verbose_option
@config_option
def doctor(servers: tuple[str, ...], as_json: bool, wait: float | None, verbose: int, config: str | None) -> None:
    """Start the servers and explain what is wrong.

    Checks all servers, or only those named. Exit code 3 if a server has a problem.
    """
    loaded = load_config(config)
    check_servers(loaded, servers)
    quiet_logs(verbose)
    chosen = _only(loaded, servers)
    run_with_app(chosen, lambda app: _doctor(app, loaded, wait, as_json))


def _only(loaded: Loaded, names: Collection[str]) -> Loaded:
    """The configuration with only these servers, started at once; without names, with all."""
    at_once = {"start": "eager", "idle_stop": "never"}
    chosen = {
        name: own.model_copy(update=at_once)
        for name, own in loaded.settings.servers.items()
        if not names or name in names
    }
    return replace(loaded, settings=loaded.settings.model_copy(update={"servers": chosen}))


async def _doctor(app: "App", loaded: Loaded, wait: float | None, as_json: bool) -> int:
    clock, settings = SystemClock(), app.settings
    started, seconds = clock.now(), dict[str, float]()

    def look(statuses: list[UpstreamStatus]) -> None:
        for status in filter(readiness.has_settled, statuses):
            seconds.setdefault(status.server, clock.now() - started)

    longest = max((settings.effective(name).start_timeout for name in settings.servers), default=0)
    await waiting.settle(app.hub, longest + _SPARE if wait is None else wait, look)
    findings, warnings = _findings(app, loaded, seconds), unmatched_patterns(app, loaded)
    warnings += notices(await app.operations.servers(None))
    if as_json:
        servers = [finding_data(finding) for finding in findings]
        tables.print_json({"servers": servers, "warnings": [*map(str, warnings)]})
    else:
        _print(findings)
        tables.print_warnings(warnings)
    return 0 if all(finding.diagnosis.is_ok for finding in findings) else EXIT_UNAVAILABLE


def _findings(app: "App", loaded: Loaded, seconds: Mapping[str, float]) -> list[ServerFinding]:
    view = app.hub.catalog.view(None)
    folder = str(loaded.path.absolute().parent)
    findings = []
    for status in app.hub.statuses():
        name = status.server
        diagnosis = diagnose(status, app.upstreams[name].snapshot(), view)
        try:
            program = find_program(loaded.settings.servers[name], os.environ, folder)
        except StartFailed:
            program = None  # the diagnosis says so
        findings.append(ServerFinding(diagnosis, status, program, seconds.get(name)))
    return findings


def finding_data(finding: ServerFinding) -> JsonObject:
    """One server as `--json` shows it."""
    diagnosis, status = finding.diagnosis, finding.status
    return {
        "server": status.server,
        "code": diagnosis.code,
        "ok": diagnosis.is_ok,
        "problem": hide(diagnosis.problem),
        "fix": "" if diagnosis.is_ok else diagnosis.fix,
        "state": status.state.value,
        "command": hide(finding.program) if finding.program else None,
        "era": status.era.value if status.era else None,
        "version": status.version,
        "seconds": None if finding.seconds is None else round(finding.seconds, 3),
        "output": [hide(line) for line in diagnosis.lines],
    }


def finding_text(finding: ServerFinding) -> list[tuple[str, str]]:
    """One server for people: lines and their styles."""
    diagnosis, status = finding.diagnosis, finding.status
    style = "dim" if diagnosis.code == "disabled" else "green" if diagnosis.is_ok else "red"
    about = [tables.protocol(status)] if status.era else []
    if finding.seconds is not None and diagnosis.code != "disabled":
        about.append(f"{finding.seconds:.1f} s")
    head = f"{status.server}: {diagnosis.code}"
    lines = [(f"{head} ({', '.join(about)})" if about else head, style)]
    if finding.program and diagnosis.code != "disabled":
        label = "url:    " if finding.program.startswith("http") else "command:"
        lines.append((f"  {label} {finding.program}", ""))
    if not diagnosis.is_ok:
        lines.append((f"  problem: {diagnosis.problem}", ""))
        lines.append((f"  fix:     {diagnosis.fix}", "bold"))
        lines += [(f"  | {line}", "dim") for line in diagnosis.lines]
    return [(visible(hide(text)), style) for text, style in lines]


def _print(findings: Sequence[ServerFinding]) -> None:
    for finding in findings:
        tables.print_lines(finding_text(finding))
    wrong = sum(not finding.diagnosis.is_ok for finding in findings)
    counted = tables.plural(len(findings), "server")
    click.echo(f"{counted}, {wrong} with a problem" if wrong else f"{counted}, all fine")
