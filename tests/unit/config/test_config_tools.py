"""What holds for one tool's calls: `task`, `orphan` and `idempotent` of tool, server and defaults."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.app.upstream_factory import UpstreamFactory, _list_key, supervisor_rules
from mcp_hub.clock import SystemClock
from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.defaults import RetrySettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.schema.tools import ToolRules
from mcp_hub.errors import ConfigError
from mcp_hub.globs import first_match
from mcp_hub.notices import Notices
from mcp_hub.types import Era, LogFlow
from mcp_hub.upstreams.peer.era_cache import EraCache, server_key
from mcp_hub.upstreams.process.watchdog import Watchdog
from mcp_hub.upstreams.supervision.both_eras import BothEras
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.scoped import Scoped
from tests.unit.config.faults import refused, shown

SERVER = """
  ci:
    command: x
    orphan: finish
    task: never
    per_tool:
      "run_*": {task: always}
      run_tests: {orphan: 2h, idempotent: true}
      "*_tests": {orphan: cancel, task: required}
      "[": {idempotent: true}
"""
DEFAULTS = "defaults: {orphan: 90, idempotent: true, task: required}"


def settings(servers: str, rest: str = "", env: dict[str, str] | None = None) -> Settings:
    return parse(f"servers:{servers}\n{rest}", "servers.yaml", env or {}, Path("/base")).settings


def finding(body: str) -> str:
    return refused(settings, f"\n  git:\n    {body}\n    command: x\n")


def test_rules_are_those_of_the_tool_else_of_the_server_else_of_the_defaults() -> None:
    assert settings(" {a: {command: x}}").tool_rules("a", "t") == ToolRules("auto", None, False)
    assert settings(" {a: {command: x}}", DEFAULTS).tool_rules("a", "t") == ToolRules("required", 90.0, True)
    own = settings(" {a: {command: x, idempotent: false, task: auto}}", DEFAULTS)
    assert own.tool_rules("a", "t") == ToolRules("auto", 90.0, False)
    own = settings(" {a: {command: x, idempotent: true, per_tool: {t: {idempotent: false}}}}", DEFAULTS)
    assert own.tool_rules("a", "t") == ToolRules("required", 90.0, False, pattern="t")
    rules = settings(SERVER, "defaults: {idempotent: true}").effective("ci")
    assert (rules.task, rules.orphan, rules.idempotent) == ("never", "finish", True)


@pytest.mark.parametrize(
    ("tool", "rules"),
    [
        ("run_tests", ToolRules("never", 7200.0, True, pattern="run_tests")),  # exact; the rest is the server's
        ("run_lint_tests", ToolRules("always", "finish", False, pattern="run_*")),  # the first glob alone
        ("list_tests", ToolRules("required", "cancel", False, pattern="*_tests")),
        ("RUN_lint", ToolRules("never", "finish", False)),  # case matters
        ("[", ToolRules("never", "finish", True, pattern="[")),  # a name that only looks like a glob
        ("other", ToolRules("never", "finish", False)),
    ],
)
def test_exact_name_wins_over_globs_and_these_go_in_written_order(tool: str, rules: ToolRules) -> None:
    assert settings(SERVER).tool_rules("ci", tool) == rules


def test_rules_are_found_once_bounded_in_number_and_forgotten_by_a_copy() -> None:
    own = settings(SERVER)
    first = own.tool_rules("ci", "run_tests")
    assert own.tool_rules("ci", "run_tests") is first
    for number in range(5000):
        own.tool_rules("ci", f"t{number}")
    again = own.tool_rules("ci", "run_tests")
    assert again == first and again is not first
    old, new = settings(" {a: {command: x, task: never}}"), settings(" {a: {command: x, task: always}}")
    assert old.tool_rules("a", "t").task == "never"
    for deep in (False, True):
        assert old.model_copy(update={"servers": new.servers}, deep=deep).tool_rules("a", "t").task == "always"


def test_interpolated_texts_take_the_type_of_their_key() -> None:
    env = {"TASK": "always", "ORPHAN": "5m", "SAFE": "true"}
    body = " {a: {command: x, orphan: '${WORD:-cancel}', per_tool: {t: {orphan: '${ORPHAN}', idempotent: '${SAFE}'}}}}"
    own = settings(body, env=env)
    assert own.tool_rules("a", "t") == ToolRules("auto", 300.0, True, pattern="t")
    assert own.tool_rules("a", "u").orphan == "cancel"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("taks: auto", "taks [unknown_key]"),
        ("per_tol: {}", "per_tol [unknown_key]"),
        ("task: sometimes", "task [invalid_value]"),
        *((body, "orphan [invalid_value]") for body in ("orphan: forget", "orphan: never", "orphan: [cancel]")),
        *((body, "orphan [invalid_value]") for body in ("orphan: 0", "orphan: -1", "orphan: 400d")),
        ("idempotent: perhaps", "idempotent [wrong_type]"),
        ("per_tool: [a]", "per_tool [wrong_type]"),
        ("per_tool: {a: always}", "per_tool.a [wrong_type]"),
        ("per_tool: {a: {orphn: 1}}", "per_tool.a.orphn [unknown_key]"),
        ("per_tool: {'a*': {timeout: 1}}", 'per_tool["a*"].timeout [unknown_key]'),
        ("per_tool: {a: {task: ''}}", "per_tool.a.task [invalid_value]"),
        ("per_tool: {a: {orphan: 0s}}", "per_tool.a.orphan [invalid_value]"),
        ("per_tool: {a: {idempotent: 5}}", "per_tool.a.idempotent [wrong_type]"),
        ("per_tool: {'': {}}", 'per_tool[""] [out_of_range]'),
        ("per_tool: {a: {name: 'b c'}}", "per_tool.a.name [invalid_value]"),
        ("per_tool: {'a*': {name: b}}", "per_tool [misplaced_key]"),
        ("per_tool: {a: {name: b}, c: {name: b}}", "per_tool [duplicate_name]"),
        ("per_tool: {a: {description: ''}}", "per_tool.a.description [out_of_range]"),
        ("per_tool: {a: {hide: perhaps}}", "per_tool.a.hide [wrong_type]"),
        ("per_tool: {a: {pin: perhaps}}", "per_tool.a.pin [wrong_type]"),
        ("per_tool: {a: {tags: x}}", "per_tool.a.tags [wrong_type]"),
        ("per_tool: {a: {arguments: [x]}}", "per_tool.a.arguments [wrong_type]"),
        ("per_tool: {a: {fixed: []}}", "per_tool.a.fixed [wrong_type]"),
        ("per_tool: {a: {arguments: {'': 1}}}", 'per_tool.a.arguments[""] [out_of_range]'),
        ("per_tool: {a: {fixed: {x: [{y: .nan}]}}}", "per_tool.a.fixed [invalid_value]"),
        ("per_tool: {a: {fixed: {x: 1}, arguments: {x: 1}}}", "per_tool.a.fixed [conflicting_keys]"),
        ("orphan: '${NOPE}'", "orphan [variable_not_set]"),
    ],
)
def test_bad_value_is_found_where_it_stands(body: str, said: str) -> None:
    assert finding(body) == f"servers.yaml:3: servers.git.{said}"


@pytest.mark.parametrize(
    ("rename", "said"), [("{a: c}", "rename [conflicting_keys]"), ("{c: b}", "rename [duplicate_name]")]
)
def test_name_is_said_once_by_rename_or_per_tool(rename: str, said: str) -> None:
    assert finding(f"rename: {rename}\n    per_tool: {{a: {{name: b}}}}") == f"servers.yaml:3: servers.git.{said}"


def test_values_of_arguments_are_kept_out_of_what_is_printed_and_masked_in_what_is_logged() -> None:
    text = "servers: {a: {command: x, per_tool: {t: {fixed: {key: '${KEY}'}, arguments: {n: [1, null]}}}}}"
    loaded = parse(text, "servers.yaml", {"KEY": "s3cr3t-value"}, Path("/base"))
    own = loaded.settings.servers["a"].per_tool["t"]
    assert (own.fixed, own.arguments) == ({"key": "s3cr3t-value"}, {"n": [1, None]})
    assert "s3cr3t" not in repr(loaded) and "s3cr3t-value" in loaded.secrets


@pytest.mark.parametrize(
    ("entry", "changed"),
    [
        ("{}", ()),
        ("{task: never, hide: false, pin: , tags: [], arguments: {}}", ()),
        ("{fixed: {a: 1}, description: d, name: n}", ("name", "description", "fixed")),
        ("{hide: true, pin: false, tags: [x], arguments: {a: null}}", ("hide", "pin", "tags", "arguments")),
    ],
)
def test_entry_tells_by_which_of_its_keys_lists_differ(entry: str, changed: tuple[str, ...]) -> None:
    own = settings(f" {{a: {{command: x, per_tool: {{t: {entry}}}}}}}").servers["a"].per_tool["t"]
    assert own.changed() == changed


def test_bad_default_is_found_where_it_stands_and_shows_nothing_put_in() -> None:
    with pytest.raises(ConfigError, match=r"^servers\.yaml:2: defaults\.orphan: .*\[invalid_value\]$"):
        settings(" {a: {command: x}}", "defaults: {orphan: 0}")
    with pytest.raises(ConfigError, match=r"^servers\.yaml:2: defaults\.per_tool: .*\[unknown_key\]$"):
        settings(" {a: {command: x}}", "defaults: {per_tool: {}}")
    env = {"WORD": "s3cr3t-word"}
    with pytest.raises(ConfigError) as caught:
        settings(
            " {a: {command: x, task: '${WORD}', per_tool: {t: {orphan: '${WORD}', idempotent: '${WORD}'}}}}", "", env
        )
    assert len(str(caught.value).split("\n")) == 3 and "s3cr3t" not in str(caught.value)


@given(st.lists(st.text(alphabet="ab*?[]!-", max_size=6)), st.text(alphabet="ab*?[]!-", max_size=6))
def test_any_text_is_a_glob_and_the_best_match_is_one_of_them(patterns: list[str], name: str) -> None:
    found = first_match(name, patterns)
    assert found is None or found in patterns
    if name in patterns:
        assert found == name
    if "*" in patterns:
        assert found is not None


def test_retries_are_those_of_the_tool_else_of_the_server_else_of_the_defaults() -> None:
    own = settings(
        " {a: {command: x, retry: {on: [lost]}, per_tool: {t: {retry: {attempts: 1}}, '*': {}}}, b: {command: x}}",
        "defaults: {retry: {attempts: 4}}",
    )
    found = [own.tool_rules(server, tool).retry for server, tool in [("a", "t"), ("a", "u"), ("a", ""), ("b", "t")]]
    assert found == [
        RetrySettings(attempts=1),
        RetrySettings.model_validate({"on": ["lost"]}),
        RetrySettings.model_validate({"on": ["lost"]}),
        RetrySettings(attempts=4),
    ]


@pytest.mark.parametrize(
    "retry", ["{attempts: 0}", "{attempts: 11}", "{attempts: true}", "{on: [always]}", "{on: lost}", "{retries: 2}"]
)
def test_a_wrong_rule_for_retries_is_a_finding(retry: str) -> None:
    assert "servers.git.retry" in finding(f"retry: {retry}")


def test_name_that_is_given_twice_is_a_warning() -> None:
    text = "servers:\n  a: {command: x, rename: {p: n}}\n  b:\n    command: x\n    per_tool: {q: {name: n}}\n"
    (warning,) = parse(text, "s", {}, Path("/base")).warnings
    assert shown(warning) == "s:5: servers.b.per_tool.q.name [duplicate_name]" and '"a"' in warning.message
    text = "servers:\n  a:\n    command: x\n    rename: {p: n}\n    per_tool: {n: {name: m}}\n"
    (warning,) = parse(text, "s", {}, Path("/base")).warnings
    assert shown(warning) == "s:5: servers.a.per_tool.n.name [duplicate_name]" and "rename" in warning.message


def supervised(server: str, defaults: str = "{}") -> Settings:
    text = f"servers: {{a: {server}}}\ndefaults: {defaults}"
    return parse(text, "servers.yaml", {"LAZY": "lazy", "REST": "5m"}, Path("/base")).settings


def made(server: str, defaults: str = "{}", memory: EraCache | None = None) -> Any:
    clock = SystemClock()
    sources = UpstreamFactory({}, "/base", memory or EraCache(None), clock, Notices(), Watchdog(clock))
    return sources.make(supervised(server, defaults), "a")


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
    rules = supervisor_rules(supervised(server, defaults), "a")
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
        supervised(server)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "more", ["command: x", "command: x, era: handshake", "command: x, scope: session", "url: 'http://x'"]
)
async def test_a_server_and_all_its_connections_go_by_its_rule_for_logs(more: str) -> None:
    default, upstream = made(f"{{{more}}}"), made(f"{{{more}, logs: shared}}")
    assert (default.status().logs, upstream.status().logs) == (LogFlow("hub"), LogFlow("shared"))
    inner = [upstream._first, upstream._second] if isinstance(upstream, BothEras) else []
    if isinstance(upstream, Scoped):
        inner = [upstream._listed, *(upstream._process_for(era, Notices()) for era in Era)]
    assert all(one.state.logs is inner[0].state.logs for one in inner)
    upstream.lifecycle.adjust(supervisor_rules(supervised(f"{{{more}, logs: turns}}"), "a"))
    assert upstream.status().logs == LogFlow("turns"), "a reload changes it at once"


def test_functions_take_no_notice_of_the_defaults() -> None:
    assert supervised("{local: 'm:r'}", "{start: lazy, idle_stop: 5m}").effective("a").start == "lazy"


def test_a_list_belongs_to_what_is_run_and_not_to_the_values_of_its_secrets() -> None:
    def key(server: str, name: str = "a") -> str:
        return _list_key(name, supervised(server).servers["a"])

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


@pytest.mark.parametrize(("path", "position"), [("books", "1"), ("'$.books['", "9"), ("'$.a b'", "5")])
def test_path_of_a_tool_is_a_json_path_and_a_mistake_names_its_position(path: str, position: str) -> None:
    good = settings("\n  git:\n    command: x\n    per_tool: {log: {path: '$.commits[*].subject'}}\n")
    assert good.servers["git"].per_tool["log"].path == "$.commits[*].subject"
    with pytest.raises(ConfigError) as caught:
        settings(f"\n  git:\n    command: x\n    per_tool: {{log: {{path: {path}}}}}\n")
    assert "per_tool.log.path" in str(caught.value) and f"at character {position}" in str(caught.value)
