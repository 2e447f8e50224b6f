"""`mcp-hub status` and `stop`: the running hubs of a configuration."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click
import msgspec

from mcp_hub import __version__
from mcp_hub.attach.folder import different_variables, variables_of
from mcp_hub.attach.hello import is_newer
from mcp_hub.attach.serve import how_to_share, why_alone
from mcp_hub.cli.access import waiting
from mcp_hub.cli.access.hub import Reach, run_with_client
from mcp_hub.cli.access.running import HubRecord, end_hub, hubs_of, use_of
from mcp_hub.cli.commands.running.paths import HubPath, path_lines, shown_paths
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.results import with_code
from mcp_hub.cli.render.servers import project_warnings, waiting_edits
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, config_option, fail, fail_with
from mcp_hub.clock import wall_time
from mcp_hub.errors import ConfigError, ConfigFinding, RpcError
from mcp_hub.masking import hide, visible
from mcp_hub.protocol.rest.overview import ClientSummary
from mcp_hub.protocol.rest.servers import ServerInfo
from mcp_hub.types import JsonObject

if TYPE_CHECKING:
    from mcp_hub.client import HubClient
    from mcp_hub.sessions.clients import HubUse, PresentClient

_MOST_CLIENTS = 40
"""Clients of a hub over HTTP that are listed."""
_GIVEN_UP = ("failed", "incompatible")


class _HubReport(msgspec.Struct, frozen=True):
    """The hubs of a configuration, and the servers of the one that commands ask.

    By folder: `variables`, `uses` (None: unknown), and `apart`, the variables that differ from the youngest hub.
    `alone`: why clients share none.
    """

    config: str
    hubs: Sequence[HubRecord]
    servers: Sequence[ServerInfo] = ()
    problem: str = ""
    variables: Mapping[str, Mapping[str, bool]] = {}
    paths: Sequence[HubPath] = ()
    alone: str = ""
    uses: "Mapping[str, HubUse | None]" = {}
    apart: Mapping[str, Sequence[str]] = {}
    clients: Sequence[ClientSummary] = ()
    warnings: Sequence[ConfigFinding] = ()


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def status(as_json: bool, config: str | None) -> None:
    """Show the running hubs of the configuration.

    Shows address, process, version and uptime of each hub, and the states of the servers of one that is not a single
    client's. Without a configuration, all hubs of this user. Exit code 3 if none runs.
    """
    try:
        config_place, hubs = hubs_of(config)
        paths = shown_paths(config, os.environ)
    except ConfigError as error:
        fail_with(error)
    scopes = {hub.folder: variables_of(hub.folder, os.environ) for hub in hubs if hub.folder}
    places = [config_place] if config_place else dict.fromkeys(hub.config for hub in hubs if hub.config)
    warnings = [*project_warnings(None), *(edit for config_path in places for edit in waiting_edits(Path(config_path)))]
    if not as_json:
        tables.print_warnings(warnings)
    uses = {folder: use_of(folder) for folder in scopes}
    report = _HubReport(
        config_place, hubs, variables=scopes, paths=paths, alone=why_alone(config_place, os.environ), uses=uses,
        apart=_apart(hubs), warnings=warnings,
    )  # fmt: skip
    if config_place and any(hub.endpoint for hub in hubs):
        reach = Reach(None, None, config)
        run_with_client(reach, lambda client: _ask(client, report, as_json), operates=True)
    raise SystemExit(_print(report, as_json))


def _apart(hubs: Sequence[HubRecord]) -> dict[str, list[str]]:
    first: dict[str, str] = {}
    return {
        hub.folder: different_variables(hub.folder, youngest)
        for hub in hubs
        if hub.folder and (youngest := first.setdefault(hub.config, hub.folder)) != hub.folder
    }


async def _ask(client: "HubClient", report: _HubReport, as_json: bool) -> int:
    try:
        listed, outdated = await waiting.file_read(client.lists.servers, report.config)
        if not as_json:
            tables.print_warnings(outdated)
        report = msgspec.structs.replace(report, servers=listed.servers, warnings=[*report.warnings, *outdated])
        clients = await client.lists.clients() if any(hub.url for hub in report.hubs) else []
        return _print(msgspec.structs.replace(report, clients=clients), as_json)
    except (RpcError, ConfigError) as problem:
        message = with_code(problem) if isinstance(problem, RpcError) else str(problem)
        return _print(msgspec.structs.replace(report, problem=message), as_json)


def _print(report: _HubReport, as_json: bool) -> int:
    if as_json:
        tables.print_json(report_data(report, wall_time()))
    else:
        tables.print_lines(report_lines(report, wall_time()))
    return 0 if report.hubs else EXIT_UNAVAILABLE


def report_data(report: _HubReport, now: float) -> JsonObject:
    """The report for `--json`."""
    hubs = [
        {
            "transport": "http" if hub.url else "background" if hub.folder else "stdio",
            "url": hub.url or None,
            "pid": hub.pid,
            "version": hub.version,
            "started": datetime.fromtimestamp(hub.started, UTC).isoformat(timespec="seconds"),
            "uptime": round(max(0.0, now - hub.started)),
            "client": hub.client or None,
            "folder": hub.folder or None,
            "config": hub.config or report.config or None,
            "variables": report.variables.get(hub.folder),
            "clients": _clients_over_http(report)
            if _is_asked(hub, report)
            else _clients_data(report.uses.get(hub.folder)),
            "ends": _ends_data(report.uses.get(hub.folder)),
            "apart": report.apart.get(hub.folder),
            "alone": hide(hub.alone) or None,
        }
        for hub in report.hubs
    ]
    states = [
        {"server": server.server, "state": server.state, "code": server.code or None}
        | ({"refused": server.sandbox.refused} if server.sandbox else {})
        | ({"given_up": server.given_up} if server.given_up else {})
        for server in report.servers
    ]
    problem = hide(report.problem) or None
    return {"running": bool(hubs), "config": report.config or None, "hubs": hubs, "servers": states, "problem": problem,
            "alone": report.alone or None, "paths": {path.name: str(path.path) for path in report.paths},
            "warnings": [*map(str, report.warnings)]}  # fmt: skip


def _clients_data(use: "HubUse | None") -> list[JsonObject] | None:
    if use is None:
        return None
    return [
        {
            "name": hide(client.name) or None,
            "version": hide(client.version) or None,
            "kind": client.kind or None,
            "era": client.era or None,
            "process": client.pid,
            "build": client.build,
            "since": datetime.fromtimestamp(client.since, UTC).isoformat(timespec="seconds"),
            "calls": client.calls,
        }
        for client in use.clients
    ]


def _is_asked(hub: HubRecord, report: _HubReport) -> bool:
    return bool(report.clients) and hub is next((candidate for candidate in report.hubs if candidate.url), None)


def _clients_over_http(report: _HubReport) -> list[JsonObject]:
    return [
        {
            "name": hide(client.name) or None,
            "version": hide(client.version) or None,
            "era": client.era.value,
            "principal": client.principal,
            "connected": client.connected,
            "since": datetime.fromtimestamp(client.first, UTC).isoformat(timespec="seconds"),
            "calls": client.calls,
        }
        for client in report.clients
    ]


def _http_clients(hub: HubRecord, report: _HubReport, now: float) -> list[tuple[str, str]]:
    if not _is_asked(hub, report):
        return []
    present = [client for client in report.clients if client.connected is not False]
    rows = []
    for client in present[:_MOST_CLIENTS]:
        name = " ".join(filter(None, (client.name, client.version))) or "a client that has not said its name"
        era = f"{client.era.value}{', by request' if client.connected is None else ''}"
        rows.append(f"{name}, {era}, for {tables.age(client.first, now)}, {tables.plural(client.calls, 'call')}")
    if more := len(present) - len(rows):
        rows.append(f"{more} more")
    heads = ["  clients: ", *["           "] * len(rows)]
    return [(f"{head}{text}", "") for head, text in zip(heads, rows, strict=False)]


def _ends_data(use: "HubUse | None") -> JsonObject | None:
    if use is None:
        return None
    return {"idle": use.idle, "left": use.left, "calls": use.calls, "connections": use.connections}


def _client(client: "PresentClient") -> str:
    name = " ".join(filter(None, (client.name, client.version))) or "a client that has not said its name"
    kind = f" ({client.kind})" if client.kind else ""
    return f"{name}{kind}{f', {client.era}' if client.era else ''}, process {client.pid}"


def _use(hub: HubRecord, report: _HubReport, now: float) -> list[tuple[str, str]]:
    if hub.folder not in report.uses:
        return []
    use = report.uses[hub.folder]
    if use is None:
        return [("  clients: unknown: this hub does not say", "yellow")]
    rows = [
        (f"{_client(client)}, for {tables.age(client.since, now)}, {tables.plural(client.calls, 'call')}", "")
        for client in use.clients
    ]
    if more := use.many - len(use.clients):
        rows.append((f"{more} more", ""))
    heads = ["  clients: ", *["           "] * len(rows)]
    lines = [(f"{head}{text}", style) for head, (text, style) in zip(heads, rows or [("none", "")], strict=False)]
    if is_newer(__version__, hub.version) and use.left is None:
        keep = ", ".join(map(_client, use.clients)) or tables.plural(use.calls, "running call")
        advice = (
            f"Restart {'it' if use.many < 2 else 'them'}, or run mcp-hub stop" if use.many else "It ends after that"
        )
        until = f"until then clients of version {__version__} share another hub"
        lines.append((f"  older:   kept by {keep}. {advice}; {until}", "yellow"))
    return [*lines, (f"  ends:    {_end(use)}", "")]


def _end(use: "HubUse") -> str:
    if use.left is not None:
        return f"in {_span(use.left)}, unless a client comes"
    parts = [
        tables.plural(number, noun) for number, noun in ((use.many, "client"), (use.calls, "running call")) if number
    ]
    if use.connections and not parts:
        parts.append(tables.plural(use.connections, "connection"))
    return f"{_span(use.idle)} after the last client and call; {' and '.join(parts) or 'a client'} now"


def _span(seconds: float) -> str:
    return tables.age(0.0, seconds)


def _differs(hub: HubRecord, report: _HubReport) -> list[tuple[str, str]]:
    names = report.apart.get(hub.folder)
    if names is None:
        return []
    youngest = next(candidate for candidate in report.hubs if candidate.folder and candidate.config == hub.config)
    if names:
        why = f"other values of {', '.join(names)}"
    elif hub.version != youngest.version:
        why = f"its version is {hub.version}, and that one's {youngest.version}"
    else:
        why = "one was started while a hub of an older version was in use"
    return [(f"  apart:   from process {youngest.pid}: {why}", "yellow")]


def _other_version(hub: HubRecord) -> str:
    return f" (this program: {__version__})" if hub.folder and hub.version != __version__ else ""


def _variables(scope: Mapping[str, bool]) -> list[tuple[str, str]]:
    different = [name for name, is_equal in scope.items() if not is_equal]
    lines = [(f"  variables: {', '.join(scope)}", "")] if scope else []
    if different:
        lines.append((f"  clients of this shell have another hub: other values of {', '.join(different)}", "yellow"))
    return lines


def report_lines(report: _HubReport, now: float) -> list[tuple[str, str]]:
    """The report for people, with styles."""
    if not report.hubs:
        who = f" for {report.config}" if report.config else ""
        return [(visible(f"No hub runs{who}. {_starters(report)}"), "yellow"), *_alone(report), *_paths(report)]
    lines: list[tuple[str, str]] = []
    for hub in report.hubs:
        who = f" for {hub.client}" if hub.client else ""
        location = (
            f"at {hub.url}" if hub.url else f"in the background ({hub.folder})" if hub.folder else f"over stdio{who}"
        )
        lines += [
            (f"running {location}", "green"),
            (
                f"  process: {hub.pid}, for {tables.age(hub.started, now)}, version {hub.version}{_other_version(hub)}",
                "",
            ),
            *([(f"  alone:   {hub.alone}", "")] if hub.alone else []),
            *_variables(report.variables.get(hub.folder, {})),
            *_differs(hub, report),
            *_use(hub, report, now),
            *_http_clients(hub, report, now),
        ]
        if not report.config:
            advice = ". End it with: mcp-hub stop" if hub.folder else ""
            gone = "" if os.path.lexists(hub.config) else f", which is gone{advice}"
            lines.append((f"  config:  {hub.config}{gone}", ""))
    if report.config:
        lines.append((f"config:  {report.config}", ""))
    lines += _servers(report)
    return [*((visible(hide(text)), style) for text, style in lines), *_alone(report), *_paths(report)]


def _starters(report: _HubReport) -> str:
    """The ways to start a hub."""
    if report.config and not report.alone:
        lasting = "mcp-hub service install or mcp-hub serve --http"
        return f"The next client starts one, and so does mcp-hub open. For one that stays: {lasting}."
    if report.config and how_to_share(report.alone):
        return "Start one with mcp-hub open, or over HTTP with mcp-hub serve --http."
    return "Start one with mcp-hub serve --http, or in the background with mcp-hub service install."


def _servers(report: _HubReport) -> list[tuple[str, str]]:
    if report.problem:
        return [(f"servers: unknown: {report.problem}", "yellow")]
    if not report.servers:
        return []
    counted = Counter(server.state for server in report.servers)
    return [
        (f"servers: {', '.join(f'{number} {state}' for state, number in counted.items())}", ""),
        *(
            (f"  {server.server}: {server.state} [{server.code}]. Run mcp-hub doctor {quote(server.server)}", "red")
            for server in report.servers
            if server.state in _GIVEN_UP
        ),
        *(
            (f"  {server.server}: its sandbox refused {tables.plural(refused, 'attempt')}. "
             f"Run mcp-hub sandbox {quote(server.server)}", "yellow")
            for server in report.servers
            if server.sandbox and (refused := server.sandbox.refused)
        ),
        *(
            (f"  {server.server}: {tables.plural(server.given_up, 'message')} about its events reached no webhook and "
             f"{'was' if server.given_up == 1 else 'were'} given up", "yellow")
            for server in report.servers
            if server.given_up
        ),
    ]  # fmt: skip


def _alone(report: _HubReport) -> list[tuple[str, str]]:
    runs = any(hub.folder for hub in report.hubs)
    who = "clients of this shell do not join the background hub: each" if runs else "clients: each"
    why = f"{report.alone}{how_to_share(report.alone)}"
    return [(f"{who} has a hub of its own, because {why}", "")] if report.alone and report.config else []


def _paths(report: _HubReport) -> list[tuple[str, str]]:
    return path_lines([item for item in report.paths if item.name != "configuration"]) if report.paths else []


@click.command()
@config_option
def stop(config: str | None) -> None:
    """Stop the background hub of the configuration.

    Its servers end, and running calls get an error. Connected clients start another hub when they need it. A hub over
    HTTP ends with its own process or service. Without a configuration: the hubs whose file was removed, else the only
    one that runs. Exit code 3 if none runs.
    """
    try:
        config_place, hubs = hubs_of(config)
    except ConfigError as error:
        fail_with(error)
    hubs = [hub for hub in hubs if hub.folder]
    if not config_place:
        hubs = [hub for hub in hubs if not os.path.lexists(hub.config)] or hubs
        places = dict.fromkeys(hub.config for hub in hubs)
        if len(places) > 1 and any(map(os.path.lexists, places)):
            listed = "".join(f"\n  mcp-hub stop --config {visible(path)}" for path in places)
            fail("usage", f"Hubs of several configurations run in the background. Name one:{listed}")
    if not hubs:
        message = (
            f"No hub runs in the background for {config_place}." if config_place else "No hub runs in the background."
        )
        fail("no_running_hub", visible(message), EXIT_UNAVAILABLE)
    for hub in hubs:
        end_hub(hub.folder)
    say(
        "stopped"
        if config_place
        else visible(f"stopped the hub of {', '.join(dict.fromkeys(hub.config for hub in hubs))}")
    )
