"""`mcp-hub check`: finds mistakes in a configuration. `policy test`: which of its rules decides about a call."""

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote

import anyio
import click
import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from mcp_hub.app.catalog_rules import view_rules
from mcp_hub.app.http import why_not_listen
from mcp_hub.app.readiness import StartFolders
from mcp_hub.app.upstream_factory import failed_lookups, find_program
from mcp_hub.call import LOCAL_PRINCIPAL
from mcp_hub.catalog.offers.filters import HINTS, HintClaims, Traits
from mcp_hub.catalog.offers.rules import UNCHANGED, find_override
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
from mcp_hub.cli.setup import EXIT_CONFIG, config_option, fail, load_config, read_config
from mcp_hub.code.tool import python_names
from mcp_hub.config.findings import nearest, quoted
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.load.secrets import target_of
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.trust import overrides_of, state_dir
from mcp_hub.errors import ConfigError, ConfigFinding, StartFailed
from mcp_hub.files import LARGEST_OWN
from mcp_hub.masking import hide
from mcp_hub.types import JsonObject, RawJson, not_ready

_Findings = Sequence[ConfigFinding]


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
        listed, outdated = await hub.listed()
        if outdated:
            text = "Patterns and scripts were not checked; with --local they are."
            reasons = [replace(finding, message=f"{finding.message} {text}") for finding in outdated]
            _print(report, (), [*warnings, *reasons], as_json)
            return 0
        late = [status.server for status in not_ready(map(status_of, listed.servers))]
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


class _Sample(msgspec.Struct, forbid_unknown_fields=True):
    """A call to judge. `tool`: the server's own name; `hints`: of its definition."""

    server: str
    tool: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    principal: str = LOCAL_PRINCIPAL
    profile: str | None = None
    client: str = ""
    claims: dict[str, object] = {}
    hints: dict[str, bool] = {}


class _Judged(msgspec.Struct):
    """The verdict of one gate: `passes`, `denied`, `asks`, or that it depends on something else."""

    gate: str
    verdict: str
    rule: str | None = None
    detail: str = ""


@click.group()
def policy() -> None:
    """Show which rule decides about a call."""


