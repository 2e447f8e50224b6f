"""`mcp-hub status` and `stop`: whether a hub runs for the configuration, how it is, and its end."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING

import click
import msgspec

from mcp_hub import __version__
from mcp_hub.attach.folder import variables_of
from mcp_hub.attach.serve import why_alone
from mcp_hub.cli.access.background import end_hub, hubs_of
from mcp_hub.cli.access.hub import Reach, run_with_client
from mcp_hub.cli.access.running import HubRecord
from mcp_hub.cli.commands.running.paths import HubPath, path_lines, shown_paths
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.notices import project_warnings
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.results import with_code
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, config_option, fail, fail_with
from mcp_hub.clock import wall_time
from mcp_hub.errors import ConfigError, RpcError
from mcp_hub.masking import hide, visible
from mcp_hub.protocol.rest.servers import ServerInfo
from mcp_hub.types import JsonObject

if TYPE_CHECKING:
    from mcp_hub.client import HubClient

_GIVEN_UP = ("failed", "incompatible")


class HubReport(msgspec.Struct, frozen=True):
    """The hubs of the configuration at `place`, and the servers of the one that commands ask, or why not.

    `variables`: by folder of a background hub, as `attach.folder.variables_of`. `alone`: why clients of this shell do
    not share a hub.
    """

    place: str
    hubs: Sequence[HubRecord]
    servers: Sequence[ServerInfo] = ()
    problem: str = ""
    variables: Mapping[str, Mapping[str, bool]] = {}
    paths: Sequence[HubPath] = ()
    alone: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def status(as_json: bool, config: str | None) -> None:
    """Show the running hubs of the configuration.

    Shows address, process, version and uptime of hubs on this machine, over HTTP, stdio and in the background, and the
    states of the servers of one that is not a single client's; without a configuration, all hubs of this user. Exit
    code 3 if none runs.
    """
    try:
        place, hubs = hubs_of(config)
        paths = shown_paths(config, os.environ)
    except ConfigError as error:
        fail_with(error)
    scopes = {hub.folder: variables_of(hub.folder, os.environ) for hub in hubs if hub.folder}
    tables.print_warnings(project_warnings(None))
    report = HubReport(place, hubs, variables=scopes, paths=paths, alone=why_alone(place, os.environ))
    if place and os.path.isfile(place) and any(hub.endpoint for hub in hubs):
        reach = Reach(None, None, config)
        run_with_client(reach, lambda client: _ask(client, report, as_json), operates=True)
    raise SystemExit(_print(report, as_json))


async def _ask(client: "HubClient", report: HubReport, as_json: bool) -> int:
    try:
        return _print(msgspec.structs.replace(report, servers=await client.servers()), as_json)
    except (RpcError, ConfigError) as problem:
        said = with_code(problem) if isinstance(problem, RpcError) else str(problem)
        return _print(msgspec.structs.replace(report, problem=said), as_json)


def _print(found: HubReport, as_json: bool) -> int:
    if as_json:
        tables.print_json(report_data(found, wall_time()))
    else:
        tables.print_lines(report_lines(found, wall_time()))
    return 0 if found.hubs else EXIT_UNAVAILABLE


def report_data(found: HubReport, now: float) -> JsonObject:
    """The report as `--json` shows it."""
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
            "config": hub.place or found.place or None,
            "variables": found.variables.get(hub.folder),
            "alone": hide(hub.alone) or None,
        }
        for hub in found.hubs
    ]
    states = [
        {"server": own.server, "state": own.state, "code": own.code or None}
        | ({"refused": own.sandbox.refused} if own.sandbox else {})
        for own in found.servers
    ]
    problem = hide(found.problem) or None
    return {"running": bool(hubs), "config": found.place or None, "hubs": hubs, "servers": states, "problem": problem,
            "alone": found.alone or None, "paths": {one.name: str(one.path) for one in found.paths}}  # fmt: skip


def _other(hub: HubRecord) -> str:
    return f" (this program: {__version__})" if hub.folder and hub.version != __version__ else ""


def _variables(scope: Mapping[str, bool]) -> list[tuple[str, str]]:
    """The variables of a background hub's scope, and those because of which a client of this shell has another hub."""
    different = [name for name, is_equal in scope.items() if not is_equal]
    lines = [(f"  variables: {', '.join(scope)}", "")] if scope else []
    if different:
        lines.append((f"  clients of this shell have another hub: other values of {', '.join(different)}", "yellow"))
    return lines


