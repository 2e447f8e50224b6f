"""A server's sandbox from its settings; loaded only if one is needed."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import platformdirs

from mcp_hub.app.readiness import StartFolders, working_directory
from mcp_hub.attach.folder import base_folders
from mcp_hub.config.findings import Flaw
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.trust import state_dir
from mcp_hub.sandbox.confinement import Unsupported
from mcp_hub.sandbox.learning import Learning
from mcp_hub.sandbox.network.proxy import HostProxy
from mcp_hub.sandbox.rules import ResolvedRule, RuleError, Surroundings
from mcp_hub.sandbox.server import ServerSandbox, rule_of
from mcp_hub.upstreams.process import commands
from mcp_hub.wire.http_client import proxy


def server_sandbox(
    settings: Settings, name: str, env: Mapping[str, str], starts: StartFolders, before: ServerSandbox | None = None,
    learning: Learning | None = None,
) -> ServerSandbox:  # fmt: skip
    """The server's sandbox; `before`, with its refusals, if the rule is unchanged."""
    rule = settings.effective(name).sandbox
    hub = (str(state_dir(env)), platformdirs.user_config_dir("mcp-hub"), *base_folders(env))
    around = Surroundings(str(Path.home()), hub, None if starts.config is None else str(starts.config))
    plain = rule_of(rule.read, rule.write, rule.net, rule.sockets, is_preferred=rule.mode == "prefer")
    fresh = ServerSandbox(
        server=name, rule=plain, private=starts.home(name), around=around, make_proxy=partial(HostProxy, via=proxy),
        learning=learning,
    )  # fmt: skip
    return before if before is not None and before.has_same_rule(fresh) else fresh


def learning_run() -> Learning:
    """The notes of a learning run, for a server's sandbox."""
    return Learning(partial(HostProxy, via=proxy))


def resolved_sandbox(
    settings: Settings, name: str, env: Mapping[str, str], program: str, starts: StartFolders
) -> ResolvedRule:
    """The rule for a start of this program. Raises `RuleError` and `Unsupported`."""
    server, client = settings.servers[name], working_directory()
    args, values = starts.fill(name, server, client)
    variables = commands.child_env(env, values, [os.path.dirname(program)], server.pass_env)
    folder = starts.start(name, server, client)
    sandbox = server_sandbox(settings, name, env, starts)
    return sandbox.resolved([program, *args], variables, folder, is_spare=starts.is_spare(name, folder))


def sandbox_findings(
    settings: Settings, name: str, env: Mapping[str, str], program: str, starts: StartFolders
) -> Iterator[Flaw]:
    """Problems of a server's sandbox."""
    try:
        resolved = resolved_sandbox(settings, name, env, program, starts)
    except RuleError as problem:
        yield Flaw("sandbox", "sandbox_rule", f"{problem.key}: {problem}")
        return
    except Unsupported as problem:
        if settings.effective(name).sandbox.mode != "prefer":
            yield Flaw("sandbox", "sandbox_unsupported", f"the server will not start: {problem}")
        return
    yield from (Flaw("sandbox", "sandbox_path", remark) for remark in resolved.remarks)
    confinement = resolved.confinement
    replaced = sorted(settings.servers[name].env.keys() & {*confinement.variables, *confinement.removed})
    if replaced:
        yield Flaw("env", "sandbox_variable", f"the sandbox sets its own value: {', '.join(replaced)}")
