"""`mcp-hub doctor`: the verdict about each server, its problem and its fix."""

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Final

import click
import msgspec
from msgspec import UNSET, structs

from mcp_hub.app.upstream_factory import find_program
from mcp_hub.attach.serve import how_to_share, why_alone
from mcp_hub.cli import completion
from mcp_hub.cli.access import waiting
from mcp_hub.cli.access.hub import Reach, ReachedHub, own_wait_options, run_with_hub
from mcp_hub.cli.commands.repairs import Repair, by_hand, found_repairs, missing_parts
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.servers import notices, project_warnings, status_of, waiting_edits
from mcp_hub.cli.render.tables import last_lines, reason
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, Seconds, config_path
from mcp_hub.clock import SystemClock
from mcp_hub.codes.tables import CODES
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.errors import ConfigError, StartFailed
from mcp_hub.masking import hide, visible
from mcp_hub.protocol.rest.servers import ServerInfo
from mcp_hub.types import JsonObject, UpstreamState, UpstreamStatus, has_settled
from mcp_hub.upstreams.process.commands import package_problem, proposed_variables

_SENTENCE: Final = re.compile(r"(?<=[.!?]) +(?=[A-Z])")
_VERBS: Final = frozenset({advice.fix.split()[0] for advice in CODES.values()} | {"Did", "Decorate"})
"""The words with which advice begins."""
_NO_ADVICE: Final = re.compile(r"Read (?!its|the|what)|(List|Call|Log|Name|Report) (is|was|has|of|not|to)\b")
"""Errors of servers begin with them, too: "Read timed out"."""
_INLINE: Final = re.compile(r': ((?:run|set) "[^()]*?")(?= \(HTTP|$)')
"""Advice within a sentence of the hub: `requires a login: run "mcp-hub login team" (HTTP 401)`."""
_OF_NEWER_HUBS: Final = CODES["start_failed"]
"""The advice for a code of a newer hub at --url."""
_WIDTH: Final = 100
"""Characters of a line of folders."""
_SPARE: Final = 5.0
"""Seconds beyond the longest `start_timeout`, to read the last lines of a server."""


class _Diagnosis(msgspec.Struct, frozen=True):
    """A code, a problem and the last lines of one server.

    `program`: its command or URL. `seconds`: until it settled, or None.
    """

    status: UpstreamStatus
    code: str
    problem: str = ""
    lines: tuple[str, ...] = ()
    program: str | None = None
    seconds: float | None = None
    searched: tuple[str, ...] = ()
    """Folders without the program."""
    variables: tuple[str, ...] = ()
    """Variables of this shell that the server may lack: for `pass_env`."""
    places: tuple[str, ...] = ()
    """Places in the configuration, each with what is wrong there."""
    advice: str = ""
    """The steps that the message of the failure names; empty for those of its code."""

    @property
    def is_ok(self) -> bool:
        return self.status.rests or self.code in ("ok", "disabled")

    @property
    def fix(self) -> str:
        if (missing := package_problem("\n".join(self.lines))) is not None:
            return f"{missing}: check its name in `args`."
        return CODES.get(self.code, _OF_NEWER_HUBS).fix_of(self.status.server)

    def with_message(self, message: str) -> "_Diagnosis":
        problem, advice = told_apart(message)
        return msgspec.structs.replace(self, problem=problem, advice=advice)


def told_apart(message: str) -> tuple[str, str]:
    """The facts and the advice in a message."""
    first, *sentences = _SENTENCE.split(message)
    advice = [
        sentence
        for sentence in sentences
        if sentence.split(" ")[0].rstrip(",:") in _VERBS and _NO_ADVICE.match(sentence) is None
    ]
    problem = " ".join([first, *(sentence for sentence in sentences if sentence not in advice)])
    if (inline := _INLINE.search(problem)) is not None:
        problem = problem[: inline.start()] + problem[inline.end() :]
        advice.append(f"{inline[1][0].upper()}{inline[1][1:]}.")
    return problem, " ".join(advice)


def diagnose(server: ServerInfo) -> _Diagnosis:
    """The verdict from a server's state and lists."""
    status = status_of(server)
    match status.state:
        case UpstreamState.DISABLED:
            return _Diagnosis(status, "disabled")
        case UpstreamState.READY:
            return _Diagnosis(status, *_of_lists(server))
        case UpstreamState.STARTING if status.reason is None:
            return _Diagnosis(status, "start_timeout", "It is still starting.", tuple(last_lines(status)))
        case _:
            diagnosis = _Diagnosis(status, status.code or "start_failed", lines=tuple(last_lines(status)))
            return diagnosis.with_message(reason(status))


