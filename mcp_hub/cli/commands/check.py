"""`mcp-hub check`: finds mistakes in a configuration."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

import anyio
import click
import msgspec
from msgspec import to_builtins

from mcp_hub.app import readiness
from mcp_hub.app.catalog_rules import view_rules
from mcp_hub.app.http import why_not_listen
from mcp_hub.app.limits import state_dir
from mcp_hub.app.start_folders import StartFolders
from mcp_hub.app.upstream_factory import failed_lookups, find_program
from mcp_hub.catalog.views.unmatched import has_patterns, untested
from mcp_hub.cli.access.hub import Reach, ReachedHub, check_options, run_with_hub
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.servers import (
    masked,
    notices,
    project_warnings,
    report_of,
    status_of,
    unmatched_patterns,
    waiting_edits,
)
from mcp_hub.cli.render.tables import plural
from mcp_hub.cli.setup import EXIT_CONFIG, read_config
from mcp_hub.code.tool import python_names
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.load.overrides import overrides_of
from mcp_hub.config.load.secrets import target_of
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError, ConfigFinding, StartFailed
from mcp_hub.masking import hide
from mcp_hub.protocol.rest.servers import ServerList
from mcp_hub.types import JsonObject, RawJson

_Findings = Sequence[ConfigFinding]
_READING: Final = 5.0
_LOOK: Final = 0.1
"""Seconds for a running hub to read a changed file, and between two looks."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--no-start", is_flag=True, help="Do not start servers to test patterns.")
@check_options
def check(as_json: bool, no_start: bool, reach: Reach) -> None:
    """Validate the configuration.

    Warns about patterns that match nothing: for that it asks the running hub, or starts the servers. Exit code 2 if the
    configuration is invalid; warnings do not change it.
    """
    try:
        loaded = _loaded(reach.config, runs_commands=not no_start)
    except ConfigError as exc:
        _print({"ok": False}, exc.findings, (), as_json)
        raise SystemExit(EXIT_CONFIG) from None
    programs, missing = _looked_up(loaded)
    around = [*project_warnings(loaded.settings), *waiting_edits(loaded.path)]
    warnings = [*map(masked, (*loaded.warnings, *loaded.notes, *missing)), *around]
    report = {"ok": True, **_summary(loaded, programs)}
    if no_start or not (_has_scripts(loaded) or has_patterns(view_rules(loaded.settings))):
        _print(report, (), [*warnings, *_script_findings(loaded.settings, os.environ)], as_json)
        return

    async def compared(hub: ReachedHub) -> int:
        await hub.settle()
        listed = await _listed(hub, loaded)
        if listed is None:
            text = "the running hub has not read this version of the file, so patterns and scripts were not checked. "
            text += "Run mcp-hub reload, or add --local."
            _print(report, (), [*warnings, ConfigFinding("hub_outdated", text)], as_json)
            return 0
        late = [status.server for status in readiness.not_ready(map(status_of, listed.servers))]
        rules, text = view_rules(loaded.settings), "did not start, so {} were not checked. Run: mcp-hub doctor {}"
        unknown = [
            ConfigFinding("server_not_ready", text.format(patterns, quote(name)), path=f"servers.{name}")
            for name in late
            if name in loaded.settings.servers and (patterns := untested(rules, name))
        ]
        unmatched, about_tools = unmatched_patterns(listed.unmatched, loaded), notices(listed.servers)
        about_tools += await _about_scripts(hub, loaded, late)
        _print(report, (), [*warnings, *unmatched, *about_tools, *unknown], as_json, late)
        return 0

    run_with_hub(reach, compared, loaded=loaded)


def _has_scripts(loaded: Loaded) -> bool:
    return any(server.enabled and server.scripts is not None for server in loaded.settings.servers.values())


async def _about_scripts(hub: ReachedHub, loaded: Loaded, late: Collection[str]) -> _Findings:
    """Names of tools that do not exist count once every server has listed its tools."""
    if not _has_scripts(loaded):
        return ()
    definitions = None if late else await hub.client.tools()
    return [*_script_findings(loaded.settings, os.environ, definitions)]


class _Named(msgspec.Struct):
    name: str


def _script_findings(
    settings: Settings, env: Mapping[str, str], definitions: Sequence[RawJson] | None = None
) -> Iterator[ConfigFinding]:
    """Findings about scripts of enabled servers. With all `definitions`: also names of tools that do not exist."""
    folders = [server.scripts for server in settings.servers.values() if server.enabled and server.scripts is not None]
    if not folders:
        return
    from mcp_hub.upstreams.scripts.source import findings_of, read_folder

    tools = None
    if definitions is not None:
        tools = set(python_names(msgspec.json.decode(raw, type=_Named).name for raw in definitions).values())
    for folder in folders:
        try:
            scripts = read_folder(folder, env, {})
        except OSError:
            continue  # it is a finding already that it cannot be read
        unknown = {
            name: [] if tools is None else [used for used in script.names if used not in tools]
            for name, script in scripts.items()
        }
        yield from findings_of(folder, scripts, unknown)


async def _listed(hub: ReachedHub, loaded: Loaded) -> ServerList | None:
    """The servers of a hub that has read the present file, None after a wait."""
    with anyio.move_on_after(_READING):
        while True:
            listed = await hub.client.lists.servers()
            if hub.app is not None or hub.loaded is None or loaded.stamp is None or listed.stamp == loaded.stamp.text:
                return listed
            await anyio.sleep(_LOOK)
    return None


