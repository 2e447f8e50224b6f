"""`mcp-hub sandbox`: the sandbox that a server starts in, and what it would allow."""

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_hub.addresses import host_rule
from mcp_hub.app.attached.isolation import StartFolders
from mcp_hub.app.attached.sandboxes import resolved_sandbox
from mcp_hub.app.limits import state_dir
from mcp_hub.app.upstream_factory import find_program
from mcp_hub.cli import completion
from mcp_hub.cli.access.hub import Reach, run_with_client
from mcp_hub.cli.access.running import running_hub
from mcp_hub.cli.commands.servers.remove import switch_sandbox
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.notices import refused_text
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.results import with_code
from mcp_hub.cli.setup import EXIT_TOOL, check_servers, config_option, config_path, fail, load_config
from mcp_hub.config.load.load import Loaded
from mcp_hub.errors import ConfigError, RpcError, StartFailed
from mcp_hub.protocol.rest.servers import SandboxInfo
from mcp_hub.sandbox.confinement import WRITE_FILE, Confinement, Unsupported
from mcp_hub.sandbox.rules import RuleError

if TYPE_CHECKING:
    from mcp_hub.client import HubClient


@click.command()
@click.argument("server", metavar="[SERVER]", required=False, shell_complete=completion.servers)
@click.argument("action", metavar="[on|off|test]", required=False)
@click.argument("target", metavar="[PATH|HOST]", required=False)
@click.option("--all", "every", is_flag=True, help="Without SERVER: on for all local servers that say nothing, or off.")
@config_option
def sandbox(server: str | None, action: str | None, target: str | None, every: bool, config: str | None) -> None:
    """Show or switch the sandbox of SERVER, or test a path in it.

    `on` starts the server once in a sandbox, and writes `sandbox: on` if that works; `off` writes `sandbox: off`.
    Otherwise nothing is started, and a server whose sandbox is off is shown with the usual rule. If a hub runs, shows
    what it has refused to the server. Exit code 1 if the sandbox refuses what is tested, or a server does not start.
    """
    word, names = (server, []) if every else (action, [] if server is None else [server])
    if word in ("on", "off") and (action if every else target) is None:
        raise SystemExit(switch_sandbox(names, word, config))
    if server is None or every or action not in (None, "test"):
        raise click.UsageError("Name a SERVER, with on, off or test behind it; or: mcp-hub sandbox --all on")
    if (action == "test") != (target is not None):
        raise click.UsageError("test needs a path or a host: mcp-hub sandbox SERVER test PATH")
    loaded = load_config(config)
    check_servers(loaded, [server])
    confinement, remarks, is_off = _resolved(loaded, server)
    if is_off:
        put(f"{server} has no sandbox. With sandbox: on it would have this one:")
    if target is None:
        put("\n".join(_rule(confinement, remarks)))
        if running_hub(os.path.abspath(config_path(config)), os.environ) is not None:
            run_with_client(Reach(None, None, config), lambda client: _ask(client, server), operates=True)
        return
    verdicts = list(
        _of_path(confinement, target) if target.startswith(("/", "~", ".")) else _of_host(confinement, target)
    )
    put("\n".join(text for _, text in verdicts))
    if not all(is_allowed for is_allowed, _ in verdicts[:1]):
        raise SystemExit(EXIT_TOOL)


def _resolved(loaded: Loaded, server: str) -> tuple[Confinement, tuple[str, ...], bool]:
    """The sandbox, remarks about its rule, and whether it is off."""
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
    return resolved.confinement, resolved.remarks, rule.mode == "off"


def _rule(confinement: Confinement, remarks: tuple[str, ...]) -> Iterator[str]:
    """The rule in lines."""
    yield f"home   {confinement.variables['HOME']}"
    yield from (f"write  {path}" for path in confinement.writable)
    yield from (f"read   {path}" for path in confinement.readable)
    yield "read   /etc, except for keys and passwords"
    hosts = (f"{rule.host} port {' or '.join(map(str, rule.ports))}" for rule in confinement.hosts)
    yield f"net    {', '.join(hosts) if confinement.net == 'hosts' else confinement.net}"
    yield from (f"socket {path}" for path in confinement.sockets)
    yield from (f"note   {remark}" for remark in filter(None, (*remarks, confinement.shrinks)))


async def _ask(client: "HubClient", server: str) -> int:
    """Prints what the sandbox of the server has refused in a running hub; always 0."""
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
    """The refusals of a running hub in lines, the newest first."""
    if sandbox.reason:
        yield f"note   the running hub started the server without a sandbox: {sandbox.reason}"
    head = f"refused in the running hub: {tables.plural(sandbox.refused, 'attempt')}"
    yield f"{head}, the latest at different targets:" if sandbox.latest else head
    for refused in sandbox.latest:
        seconds = tables.unix_time(refused.at)
        at = refused.at if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
        yield f"       {at}  {refused_text(refused)}{f', {refused.count} times' if refused.count > 1 else ''}"


def _of_path(confinement: Confinement, target: str) -> Iterator[tuple[bool, str]]:
    """Whether a path may be read, then whether it may be written."""
    path = os.path.realpath(os.path.expanduser(target))
    for key, access in (("read", 0), ("write", WRITE_FILE)):
        grant = confinement.allows(path, access) if access else confinement.allows(path)
        if grant is not None:
            yield True, f"{key}: allowed, by {grant.path}"
        else:
            yield False, f"{key}: refused. To allow it, add {path} to {key} of sandbox"


def _of_host(confinement: Confinement, target: str) -> Iterator[tuple[bool, str]]:
    """Whether a host may be reached, at its first port first."""
    try:
        tested = host_rule(target)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="HOST") from None
    for port in tested.ports:
        target_port = f"{tested.host} port {port}"
        if confinement.net == "none":
            yield False, f"{target_port}: refused, since net is none"
        elif confinement.net == "any":
            yield True, f"{target_port}: allowed, since net is any"
        elif any(rule.matches(tested.host, port) for rule in confinement.hosts):
            yield True, f"{target_port}: allowed by net, unless its address is a private one that net does not list"
        else:
            yield False, f"{target_port}: refused. To allow it, add {target} to net of sandbox"