def _of_lists(server: ServerInfo) -> tuple[str, str]:
    if server.quarantined:
        return "definitions_quarantined", "; ".join(server.warnings[-server.quarantined :])
    if server.unsteady:
        return "lists_unsteady", "; ".join(server.unsteady)
    if not any(server.entries.values()):
        return "no_tools", "It lists nothing at all."
    if server.offered is not UNSET and not any(server.offered.values()):
        return "all_filtered", "The filters of the configuration hide everything it lists."
    return "ok", ""


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

    Asks the running hub, or starts the servers. Checks all servers, or only those named. Exit code 3 if a server has a
    problem.
    """

    def chosen(loaded: Loaded) -> Loaded:
        return _only(loaded, servers)

    repairs = [] if reach.url is not None else _repaired(config_path(reach.config), fixes)
    run_with_hub(
        reach, lambda hub: _doctor(hub, servers, patience, as_json, repairs), servers=servers, start=chosen,
        operates=True, lists_servers=True,
    )  # fmt: skip


def _repaired(path: Path, fixes: bool) -> list[tuple[Repair, str]]:
    """Problems beside the servers, each with "fixed", "" or the reason of a failed fix."""
    missing = [(repair, "") for repair in missing_parts(path, os.environ)]
    repairs = list(found_repairs(path, os.environ))
    if not fixes:
        return [*((repair, "") for repair in repairs), *missing]
    outcomes: list[tuple[Repair, str]] = []
    with redirect_stdout(sys.stderr):  # where --json prints its document, nothing else is printed
        for repair in repairs:
            for line in (repair.problem, *(f"  {line}" for line in repair.diff)):
                say(hide(line))
            try:
                repair.apply()
                outcomes.append((repair, "fixed"))
            except (ConfigError, OSError) as problem:
                outcomes.append((repair, str(problem)))
            say(hide(f"  {outcomes[-1][1]}"))
    return [*outcomes, *missing]


def _only(loaded: Loaded, names: Collection[str]) -> Loaded:
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
    listed, outdated = await hub.listed()
    servers = [server for server in listed.servers if not names or server.server in names]
    diagnoses = [_diagnosis(server, hub.loaded, seconds.get(server.server)) for server in servers]
    repairs = [
        (repair, outcome)
        for repair, outcome in repairs
        if not any(_has_path(diagnosis, repair) for diagnosis in diagnoses)
    ]
    repairs += [(structs.replace(by_hand(finding.code, finding.message), is_problem=True), "") for finding in outdated]
    warnings = [*hub.unmatched(listed), *notices(servers, ends=hub.app is not None)]
    if hub.loaded is not None:
        warnings += [*project_warnings(hub.loaded.settings), *waiting_edits(hub.loaded.path, names)]
    wrong = sum(not diagnosis.is_ok for diagnosis in diagnoses)
    if as_json:
        around = [_repair_data(repair, outcome) for repair, outcome in repairs]
        tables.print_json({"servers": [*map(_data, diagnoses)], "around": around, "warnings": [*map(str, warnings)]})
    else:
        for diagnosis in diagnoses:
            tables.print_lines(_lines(diagnosis))
        counted = tables.plural(len(diagnoses), "server")
        put(f"{counted}, {wrong} with a problem" if wrong else f"{counted}, all fine")
        if hub.loaded is not None and (why := why_alone(hub.loaded.place, os.environ)):
            say(f"Each client of this shell has a hub of its own, because {why}{how_to_share(why)}")
        for repair, outcome in repairs:
            tables.print_lines(_repair_lines(repair, outcome))
        tables.print_warnings(warnings)
    is_left = any(repair.is_problem and outcome != "fixed" for repair, outcome in repairs)
    return EXIT_UNAVAILABLE if wrong or is_left else 0


def _has_path(diagnosis: _Diagnosis, repair: Repair) -> bool:
    is_about = not diagnosis.is_ok and bool(repair.path) and diagnosis.status.server == repair.server
    return is_about and any(repair.path in text for text in (diagnosis.problem, *diagnosis.places))


def _repair_data(repair: Repair, outcome: str) -> JsonObject:
    problem, advice = told_apart(repair.problem)
    fix = "" if outcome == "fixed" else CODES[repair.code].fix
    diff = [hide(line) for line in repair.diff]
    fields = {"code": repair.code, "problem": hide(problem), "advice": hide(advice), "diff": diff}
    return {**fields, "fixed": outcome == "fixed", "reason": hide(outcome) if fix and outcome else None, "fix": fix}


def _repair_lines(repair: Repair, outcome: str) -> list[tuple[str, str]]:
    if outcome == "fixed":
        return []
    problem, advice = told_apart(repair.problem)
    lines = [(f"{repair.code}: {problem}", "red" if repair.is_problem else "yellow")]
    if outcome:
        lines.append((f"  problem: {outcome}", ""))
    lines.append((f"  fix:     {advice or CODES[repair.code].fix}", "bold"))
    return [(visible(hide(text)), style) for text, style in lines]


async def _settled(hub: ReachedHub, patience: float | None) -> Mapping[str, float]:
    seconds = dict[str, float]()
    if hub.app is not None:
        clock, settings = SystemClock(), hub.app.settings
        started = clock.now()

        def look(statuses: list[UpstreamStatus]) -> None:
            for status in filter(has_settled, statuses):
                seconds.setdefault(status.server, clock.now() - started)

        longest = max((settings.effective(name).start_timeout for name in settings.servers), default=0)
        await waiting.settle(hub.app.hub, longest + _SPARE if patience is None else patience, look)
    return seconds


def _diagnosis(info: ServerInfo, loaded: Loaded | None, seconds: float | None) -> _Diagnosis:
    diagnosis = structs.replace(diagnose(info), seconds=seconds, places=_places(info.server, loaded))
    server = None if loaded is None else loaded.settings.servers.get(info.server)
    if loaded is None or server is None:
        return diagnosis
    try:
        program = find_program(server, os.environ, str(loaded.path.absolute().parent))
        return structs.replace(diagnosis, program=program, variables=_variables(diagnosis, server, os.environ))
    except StartFailed as missing:
        verdict = diagnosis.with_message(missing.brief) if diagnosis.code == missing.code else diagnosis
        return structs.replace(verdict, searched=missing.searched)


def _places(server: str, loaded: Loaded | None) -> tuple[str, ...]:
    """The places that keep the server from starting; all but the first with a reason."""
    findings = () if loaded is None else loaded.failures.get(server, ())
    places = (f"{finding.file}:{finding.line}: {finding.path}" for finding in findings)
    reasons = ("", *(f": {finding.message}" for finding in findings[1:]))
    return tuple(map("".join, zip(places, reasons, strict=False)))


def _searched(folders: Sequence[str]) -> list[str]:
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


def _variables(diagnosis: _Diagnosis, server: ServerSettings, env: Mapping[str, str]) -> tuple[str, ...]:
    if diagnosis.is_ok or server.command is None:
        return ()
    output = "\n".join([diagnosis.problem, *diagnosis.lines])
    return tuple(proposed_variables(server.command, server.args, [*server.env, *server.pass_env], env, output))


def _data(diagnosis: _Diagnosis) -> JsonObject:
    status = diagnosis.status
    return {
        "server": status.server,
        "code": diagnosis.code,
        "ok": diagnosis.is_ok,
        "problem": hide(diagnosis.problem),
        "advice": "" if diagnosis.is_ok else hide(diagnosis.advice),
        "fix": "" if diagnosis.is_ok else diagnosis.fix,
        "state": status.state.value,
        "command": hide(diagnosis.program) if diagnosis.program else None,
        "era": status.era.value if status.era else None,
        "version": status.version,
        "seconds": None if diagnosis.seconds is None else round(diagnosis.seconds, 3),
        "searched": [*diagnosis.searched],
        "pass_env": [*diagnosis.variables],
        "output": [hide(line) for line in diagnosis.lines],
    }


def _lines(diagnosis: _Diagnosis) -> list[tuple[str, str]]:
    is_on = diagnosis.code != "disabled"
    style = "red" if not diagnosis.is_ok else "green" if is_on else "dim"
    heading = [tables.protocol(diagnosis.status)] if diagnosis.status.era else []
    if diagnosis.seconds is not None and is_on:
        heading.append(f"{diagnosis.seconds:.1f} s")
    lines = [(", ".join([f"{diagnosis.status.server}: {diagnosis.code}", *heading]), style)]
    if diagnosis.program and is_on:
        label = "url:    " if diagnosis.program.startswith("http") else "command:"
        lines.append((f"  {label} {diagnosis.program}", ""))
    if not diagnosis.is_ok:
        lines += [
            (f"  problem: {diagnosis.problem}", ""),
            *((f"  at:      {location}", "") for location in diagnosis.places),
        ]
        lines.append((f"  fix:     {diagnosis.advice or diagnosis.fix}", "bold"))
        if names := ", ".join(diagnosis.variables):
            lines.append(
                (f"  hint:    It does not get {names} of this shell. If it needs them: pass_env: [{names}]", "")
            )
        lines += [(text, "dim") for text in _searched(diagnosis.searched)]
        lines += [(f"  | {line}", "dim") for line in diagnosis.lines]
    return [(visible(hide(text)), style) for text, style in lines]