@policy.command()
@click.argument("file", metavar="CALL.json")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def test(file: str, as_json: bool, config: str | None) -> None:
    """Judge the call in CALL.json (`-`: stdin) by the rules of the configuration; nothing is called or started.

    \b
    {"server": "github", "tool": "delete_repo", "arguments": {"repo": "team/x"},
     "principal": "alice", "profile": null, "client": "cursor",
     "claims": {"groups": ["dev"]}, "hints": {"readOnlyHint": false}}

    Exit code 0 if the call may go or a person is asked, 1 if it is denied, 2 for a mistake in CALL.json.
    """
    settings = load_config(config).settings
    try:
        text = sys.stdin.read(LARGEST_OWN) if file == "-" else Path(file).read_text("utf-8")
        sample = msgspec.json.decode(text, type=_Sample)
    except OSError as problem:
        fail("invalid_call", f"CALL.json cannot be read: {problem.strerror}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        fail("invalid_call", f"CALL.json does not fit: {hide(str(problem))}")
    if sample.server not in settings.servers:
        fail("unknown_server", f"there is no server {quoted(sample.server)}{nearest(sample.server, settings.servers)}")
    if sample.profile is not None and sample.profile not in settings.profiles:
        fail(
            "unknown_profile",
            f"there is no profile {quoted(sample.profile)}{nearest(sample.profile, settings.profiles)}",
        )
    judged = list(_judged(settings, sample))
    if as_json:
        tables.print_json({"verdict": judged[-1].verdict, "rule": judged[-1].rule, "gates": to_builtins(judged)})
    else:
        for each in judged:
            by, detail = f" by {each.rule}" if each.rule else "", f": {each.detail}" if each.detail else ""
            put(f"{each.gate:<12}{each.verdict}{by}{detail}")
    raise SystemExit(judged[-1].verdict == "denied")


def _judged(settings: Settings, sample: _Sample) -> Iterator[_Judged]:
    """The verdicts in the order of the gates; the last one decides."""
    from mcp_hub.app.gates import ask_rules_of, judges_of
    from mcp_hub.calls.gates.asking import strictest
    from mcp_hub.calls.gates.conditions import facts_of, ruling

    traits = _traits(settings, sample)
    if (hidden := _hidden_by(settings, sample, traits)) is not None:
        yield _Judged("filters", "denied", hidden, "the tool is not offered, so that a call of it is unknown")
        return
    yield _Judged("filters", "passes")
    yield _Judged("approval", "not judged here", None, "see mcp-hub approve --list")
    values = {HINTS[name]: getattr(traits.hints, name) for name in HINTS}
    claims = msgspec.json.encode(sample.claims).decode() if sample.claims else ""
    facts = facts_of(sample.arguments, sample.principal, sample.client, claims=claims, hints=lambda: values)
    refusal = ruling(judges_of(settings, sample.server, sample.tool), facts)
    if refusal is not None:
        yield _Judged("conditions", "denied", *refusal)
        return
    yield _Judged("conditions", "passes")
    profiles = [] if sample.profile is None else [sample.profile]
    rules = ask_rules_of(settings, sample.server, sample.tool, profiles)
    asks = strictest(rules, facts, is_read_only=traits.hints.read_only)
    if asks is None:
        yield _Judged("ask", "passes")
        return
    frequency = "always" if asks.always else "once for these arguments in a session"
    whom = "people, and not the caller" if asks.by_person else "the caller, else people"
    yield _Judged("ask", "asks", asks.path, f"{frequency}, {whom}")


def _traits(settings: Settings, sample: _Sample) -> Traits:
    rules = view_rules(settings)[None].servers.get(sample.server)
    override, claims = UNCHANGED, HintClaims(**{name: sample.hints.get(wire) for name, wire in HINTS.items()})
    if rules is not None:
        override = find_override(rules.overrides, sample.tool)
        claims = claims if rules.hints == "trust" else HintClaims()
    return Traits(override.tags, claims.under(override.hints).hints())


def _hidden_by(settings: Settings, sample: _Sample, traits: Traits) -> str | None:
    """The setting that does not offer the tool to this profile."""
    view = view_rules(settings)[sample.profile]
    if (rules := view.servers.get(sample.server)) is None:
        return f"profiles.{sample.profile}.servers" if sample.profile else f"servers.{sample.server}.enabled"
    override = find_override(rules.overrides, sample.tool)
    new_name = override.name or rules.rename.get(sample.tool)
    exported = [new_name] if new_name else [sample.tool, f"{rules.prefix}_{sample.tool}"]
    if override.hide:
        return f'servers.{sample.server}.per_tool["{sample.tool}"].hide'
    if not rules.tools.admits(sample.tool, *exported, traits=traits):
        return f"servers.{sample.server}.tools"
    if not view.tools.admits(*exported, traits=traits):
        return f"profiles.{sample.profile}.tools"
    return None


def _has_scripts(loaded: Loaded) -> bool:
    return any(server.enabled and server.scripts is not None for server in loaded.settings.servers.values())


async def _about_scripts(hub: ReachedHub, loaded: Loaded, late: Collection[str]) -> _Findings:
    """Names of unknown tools count once every server has listed its tools."""
    if not _has_scripts(loaded):
        return ()
    definitions = None if late else await hub.client.tools()
    return [*_script_findings(loaded.settings, os.environ, definitions)]


class _Named(msgspec.Struct):
    name: str


def _script_findings(
    settings: Settings, env: Mapping[str, str], definitions: Sequence[RawJson] | None = None
) -> Iterator[ConfigFinding]:
    """Findings about scripts of enabled servers. With all `definitions`: also names of unknown tools."""
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


def _loaded(config: str | None, *, runs_commands: bool) -> Loaded:
    """Raises `ConfigError`, with `runs_commands` also for failed `${cmd:…}`."""
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
    """`overrides`: keys that change a tool. `failure`: code of a start failure. `gets`: taken from outside by an
    imported server; `to`: its target.
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
        **({"passthrough": server.passthrough} if server.passthrough else {}),
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
        if server.get("passthrough"):
            put(f"    lets through {', '.join(server['passthrough'])}, which the hub does not know")
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
