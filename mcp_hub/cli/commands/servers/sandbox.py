"""`mcp-hub sandbox`. Paths of a learning run's proposal come from the server."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mcp_hub.addresses import host_rule
from mcp_hub.app.attached.sandboxes import resolved_sandbox
from mcp_hub.app.readiness import StartFolders
from mcp_hub.app.upstream_factory import find_program
from mcp_hub.cli import completion
from mcp_hub.cli.access.hub import Reach, run_with_client
from mcp_hub.cli.access.running import running_hub
from mcp_hub.cli.commands.servers.edit import confirm, end_with, make, report, switch_sandbox
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import agrees, put, say
from mcp_hub.cli.render.results import with_code
from mcp_hub.cli.render.servers import refused_text
from mcp_hub.cli.render.tables import plural
from mcp_hub.cli.setup import (
    EXIT_TOOL,
    EXIT_UNAVAILABLE,
    check_servers,
    config_option,
    config_path,
    fail,
    load_config,
    quiet_logs,
    run,
)
from mcp_hub.config.findings import on_one_line
from mcp_hub.config.load.interpolate import escaped
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.defaults import SandboxSettings
from mcp_hub.config.schema.fields import parse_duration
from mcp_hub.config.trust import state_dir
from mcp_hub.errors import ConfigError, RpcError, StartFailed
from mcp_hub.masking import hide, hide_head
from mcp_hub.onboarding.servers_file.servers_file import Put, ServersFile
from mcp_hub.protocol.rest.servers import SandboxInfo
from mcp_hub.sandbox.confinement import READ_FILE, WRITE_FILE, Confinement, Unsupported
from mcp_hub.sandbox.learning import Learning, Sighting
from mcp_hub.sandbox.places import why_closed
from mcp_hub.sandbox.proposal import Proposal, proposal
from mcp_hub.sandbox.rules import FileKey, ResolvedRule, RuleError, listed
from mcp_hub.types import JsonObject, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.client import HubClient

_LINES: Final = 20
"""Lines of each kind; of more the number."""
_TEXT: Final = 200
_LONGEST = 3600.0
_WARNING = (
    "{server} starts without the rule of files: it can read and write what you can, while each file, program and "
    "connection is noted. Do this only with a server that you trust: what it opens becomes the proposal, and it can "
    "make up what it opens. Places with keys, and sockets of engines, are refused as far as they are seen. A hub that "
    "runs already keeps its own process of this server, and its rule."
)


def proposed_value(rule: SandboxSettings, changes: Proposal, home: str) -> JsonObject | str:
    """The value of `sandbox` with the additions."""
    value: JsonObject = {}
    parts = (
        ("read", rule.read, changes.read, changes.replaced_read),
        ("write", rule.write, changes.write, changes.replaced_write),
    )
    for key, entries, added, replaced in parts:
        before = replaced if entries is None else entries
        if added or entries is not None:
            value[key] = list(
                dict.fromkeys([*(_short(path, home) for path in before), *(_short(p, home) for p in added)])
            )
    if changes.net is not None or rule.net != "any":
        value["net"] = rule.net if changes.net is None else (list(changes.net) or "none")
    if sockets := [*map(escaped, rule.sockets), *(_short(path, home) for path in changes.sockets)]:
        value["sockets"] = sockets
    if rule.mode == "prefer":
        return {**value, "mode": "prefer"} if value else "prefer"
    return value or "on"


def _short(path: str, home: str) -> str:
    return escaped(f"~{path[len(home) :]}" if path.startswith(home.rstrip("/") + "/") else path)


def difference(before: str, after: str, key: str) -> list[tuple[str, str]]:
    """The configuration's diff, with styles."""
    styles = {"+": "green", "-": "yellow"}
    lines = unified_diff(before.splitlines(), after.splitlines(), key, f"{key} (proposed)", lineterm="", n=2)
    return [(hide(line), styles.get(line[:1], "")) for line in lines]


