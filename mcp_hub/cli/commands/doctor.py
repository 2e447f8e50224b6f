"""`mcp-hub doctor`: what is wrong with each server, started or in a running hub, and how to fix it."""

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Final

import click
from msgspec import structs

from mcp_hub.app import readiness
from mcp_hub.app.upstream_factory import find_program
from mcp_hub.attach.serve import why_alone
from mcp_hub.cli import completion
from mcp_hub.cli.access import waiting
from mcp_hub.cli.access.hub import Reach, ReachedHub, Selection, own_wait_options, run_with_hub
from mcp_hub.cli.commands.repairs import Repair, found_repairs, missing_parts
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.diagnosis import Diagnosis, diagnose, told_apart
from mcp_hub.cli.render.notices import notices, project_warnings, waiting_edits
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, Seconds, config_path
from mcp_hub.clock import SystemClock
from mcp_hub.codes.tables import CODES
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.errors import ConfigError, StartFailed
from mcp_hub.masking import hide, visible
from mcp_hub.protocol.rest.servers import ServerInfo
from mcp_hub.types import JsonObject, UpstreamStatus
from mcp_hub.upstreams.process.commands import proposed_variables

_WIDTH: Final = 100
"""Characters of a line of folders."""
_SPARE: Final = 5.0
"""Seconds beyond the longest `start_timeout`, for a server to stop and its last lines to be read."""


@click.command()
@click.argument("servers", nargs=-1, metavar="[SERVER]...", shell_complete=completion.servers)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--wait", "patience", type=Seconds(min=0), metavar="SECONDS",
    help="How long to wait for servers to start.  [default: the longest start_timeout]",
)  # fmt: skip
@click.option(
    "--fix", "fixes", is_flag=True, help="Fix what can be fixed without your input; each change is shown first."
)
@own_wait_options
def doctor(servers: tuple[str, ...], as_json: bool, patience: float | None, fixes: bool, reach: Reach) -> None:
    """Explain what is wrong with the servers.

    Asks the running hub of the configuration; if none runs, starts the servers. Checks all servers, or only those
    named. Exit code 3 if a server has a problem.
    """

    def chosen(loaded: Loaded) -> Loaded:
        return _only(loaded, servers)

    repairs = [] if reach.url is not None else _repaired(config_path(reach.config), fixes)
    run_with_hub(
        reach, lambda hub: _doctor(hub, servers, patience, as_json, repairs), Selection(servers), start=chosen,
        operates=True, lists_servers=True,
    )  # fmt: skip


def _repaired(path: Path, fixes: bool) -> list[tuple[Repair, str]]:
    """Problems beside the servers, each with "fixed", nothing if it was not tried, or the reason why it failed."""
    left = [(repair, "") for repair in missing_parts(path, os.environ)]
    found = list(found_repairs(path, os.environ))
    if not fixes:
        return [*((repair, "") for repair in found), *left]
    done: list[tuple[Repair, str]] = []
    with redirect_stdout(sys.stderr):  # where --json prints its document, nothing else is printed
        for repair in found:
            for line in (repair.problem, *(f"  {line}" for line in repair.diff)):
                say(hide(line))
            try:
                repair.apply()
                done.append((repair, "fixed"))
            except (ConfigError, OSError) as problem:
                done.append((repair, str(problem)))
            say(hide(f"  {done[-1][1]}"))
    return [*done, *left]


def _only(loaded: Loaded, names: Collection[str]) -> Loaded:
    """The configuration with only these servers, started at once; without names, with all."""
    at_once = {"start": "eager", "idle_stop": "never"}
    chosen = {
        name: server.model_copy(update=at_once)
        for name, server in loaded.settings.servers.items()
        if not names or name in names
    }
    return replace(loaded, settings=loaded.settings.model_copy(update={"servers": chosen}))