def report_lines(found: HubReport, now: float) -> list[tuple[str, str]]:
    """The report for people: lines and their styles."""
    if not found.hubs:
        said = "Start one with mcp-hub serve --http, or in the background with mcp-hub service install."
        who = f" for {found.place}" if found.place else ""
        return [(visible(f"No hub runs{who}. {said}"), "yellow"), *_alone(found), *_paths(found)]
    lines: list[tuple[str, str]] = []
    for hub in found.hubs:
        who = f" for {hub.client}" if hub.client else ""
        how = f"at {hub.url}" if hub.url else f"in the background ({hub.folder})" if hub.folder else f"over stdio{who}"
        lines += [
            (f"running {how}", "green"),
            (f"  process: {hub.pid}, for {tables.age(hub.started, now)}, version {hub.version}{_other(hub)}", ""),
            *([(f"  alone:   {hub.alone}", "")] if hub.alone else []),
            *_variables(found.variables.get(hub.folder, {})),
        ]
        if not found.place:
            advice = ". End it with: mcp-hub stop" if hub.folder else ""
            gone = "" if os.path.lexists(hub.place) else f", which is gone{advice}"
            lines.append((f"  config:  {hub.place}{gone}", ""))
    if found.place:
        lines.append((f"config:  {found.place}", ""))
    if found.problem:
        lines.append((f"servers: unknown: {found.problem}", "yellow"))
    elif found.servers:
        counted = Counter(own.state for own in found.servers)
        lines.append((f"servers: {', '.join(f'{number} {state}' for state, number in counted.items())}", ""))
        lines += [
            (f"  {own.server}: {own.state} [{own.code}]. Run mcp-hub doctor {quote(own.server)}", "red")
            for own in found.servers
            if own.state in _GIVEN_UP
        ]
        lines += [
            (f"  {own.server}: its sandbox refused {tables.plural(refused, 'attempt')}. "
             f"Run mcp-hub sandbox {quote(own.server)}", "yellow")
            for own in found.servers
            if own.sandbox and (refused := own.sandbox.refused)
        ]  # fmt: skip
    return [*((visible(hide(text)), style) for text, style in lines), *_alone(found), *_paths(found)]


def _alone(found: HubReport) -> list[tuple[str, str]]:
    """Why clients of this shell do not share a hub."""
    runs = any(hub.folder for hub in found.hubs)
    who = "clients of this shell do not join the background hub: each" if runs else "clients: each"
    return [(f"{who} has a hub of its own, because {found.alone}", "")] if found.alone and found.place else []


def _paths(found: HubReport) -> list[tuple[str, str]]:
    """The folders of the hub, without the configuration, which stands above."""
    return path_lines([one for one in found.paths if one.name != "configuration"]) if found.paths else []


@click.command()
@config_option
def stop(config: str | None) -> None:
    """Stop the background hub of the configuration.

    Its servers end with it. Running calls get an error. Clients that are still connected start another one when they
    need it next. A hub over HTTP ends with its own process or service. Without a configuration: the hubs whose file
    was removed, else the only one that runs. Exit code 3 if none runs.
    """
    try:
        place, hubs = hubs_of(config)
    except ConfigError as error:
        fail_with(error)
    hubs = [hub for hub in hubs if hub.folder]
    if not place:
        hubs = [hub for hub in hubs if not os.path.lexists(hub.place)] or hubs
        places = dict.fromkeys(hub.place for hub in hubs)
        if len(places) > 1 and any(map(os.path.lexists, places)):
            listed = "".join(f"\n  mcp-hub stop --config {visible(one)}" for one in places)
            fail("usage", f"Hubs of several configurations run in the background. Name one:{listed}")
    if not hubs:
        said = f"No hub runs in the background for {place}." if place else "No hub runs in the background."
        fail("no_running_hub", visible(said), EXIT_UNAVAILABLE)
    for hub in hubs:
        end_hub(hub.folder)
    say("stopped" if place else visible(f"stopped the hub of {', '.join(dict.fromkeys(hub.place for hub in hubs))}"))