def remarks(learning: Learning, changes: Proposal) -> Iterator[tuple[str, str]]:
    """Lines about what the proposal lacks, with styles."""
    secrets = [_secret(sighting) for sighting in changes.secrets]
    if secrets:
        yield "Refused, and never proposed, since it is secret or starts programs outside:", "bold red"
        yield from _bounded([(line, "red") for line in secrets])
    untouched = [(f"  {_on_one_line(path)}: {_on_one_line(reason)}", "") for path, reason in changes.refused]
    if untouched:
        yield "Used, but not in the proposal. The rule refuses these:", "bold"
        yield from _bounded(untouched)
    named = {text for text, _ in changes.refused}
    reached = [
        (f"  {_on_one_line(text)}, by {_on_one_line(by)}", "")
        for text, by in learning.addresses.items()
        if text not in named
    ]
    if reached:
        yield "Connected to, which net allows. To limit the hosts, learn with --net:", "bold"
        yield from _bounded(reached)
    if learning.missed.beyond:
        yield (
            f"{plural(learning.missed.beyond, 'further use')} could not be noted: the notes are full. "
            "The proposal may lack some.",
            "yellow",
        )
    if learning.missed.unseen:
        yield (
            f"{plural(learning.missed.unseen, 'call')} could not be read, such as those of a process that hides its "
            "memory.",
            "yellow",
        )


def _secret(sighting: Sighting) -> str:
    kind = "socket " if why_closed(sighting.path) is not None else ""
    by = f", by {_on_one_line(sighting.program)}" if sighting.program else ""
    return f"  {kind}{_on_one_line(sighting.path)}{by} ({plural(sighting.count, 'time')})"


def _on_one_line(text: str) -> str:
    """On one line: a name may have line breaks."""
    return on_one_line(hide_head(os.fsencode(text), _TEXT))


