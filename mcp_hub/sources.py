"""What makes an upstream out of its entry under `servers`: a part of the composition root (`app`)."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mcp_hub.clock import Clock
from mcp_hub.config.schema import ServerSettings, Settings
from mcp_hub.types import Era
from mcp_hub.upstreams import commands
from mcp_hub.upstreams.absent import AbsentUpstream
from mcp_hub.upstreams.base import Upstream
from mcp_hub.upstreams.changes import Changes
from mcp_hub.upstreams.connection import Connection
from mcp_hub.upstreams.lifecycle import RestartRule
from mcp_hub.upstreams.listing import ListLimits
from mcp_hub.upstreams.local import LocalUpstream
from mcp_hub.upstreams.memory import EraMemory, server_key, url_key
from mcp_hub.upstreams.scoped import Scoped
from mcp_hub.upstreams.stdio import StdioConnection, StdioSpec
from mcp_hub.upstreams.supervisor import Supervisor, SupervisorRules

__all__ = ["Sources"]


@dataclass(frozen=True, slots=True)
class Sources:
    """What all upstreams share. `folder` is where relative commands and modules are looked for."""

    env: Mapping[str, str]
    folder: str
    memory: EraMemory
    clock: Clock
    changes: Changes

    def make(self, settings: Settings, name: str) -> Upstream:
        """The upstream of that name, not yet running."""
        server = settings.servers[name]
        if not server.enabled:
            return AbsentUpstream(name)
        if server.local is not None:
            return LocalUpstream.load(name, server.local, self.folder)
        connect: Callable[[], Connection] = partial(
            StdioConnection, name, partial(_spec, settings, server, self.env, self.folder), self.memory
        )
        if server.url is not None:
            connect = _remote(name, settings, server, server.url, self.memory)
        rules = _supervisor_rules(settings, name)
        first = Supervisor(name, connect, rules, clock=self.clock, changes=self.changes)
        if server.scope in ("session", "call"):
            return Scoped(first, partial(_member, name, connect, rules, self.clock), server.scope, self.clock)
        return first


def _member(name: str, connect: Callable[[], Connection], rules: SupervisorRules, clock: Clock) -> Supervisor:
    """One of many processes of a server; its callers wait for it to start, and nobody else hears of its changes."""
    patient = replace(rules, ready_wait=rules.start_timeout)
    return Supervisor(name, connect, patient, clock=clock, changes=Changes())


def _spec(settings: Settings, server: ServerSettings, env: Mapping[str, str], folder: str) -> StdioSpec:
    """Resolves the command now, so that a program installed in the meantime is found. Raises `StartFailed`."""
    cwd = server.cwd or os.getcwd()
    path = server.env.get("PATH", env.get("PATH"))
    program = commands.resolve(server.command or "", path, str(Path.home()), folder)
    limits = settings.hub.limits
    return StdioSpec(
        argv=(program, *server.args),
        env=commands.child_env(env, server.env, [os.path.dirname(program), os.path.dirname(sys.executable)]),
        cwd=cwd,
        era=None if server.era == "auto" else Era(server.era),
        key=server_key(server.command or "", server.args),
        line_limit=limits.line,
        stderr_lines=limits.stderr_lines,
    )


def _remote(
    name: str, settings: Settings, server: ServerSettings, url: str, memory: EraMemory
) -> Callable[[], Connection]:
    from mcp_hub.upstreams.http import HttpConnection, HttpSpec  # an HTTP client, which most hubs do without

    spec = HttpSpec(
        url=url,
        key=url_key(url),
        headers=server.sent_headers(),
        transport=server.type,
        era=None if server.era == "auto" else Era(server.era),
        line_limit=settings.hub.limits.line,
    )
    return partial(HttpConnection, name, spec, memory)


def _supervisor_rules(settings: Settings, name: str) -> SupervisorRules:
    own, limits = settings.effective(name), settings.hub.limits
    # a remote server that is down says nothing about the next minute
    is_patient = settings.servers[name].url is not None and settings.servers[name].restart is None
    return SupervisorRules(
        start_timeout=own.start_timeout,
        request_timeout=own.request_timeout,
        restart=RestartRule(sys.maxsize if is_patient else own.restart.intensity, own.restart.period),
        lists=ListLimits(limits.pages, limits.tools_per_server),
    )