def _loaded(config: str | None, *, runs_commands: bool) -> Loaded:
    """Raises `ConfigError`, with `runs_commands` also for each failed `${cmd:…}`."""
    loaded = read_config(config, lenient=False)
    if runs_commands:
        report, folder = report_of(loaded), str(loaded.path.absolute().parent)
        for path, reason in anyio.run(failed_lookups, loaded.settings, os.environ, folder).items():
            report.error(path, "lookup_failed", reason)
        if report.errors:
            raise report.failure()
    return loaded


def _looked_up(loaded: Loaded) -> tuple[dict[str, str], tuple[ConfigFinding, ...]]:
    report = report_of(loaded)
    if refusal := why_not_listen(loaded.settings, loaded.settings.hub.http.host):
        report.warn(("hub", "http", "host"), "public_without_tokens", f"`serve --http` would not start. {refusal}")
    programs: dict[str, str] = {}
    folder, starts = str(loaded.path.absolute().parent), StartFolders.of(Path(loaded.place), state_dir(os.environ))
    for name, server in loaded.settings.servers.items():
        if not server.enabled:
            continue
        if server.cwd is not None and "${client." not in server.cwd and not os.path.isdir(server.cwd):
            message = f"the working directory {server.cwd} does not exist. Create it, or correct cwd."
            report.warn(("servers", name, "cwd"), "cwd_not_found", message)
        try:
            program = find_program(server, os.environ, folder)
            programs[name] = hide(program)
            if server.command is not None and loaded.settings.effective(name).sandbox.mode != "off":
                from mcp_hub.app.attached.sandboxes import sandbox_findings

                for flaw in sandbox_findings(loaded.settings, name, os.environ, program, starts):
                    report.warn(("servers", name, flaw.key), flaw.code, flaw.message)
        except StartFailed as problem:
            key = _kind(server)
            report.warn(("servers", name, key), problem.code, str(problem))
    return programs, report.located(report.warnings)


def _summary(loaded: Loaded, programs: dict[str, str]) -> JsonObject:
    """Without arguments and environment, which may be secret."""
    settings = loaded.settings
    return {
        "file": str(loaded.path),
        "servers": {name: _server(loaded, name, programs.get(name)) for name in settings.servers},
        "overrides_file": str(overrides_of(loaded.path)) if loaded.overrides is not None else None,
        "profiles": list(settings.profiles),
        "http": f"http://{settings.hub.http.host}:{settings.hub.http.port}/mcp",
        "tokens": len(settings.hub.tokens),
    }


def _kind(server: ServerSettings) -> str:
    return next(key for key in ("command", "url", "local", "skills", "scripts") if getattr(server, key) is not None)


def _server(loaded: Loaded, name: str, program: str | None) -> JsonObject:
    """`overrides`: keys that change a tool. `failure`: the code of a start failure. `gets`: what an imported server
    takes from outside, `to`: its target.
    """
    server, cause = loaded.settings.servers[name], loaded.settings.failure(name)
    kind = _kind(server)
    overrides = {name: ["name"] for name in server.rename}
    for pattern, settings in server.per_tool.items():
        if changed := settings.changed():
            overrides[pattern] = [*overrides.get(pattern, []), *changed]
    sources = {"gets": [*loaded.sources.get(name, ())], "to": target_of(server.command, server.url)}
    return {
        **{"kind": kind, "enabled": server.enabled and cause is None, "runs": program, "overrides": overrides},
        **{"failure": None if cause is None else cause.code, **(sources if sources["gets"] and cause is None else {})},
    }


def _print(
    report: JsonObject, errors: _Findings, warnings: _Findings, as_json: bool, late: Collection[str] = ()
) -> None:
    report = {"ok": report["ok"], "errors": [*map(str, errors)], "warnings": [*map(str, warnings)], **report}
    if as_json:
        leveled = [*(("error", finding) for finding in errors), *(("warning", finding) for finding in warnings)]
        report["findings"] = [{"level": level, **to_builtins(finding)} for level, finding in leveled]
        tables.print_json(report)
        return
    for error in report["errors"]:
        say(error)
    tables.print_warnings(report["warnings"])
    if not report["ok"]:
        return
    servers = report["servers"]
    down = [name for name, server in servers.items() if server["failure"] or server["enabled"] and not server["runs"]]
    down += [name for name in late if name not in down]
    verdict, counted = f"valid, but {plural(len(down), 'server')} cannot start", _counted(report)
    put(f"{report['file']}: " + (f"{verdict} ({counted}). Run: mcp-hub doctor" if down else f"ok, {counted}"))
    if report["overrides_file"] is not None:
        put(f"  with {report['overrides_file']}, which the dashboard writes")
    for name, server in servers.items():
        put(f"  {name}: {_state(server)}")
        if server.get("gets"):
            put(f"    gets {', '.join(server['gets'])}: to {server['to']}")
        for pattern, changed in server["overrides"].items():
            put(f"    {pattern}: changed {', '.join(changed)}")


def _state(server: JsonObject) -> str:
    if server["failure"]:
        return f"failed [{server['failure']}]"
    return str(server["runs"] or "not found") if server["enabled"] else "disabled"


def _counted(report: JsonObject) -> str:
    changed = sum(len(server["overrides"]) for server in report["servers"].values())
    parts = [
        plural(len(report["servers"]), "server"),
        plural(len(report["profiles"]), "profile"),
        plural(report["tokens"], "token"),
        *([plural(changed, "override")] if changed else []),
        plural(len(report["warnings"]), "warning"),
    ]
    return ", ".join(parts)