async def _doctor(
    hub: ReachedHub,
    names: Collection[str],
    patience: float | None,
    as_json: bool,
    repairs: Sequence[tuple[Repair, str]],
) -> int:
    seconds = await _settled(hub, patience)
    listed = await hub.client.lists.servers()
    servers = [server for server in listed.servers if not names or server.server in names]
    found = [_diagnosis(server, hub.loaded, seconds.get(server.server)) for server in servers]
    repairs = [(repair, outcome) for repair, outcome in repairs if not any(_has_path(one, repair) for one in found)]
    warnings = [*hub.unmatched(listed), *notices(servers, ends=hub.app is not None)]
    if hub.loaded is not None:
        warnings += [*project_warnings(hub.loaded.settings), *waiting_edits(hub.loaded.path, names)]
    wrong = sum(not one.is_ok for one in found)
    if as_json:
        around = [_repair_data(repair, outcome) for repair, outcome in repairs]
        tables.print_json({"servers": [*map(_data, found)], "around": around, "warnings": [*map(str, warnings)]})
    else:
        for one in found:
            tables.print_lines(_lines(one))
        counted = tables.plural(len(found), "server")
        put(f"{counted}, {wrong} with a problem" if wrong else f"{counted}, all fine")
        if hub.loaded is not None and (why := why_alone(hub.loaded.place, os.environ)):
            say(f"Each client of this shell has a hub of its own, because {why}")
        for repair, outcome in repairs:
            tables.print_lines(_repair_lines(repair, outcome))
        tables.print_warnings(warnings)
    is_left = any(repair.is_problem and outcome != "fixed" for repair, outcome in repairs)
    return EXIT_UNAVAILABLE if wrong or is_left else 0


def _has_path(one: Diagnosis, repair: Repair) -> bool:
    """Whether the verdict about the server says already that this path is missing."""
    is_about = not one.is_ok and bool(repair.path) and one.status.server == repair.server
    return is_about and any(repair.path in text for text in (one.problem, *one.places))


def _repair_data(repair: Repair, outcome: str) -> JsonObject:
    problem, advice = told_apart(repair.problem)
    fix = "" if outcome == "fixed" else CODES[repair.code].fix
    diff = [hide(line) for line in repair.diff]
    about = {"code": repair.code, "problem": hide(problem), "advice": hide(advice), "diff": diff}
    return {**about, "fixed": outcome == "fixed", "reason": hide(outcome) if fix and outcome else None, "fix": fix}


def _repair_lines(repair: Repair, outcome: str) -> list[tuple[str, str]]:
    """Nothing for one that was fixed, which was said already."""
    if outcome == "fixed":
        return []
    problem, advice = told_apart(repair.problem)
    lines = [(f"{repair.code}: {problem}", "red" if repair.is_problem else "yellow")]
    if outcome:
        lines.append((f"  problem: {outcome}", ""))
    lines.append((f"  fix:     {advice or CODES[repair.code].fix}", "bold"))
    return [(visible(hide(text)), style) for text, style in lines]


async def _settled(hub: ReachedHub, patience: float | None) -> Mapping[str, float]:
    """Waits for the servers of a hub of our own; after how many seconds each was ready or had failed."""
    seconds = dict[str, float]()
    if hub.app is not None:
        clock, settings = SystemClock(), hub.app.settings
        started = clock.now()

        def look(statuses: list[UpstreamStatus]) -> None:
            for status in filter(readiness.has_settled, statuses):
                seconds.setdefault(status.server, clock.now() - started)

        longest = max((settings.effective(name).start_timeout for name in settings.servers), default=0)
        await waiting.settle(hub.app.hub, longest + _SPARE if patience is None else patience, look)
    return seconds