def _bounded(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    yield from lines[:_LINES]
    if len(lines) > _LINES:
        yield f"  and {len(lines) - _LINES} more", ""


def _seconds(_: click.Context, __: click.Parameter, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None
    if not 0 < seconds <= _LONGEST:
        raise click.BadParameter("expected more than 0 seconds and at most an hour: a learning run has to end.")
    return seconds


@click.command()
@click.argument("server", metavar="[SERVER]", required=False, shell_complete=completion.servers)
@click.argument("action", metavar="[on|off|test]", required=False)
@click.argument("target", metavar="[PATH|HOST]", required=False)
@click.option("--all", "every", is_flag=True, help="Without SERVER: on for all local servers that say nothing, or off.")
@click.option("--learn", is_flag=True, help="Run SERVER without the rule of files, and propose the rule that it needs.")
@click.option(
    "--for", "duration", callback=_seconds, metavar="TIME", default="10m", show_default=True,
    help="With --learn: how long, once the server has started; an hour at most.",
)  # fmt: skip
@click.option("--net", "limits_hosts", is_flag=True, help="With --learn: limit net to the hosts that it reaches, too.")
@click.option("--yes", "-y", is_flag=True, help="With --learn: start, and write the proposal, without asking.")
@config_option
def sandbox(
    server: str | None,
    action: str | None,
    target: str | None,
    every: bool,
    learn: bool,
    duration: float,
    limits_hosts: bool,
    yes: bool,
    config: str | None,
) -> None:
    """Show, switch or learn the sandbox of SERVER, or test a path.

    `on` writes `sandbox: on` if the server starts in one; `off` writes `sandbox: off`. `--learn` runs it without the
    rule of files. Otherwise nothing is started, and a sandbox that is off is shown with the usual rule. Shows what a
    running hub has refused to the server. Exit code 1 if the sandbox refuses what is tested, a server does not start,
    or a proposal is not written.
    """
    word, names = (server, []) if every else (action, [] if server is None else [server])
    if learn and (every or action is not None):
        raise click.UsageError("--learn needs a SERVER alone: mcp-hub sandbox SERVER --learn")
    if not learn and (limits_hosts or yes):
        raise click.UsageError("--net and --yes belong to --learn.")
    if word in ("on", "off") and (action if every else target) is None:
        raise SystemExit(switch_sandbox(names, word, config))
    if server is None or every or action not in (None, "test"):
        raise click.UsageError("Name a SERVER, with on, off or test behind it; or: mcp-hub sandbox --all on")
    if (action == "test") != (target is not None):
        raise click.UsageError("test needs a path or a host: mcp-hub sandbox SERVER test PATH")
    loaded = load_config(config)
    check_servers(loaded, [server])
    if learn:
        raise SystemExit(_learn(loaded, server, duration, limits_hosts=limits_hosts, yes=yes))
    _show(loaded, server, target, config)


def _show(loaded: Loaded, server: str, target: str | None, config: str | None) -> None:
    resolved, is_off = _resolved(loaded, server)
    confinement = resolved.confinement
    if is_off:
        put(f"{server} has no sandbox. With sandbox: on{' it would have this one' if target is None else ''}:")
    if target is None:
        put("\n".join(_rule(confinement, resolved.remarks)))
        if running_hub(os.path.abspath(config_path(config)), os.environ) is not None:
            run_with_client(Reach(None, None, config), lambda client: _ask(client, server), operates=True)
        return
    net = loaded.settings.effective(server).sandbox.net
    hosts = net if isinstance(net, list) else []
    is_path = target.startswith(("/", "~", "."))
    verdicts = list(_of_path(resolved, target) if is_path else _of_host(confinement, target, hosts))
    put("\n".join(text for _, text in verdicts))
    if not all(is_allowed for is_allowed, _ in verdicts[:1]):
        raise SystemExit(EXIT_TOOL)


def _learn(loaded: Loaded, server: str, seconds: float, *, limits_hosts: bool, yes: bool) -> int:
    from mcp_hub.cli.access.learning import learn  # loads a whole hub

    _resolved(loaded, server)
    say(_WARNING.format(server=server))
    if not yes and sys.stdin.isatty() and not agrees(f"Start {server} without the rule of files?", default=True):
        return EXIT_TOOL
    is_started = False
    ends = "Press Enter, or Ctrl-C, to end" if sys.stdin.isatty() else "Ctrl-C (SIGINT) ends"

    def use(url: str, token: str, failures: Sequence[UpstreamStatus]) -> None:
        nonlocal is_started
        if failures:
            tables.print_lines(tables.reasons(failures))
            return
        is_started = True
        say(
            f"{server} runs. Use its tools now, all that you need later. {ends} the run; it ends by itself in "
            f"{seconds:.0f} s.\n"
            f"  command: MCP_HUB_TOKEN={token} mcp-hub call --url {url} TOOL KEY=VALUE\n"
            f"  client:  {url}, with the header Authorization: Bearer {token}"
        )

    quiet_logs(0)
    learning = run(lambda: learn(loaded, server, seconds, use, limits_hosts=limits_hosts))
    if learning.confinement is None:
        say(f"{server} was not started. Nothing is learned.")
        return EXIT_UNAVAILABLE
    rule = loaded.settings.effective(server).sandbox
    hosts = tuple(rule.net) if isinstance(rule.net, list) else () if limits_hosts else None
    changes = proposal(learning, hosts)
    tables.print_lines(list(remarks(learning, changes)))
    if not is_started:
        say(f"{server} did not start, so that there is no proposal.")
        return EXIT_UNAVAILABLE
    return _write(loaded, server, rule, changes, yes=yes)


def _write(loaded: Loaded, server: str, rule: SandboxSettings, changes: Proposal, *, yes: bool) -> int:
    file = ServersFile(loaded.path, os.environ)
    value = proposed_value(rule, changes, os.path.realpath(Path.home()))
    if rule.mode != "off" and value == proposed_value(rule, Proposal(), ""):
        put(f"The rule of {server} opens all that can be opened of what it used. Nothing to change.")
        return 0
    _check_rule(loaded, server, value)
    try:
        before, after = file.changed_text([Put(server, value, "sandbox")])
    except ConfigError as error:
        end_with(error)
    put(f"Proposal for {server}: what it used, and what the rule would have refused.")
    tables.print_lines(difference(before, after, str(loaded.path)))
    if not yes and not sys.stdin.isatty():
        say("Nothing is written: stdin is not a terminal. Add --yes to write the proposal. [no_terminal]")
        return EXIT_TOOL
    confirm(f"Write this to {loaded.path}?", yes=yes, default=False)
    make(file, [Put(server, value, "sandbox")])
    report(file, f"Wrote sandbox of {server}.")
    return 0


def _check_rule(loaded: Loaded, server: str, value: object) -> None:
    rule = SandboxSettings.model_validate(value)
    entry = loaded.settings.servers[server].model_copy(update={"sandbox": rule})
    servers = {**loaded.settings.servers, server: entry}
    _resolved(replace(loaded, settings=loaded.settings.model_copy(update={"servers": servers})), server)


def _resolved(loaded: Loaded, server: str) -> tuple[ResolvedRule, bool]:
    settings, folder = loaded.settings, str(loaded.path.absolute().parent)
    rule, entry = settings.effective(server).sandbox, settings.servers[server]
    if entry.command is None:
        fail("misplaced_key", f"{server} is not a local program: only those have a sandbox")
    if rule.mode == "off":
        changed = entry.model_copy(update={"sandbox": rule.model_copy(update={"mode": "on"})})
        settings = settings.model_copy(update={"servers": {**settings.servers, server: changed}})
    starts = StartFolders.of(Path(loaded.place), state_dir(os.environ))
    try:
        program = find_program(entry, os.environ, folder)
        resolved = resolved_sandbox(settings, server, os.environ, program, starts)
    except StartFailed as problem:
        fail(problem.code, str(problem))
    except RuleError as problem:
        fail("sandbox_rule", f"sandbox of {server}: {problem.key}: {problem}")
    except Unsupported as problem:
        fail("sandbox_unsupported", str(problem))
    return resolved, rule.mode == "off"


def _rule(confinement: Confinement, remarks: tuple[str, ...]) -> Iterator[str]:
    yield f"home   {confinement.variables['HOME']}"
    yield from (f"write  {path}" for path in confinement.writable)
    yield from (f"read   {path}" for path in confinement.readable)
    yield "read   /etc, except for keys and passwords"
    hosts = (f"{rule.host} port {' or '.join(map(str, rule.ports))}" for rule in confinement.hosts)
    yield f"net    {', '.join(hosts) if confinement.net == 'hosts' else confinement.net}"
    yield from (f"socket {path}" for path in confinement.sockets)
    yield from (f"note   {remark}" for remark in filter(None, (*remarks, confinement.shrinks)))


async def _ask(client: "HubClient", server: str) -> int:
    try:
        servers = await client.servers()
    except (RpcError, ConfigError) as problem:
        say(f"The running hub does not answer: {with_code(problem) if isinstance(problem, RpcError) else problem}")
        return 0
    for status in servers:
        if status.server == server and status.sandbox:
            put("\n".join(_refusals(status.sandbox)))
    return 0


def _refusals(sandbox: SandboxInfo) -> Iterator[str]:
    if sandbox.reason:
        yield f"note   the running hub started the server without a sandbox: {sandbox.reason}"
    head = f"refused in the running hub: {tables.plural(sandbox.refused, 'attempt')}"
    yield f"{head}, the latest at different targets:" if sandbox.latest else head
    for refused in sandbox.latest:
        seconds = tables.unix_time(refused.at)
        at = refused.at if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
        times = f", {refused.count} times" if refused.count > 1 else ""
        yield f"       {at}  {refused_text(refused, sandbox)}{times}"


def _of_path(resolved: ResolvedRule, target: str) -> Iterator[tuple[bool, str]]:
    path = os.path.realpath(os.path.expanduser(target))
    rights: tuple[tuple[FileKey, int], ...] = (("read", READ_FILE), ("write", WRITE_FILE))
    for key, access in rights:
        grant = resolved.confinement.allows(path, access)
        if grant is not None:
            yield True, f"{key}: allowed, by {grant.path}"
        else:
            yield False, f"{key}: refused. {resolved.advice(key, path)}"


def _of_host(confinement: Confinement, target: str, hosts: Sequence[str]) -> Iterator[tuple[bool, str]]:
    try:
        tested = host_rule(target)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="HOST") from None
    for port in tested.ports:
        target_port = f"{tested.host} port {port}"
        if confinement.net == "none":
            yield False, f"{target_port}: refused, since net is none. If it may, set {listed('net', [target])}."
        elif confinement.net == "any":
            yield True, f"{target_port}: allowed, since net is any"
        elif any(rule.matches(tested.host, port) for rule in confinement.hosts):
            yield True, f"{target_port}: allowed by net, unless its address is a private one that net does not list"
        else:
            yield False, f"{target_port}: refused. If it may, set {listed('net', (*hosts, target))} in its sandbox."
