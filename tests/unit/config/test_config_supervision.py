"""When servers are started and stopped (`start`, `idle_stop`), what that comes to, and what a server is known by."""

import math
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.app.upstream_factory import UpstreamFactory, _list_key, supervisor_rules
from mcp_hub.clock import SystemClock
from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError
from mcp_hub.notices import Notices
from mcp_hub.types import Era, LogFlow
from mcp_hub.upstreams.peer.era_cache import EraCache, server_key
from mcp_hub.upstreams.process.watchdog import Watchdog
from mcp_hub.upstreams.supervision.both_eras import BothEras
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.scoped import Scoped


def settings(server: str, defaults: str = "{}") -> Settings:
    text = f"servers: {{a: {server}}}\ndefaults: {defaults}"
    return parse(text, "servers.yaml", {"LAZY": "lazy", "REST": "5m"}, Path("/base")).settings


def made(server: str, defaults: str = "{}", memory: EraCache | None = None) -> Any:
    clock = SystemClock()
    sources = UpstreamFactory({}, "/base", memory or EraCache(None), clock, Notices(), Watchdog(clock))
    return sources.make(settings(server, defaults), "a")


@pytest.mark.parametrize(
    ("server", "defaults", "lazy", "idle"),
    [
        ("{command: x}", "{}", False, None),
        ("{command: x, start: lazy}", "{}", True, 600.0),
        ("{command: x, start: lazy, idle_stop: never}", "{}", True, None),
        ("{command: x, start: lazy, idle_stop: 0}", "{}", True, None),
        ("{command: x, start: lazy, idle_stop: 0s}", "{}", True, None),
        ("{command: x, idle_stop: 90s}", "{}", False, 90.0),
        ("{command: x}", "{start: lazy, idle_stop: 1h}", True, 3600.0),
        ("{command: x, start: eager}", "{start: lazy}", False, None),
        ("{command: x, start: eager, idle_stop: never}", "{start: lazy, idle_stop: 1h}", False, None),
        ("{url: 'https://x.example/mcp', start: lazy}", "{}", True, 600.0),
        ("{command: x, start: '${LAZY}', idle_stop: '${REST}'}", "{}", True, 300.0),
    ],
)
def test_rules_of_a_server(server: str, defaults: str, lazy: bool, idle: float | None) -> None:
    rules = supervisor_rules(settings(server, defaults), "a")
    assert (rules.lazy, rules.idle_stop) == (lazy, idle)


@pytest.mark.parametrize(
    ("more", "first", "members"),
    [("", None, 600.0), (", idle_stop: 90s", 90.0, 90.0), (", idle_stop: never", None, math.inf)],
)
def test_processes_of_a_scope_have_the_same_rule(more: str, first: float | None, members: float) -> None:
    upstream = made(f"{{command: x, scope: session{more}}}")
    assert isinstance(upstream, Scoped)
    assert (upstream._listed.state.rules.idle_stop, upstream._listed.state.rules.part_idle) == (first, members)
    member = upstream._process_for(Era.MODERN, Notices())
    assert member.state.rules.idle_stop is None and not member.state.rules.lazy, "they are ended, not put to rest"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("{command: x, start: later}", 'servers.a.start: expected "eager" or "lazy"'),
        ("{command: x, idle_stop: soon}", 'servers.a.idle_stop: expected a duration such as "30m"'),
        ("{command: x, idle_stop: -1}", "servers.a.idle_stop: "),
        ("{local: 'm:r', start: lazy}", "servers.a.start: does not apply to Python functions"),
        ("{local: 'm:r', idle_stop: 5m}", "servers.a.idle_stop: does not apply to Python functions"),
        ("{command: x, logs: all}", 'servers.a.logs: expected "hub", "shared" or "turns"'),
        ("{local: 'm:r', logs: shared}", "servers.a.logs: does not apply to Python functions"),
    ],
)
def test_mistakes_are_named(server: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(server)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "more", ["command: x", "command: x, era: handshake", "command: x, scope: session", "url: 'http://x'"]
)
def test_a_server_and_all_its_connections_go_by_its_rule_for_logs(more: str) -> None:
    default, upstream = made(f"{{{more}}}"), made(f"{{{more}, logs: shared}}")
    assert (default.status().logs, upstream.status().logs) == (LogFlow("hub"), LogFlow("shared"))
    inner = [upstream._first, upstream._second] if isinstance(upstream, BothEras) else []
    if isinstance(upstream, Scoped):
        inner = [upstream._listed, *(upstream._process_for(era, Notices()) for era in Era)]
    assert all(one.state.logs is inner[0].state.logs for one in inner)
    upstream.lifecycle.adjust(supervisor_rules(settings(f"{{{more}, logs: turns}}"), "a"))
    assert upstream.status().logs == LogFlow("turns"), "a reload changes it at once"


def test_functions_take_no_notice_of_the_defaults() -> None:
    assert settings("{local: 'm:r'}", "{start: lazy, idle_stop: 5m}").effective("a").start == "lazy"


def test_a_list_belongs_to_what_is_run_and_not_to_the_values_of_its_secrets() -> None:
    def key(server: str, name: str = "a") -> str:
        return _list_key(name, settings(server).servers["a"])

    plain = key("{command: x, args: [y], env: {TOKEN: one}}")
    assert plain == key("{command: x, args: [y], env: {TOKEN: two}, timeout: 5s, tools: {deny: [z]}}")
    others = (
        "{command: y, args: [y], env: {TOKEN: one}}",
        "{command: x, args: [z], env: {TOKEN: one}}",
        "{command: x, args: [y], env: {KEY: one}}",
        "{command: x, args: [y], env: {TOKEN: one}, cwd: /tmp}",
        "{command: x, args: [y], env: {TOKEN: one}, apps: off}",
        "{url: 'https://x.example/mcp'}",
    )
    assert len({plain, key("{command: x, args: [y], env: {TOKEN: one}}", "b"), *map(key, others)}) == len(others) + 2


@pytest.mark.parametrize(("era", "takes_turns"), [("handshake", True), ("modern", False)])
def test_sessions_take_turns_at_a_pinned_server_that_asks_unless_it_is_modern(era: str, takes_turns: bool) -> None:
    memory = EraCache(None)
    memory.put_interactive(server_key("x", []))
    upstream = made(f"{{command: x, era: {era}}}", memory=memory)
    assert isinstance(upstream, ManagedUpstream) and upstream.state.turns._is_on is takes_turns