def _diagnosis(own: ServerInfo, loaded: Loaded | None, seconds: float | None) -> Diagnosis:
    """The verdict, with the program of a server that our configuration has."""
    diagnosis = structs.replace(diagnose(own), seconds=seconds, places=_places(own.server, loaded))
    server = None if loaded is None else loaded.settings.servers.get(own.server)
    if loaded is None or server is None:
        return diagnosis
    try:
        program = find_program(server, os.environ, str(loaded.path.absolute().parent))
        return structs.replace(diagnosis, program=program, variables=_variables(diagnosis, server, os.environ))
    except StartFailed as missing:
        verdict = diagnosis.about(missing.brief) if diagnosis.code == missing.code else diagnosis
        return structs.replace(verdict, searched=missing.searched)


def _places(server: str, loaded: Loaded | None) -> tuple[str, ...]:
    """The places of the configuration that keep the server from starting; those behind the first with their reasons."""
    findings = () if loaded is None else loaded.failures.get(server, ())
    places = (f"{finding.file}:{finding.line}: {finding.path}" for finding in findings)
    reasons = ("", *(f": {finding.message}" for finding in findings[1:]))
    return tuple(map("".join, zip(places, reasons, strict=False)))


def _searched(folders: Sequence[str]) -> list[str]:
    """The folders without the program that exist, wrapped, and the number of those that do not."""
    if not folders:
        return []
    home = str(Path.home())
    there = [
        f"~{folder.removeprefix(home)}" if folder.startswith(f"{home}/") else folder
        for folder in folders
        if os.path.isdir(folder)
    ]
    absent = len(folders) - len(there)
    listed = [*there, *([f"{absent} that do not exist"] if absent else [])]
    return wrap(", ".join(listed), _WIDTH, initial_indent="  searched: ", subsequent_indent=" " * 12,
                break_long_words=False, break_on_hyphens=False)  # fmt: skip


def _variables(diagnosis: Diagnosis, server: ServerSettings, env: Mapping[str, str]) -> tuple[str, ...]:
    """The variables of this shell that a server with a problem may lack."""
    if diagnosis.is_ok or server.command is None:
        return ()
    output = "\n".join([diagnosis.problem, *diagnosis.lines])
    return tuple(proposed_variables(server.command, server.args, [*server.env, *server.pass_env], env, output))


def _data(one: Diagnosis) -> JsonObject:
    """One server as `--json` shows it."""
    status = one.status
    return {
        "server": status.server,
        "code": one.code,
        "ok": one.is_ok,
        "problem": hide(one.problem),
        "advice": "" if one.is_ok else hide(one.advice),
        "fix": "" if one.is_ok else one.fix,
        "state": status.state.value,
        "command": hide(one.program) if one.program else None,
        "era": status.era.value if status.era else None,
        "version": status.version,
        "seconds": None if one.seconds is None else round(one.seconds, 3),
        "searched": [*one.searched],
        "pass_env": [*one.variables],
        "output": [hide(line) for line in one.lines],
    }


def _lines(one: Diagnosis) -> list[tuple[str, str]]:
    """One server for people: lines and their styles."""
    is_on = one.code != "disabled"
    style = "red" if not one.is_ok else "green" if is_on else "dim"
    about = [tables.protocol(one.status)] if one.status.era else []
    if one.seconds is not None and is_on:
        about.append(f"{one.seconds:.1f} s")
    lines = [(", ".join([f"{one.status.server}: {one.code}", *about]), style)]
    if one.program and is_on:
        label = "url:    " if one.program.startswith("http") else "command:"
        lines.append((f"  {label} {one.program}", ""))
    if not one.is_ok:
        lines += [(f"  problem: {one.problem}", ""), *((f"  at:      {location}", "") for location in one.places)]
        lines.append((f"  fix:     {one.advice or one.fix}", "bold"))
        if names := ", ".join(one.variables):
            lines.append(
                (f"  hint:    It does not get {names} of this shell. If it needs them: pass_env: [{names}]", "")
            )
        lines += [(text, "dim") for text in _searched(one.searched)]
        lines += [(f"  | {line}", "dim") for line in one.lines]
    return [(visible(hide(text)), style) for text, style in lines]
