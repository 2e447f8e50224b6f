"""From settings to the rules of views: what a profile leaves open is the hub's, and what overrides become."""

from pathlib import Path

import msgspec
import pytest

from mcp_hub import extras
from mcp_hub.app.catalog_rules import (
    confirmed_servers,
    executor_server,
    policies,
    project_rules,
    repetition,
    view_rules,
)
from mcp_hub.catalog.offers.filters import Filter, HintClaims, Selector
from mcp_hub.catalog.offers.rules import Override, ServerRules, Supplied, ViewRules
from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.schema.tools import OverlaySettings
from mcp_hub.errors import ConfigError

TEXT = """
hub: {budget: 900, pinned: ["git_*"], compact: true, max_result_tokens: 0, max_name_length: 20}
servers:
  git:
    command: x
    expose: full
    compact: false
    tools: {allow: ["get_*", {name: x, tag: t}], deny: [{destructiveHint: true}, {name: plain}]}
    resources: {deny: [{tag: private}]}
    rename: {log: history}
    per_tool:
      "get_*": {description: d, tags: [a, a], pin: true}
      drop: {hide: true, arguments: {n: 1.5}, fixed: {key: [null]}}
      look: {annotations: {readOnlyHint: true, openWorldHint: false}}
  virtual: {command: x, prefix: v, apps: off}
profiles:
  small: {servers: [git], expose: names, budget: 300, compact: false, pinned: [], max_result_tokens: 50}
  same: {prompts: {allow: [a]}, resources: {deny: ["x:*"]}, tools: {deny: [{readOnlyHint: false}]}}
"""


def settings(text: str) -> Settings:
    return parse(text, "servers.yaml", {}, Path("/base")).settings


def rules(text: str = TEXT) -> dict[str | None, ViewRules]:
    return view_rules(settings(text))


def test_servers_say_what_is_listed_of_them_and_how() -> None:
    every = rules()[None].servers
    assert every["git"].apps and not every["virtual"].apps
    git = rules()[None].servers["git"]
    assert (git.expose, git.compact, git.rename) == ("full", False, {"log": "history"})
    assert git.tools == Filter(("get_*", Selector("x", "t")), (Selector(destructive=True), "plain"))
    assert git.resources == Filter(deny=(Selector(tag="private"),))
    assert git.overrides == {
        "get_*": Override(description="d", tags=frozenset({"a"}), pin=True),
        "drop": Override(hide=True, supplied=Supplied({"n": msgspec.Raw(b"1.5")}, {"key": msgspec.Raw(b"[null]")})),
        "look": Override(hints=HintClaims(True, open_world=False)),
    }
    text = "servers: {a: {command: x, tools: {allow: []}, resources: {allow: }}}\nprofiles: {p: {prompts: {allow: []}}}"
    a, p = rules(text)[None].servers["a"], rules(text)["p"]
    assert (a.tools, a.resources, a.prompts) == (Filter(()), Filter(), Filter())
    assert (p.tools, p.resources, p.prompts) == (Filter(), Filter(), Filter(()))


def test_hub_says_what_holds_for_everybody_and_a_profile_otherwise() -> None:
    every = rules()[None]
    assert (every.expose, every.budget, every.compact) == ("auto", 900, True)
    assert (every.pinned, every.max_result_tokens, every.max_name_length) == (("git_*",), 0, 20)
    assert list(every.servers) == ["git", "virtual", "virtual2"] and every.servers["virtual2"] == ServerRules(
        yields=True
    )
    small, same = rules()["small"], rules()["same"]
    assert (small.expose, small.budget, small.compact, small.pinned) == ("names", 300, False, ())
    assert (small.max_result_tokens, list(small.servers)) == (50, ["git"])
    assert (same.expose, same.budget, same.compact, same.pinned) == ("auto", 900, True, ("git_*",))
    assert (same.max_result_tokens, list(same.servers)) == (0, ["git", "virtual", "virtual2"])
    assert (same.prompts, same.resources) == (Filter(("a",)), Filter(deny=("x:*",)))
    assert same.tools == Filter(deny=(Selector(read_only=False),))
    assert executor_server(settings(TEXT)) == "virtual2"


def test_lists_are_shared_only_where_there_are_neither_profiles_nor_tokens() -> None:
    assert [view.shared for view in rules().values()] == [False, False, False]
    assert rules("servers: {a: {command: x}}")[None].shared
    assert not rules("servers: {a: {command: x}}\nhub: {tokens: [{token: t, principal: p}]}")[None].shared


@pytest.mark.parametrize("off", ["off", '"off"', "false", "no"])
def test_servers_say_what_becomes_of_changed_tools_else_the_defaults_else_they_are_warned_of(off: str) -> None:
    servers = f"servers: {{a: {{command: x}}, b: {{command: x, approval: block}}, c: {{command: x, approval: {off}}}}}"
    assert policies(settings(servers)) == {"a": "warn", "b": "block", "c": "off"}
    assert policies(settings(f"{servers}\ndefaults: {{approval: block}}")) == {"a": "block", "b": "block", "c": "off"}


@pytest.mark.parametrize("bad", ["on", "true", "blok", "1", "[]"])
def test_anything_else_is_a_mistake(bad: str) -> None:
    with pytest.raises(ConfigError, match=r"servers\.yaml:1: servers\.a\.approval: "):
        settings(f"servers: {{a: {{command: x, approval: {bad}}}}}")


def test_servers_say_which_hints_are_used_else_the_defaults_else_they_are_trusted() -> None:
    servers = "servers: {a: {command: x}, b: {command: x, hints: approved}, c: {command: x, hints: ignore}}"
    for defaults, of_a in (("", "trust"), ("\ndefaults: {hints: approved}", "approved")):
        found = settings(servers + defaults)
        own = view_rules(found)[None].servers
        assert {name: own[name].hints for name in "abc"} == {"a": of_a, "b": "approved", "c": "ignore"}
        assert confirmed_servers(found) == {name for name in "abc" if own[name].hints == "approved"}


@pytest.mark.parametrize(
    ("server", "place"),
    [
        ("{command: x, hints: yes}", "hints"),
        ("{command: x, per_tool: {t: {annotations: {readOnly: true}}}}", "per_tool.t.annotations.readOnly"),
        ("{command: x, per_tool: {t: {annotations: {readOnlyHint: 3}}}}", "per_tool.t.annotations.readOnlyHint"),
        (
            "{command: x, per_tool: {t: {annotations: {readOnlyHint: true, destructiveHint: true}}}}",
            "per_tool.t.annotations",
        ),
    ],
)
def test_hints_that_mean_nothing_or_contradict_each_other_are_a_mistake(server: str, place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings(f"servers: {{a: {server}}}")
    assert [finding.path for finding in raised.value.findings] == [f"servers.a.{place}"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("servers: {a: {command: x, hints: approved, approval: off}}", "servers.a.hints"),
        ("servers: {a: {command: x, approval: off}}\ndefaults: {hints: approved}", "servers.a.approval"),
    ],
)
def test_hints_that_wait_for_approvals_which_nobody_records_are_warned_of(text: str, place: str) -> None:
    (warning,) = parse(text, "servers.yaml", {}, Path("/base")).warnings
    assert (warning.path, warning.code) == (place, "conflicting_keys")


@pytest.mark.parametrize(
    ("entry", "annotations", "rule"),
    [
        ("", None, "agreed"),
        ("", {"readOnlyHint": True}, "safe"),
        ("", {"idempotentHint": True}, "safe"),
        ("", {"destructiveHint": True, "idempotentHint": True}, "safe"),
        ("", {"destructiveHint": True}, "never"),
        ("", {"readOnlyHint": True, "destructiveHint": True}, "never"),
        ("", {"destructiveHint": False}, "agreed"),
        ("", {"readOnlyHint": "yes", "idempotentHint": 1}, "agreed"),
        ("", "odd", "agreed"),
        ("idempotent: true", {"destructiveHint": True}, "safe"),
        ("hints: ignore", {"readOnlyHint": True}, "agreed"),
        ("hints: approved", {"readOnlyHint": True}, "agreed"),
        ("per_tool: {x: {idempotent: true}}", None, "safe"),
        ("per_tool: {y: {idempotent: true}}", None, "agreed"),
        ("per_tool: {x: {annotations: {readOnlyHint: true}}}", {"destructiveHint": True}, "safe"),
        ("per_tool: {x: {annotations: {destructiveHint: true}}}", {"readOnlyHint": True}, "never"),
        ("hints: ignore, per_tool: {x: {annotations: {idempotentHint: true}}}", None, "safe"),
    ],
)
def test_a_tool_may_run_twice_by_its_settings_and_hints(entry: str, annotations: object, rule: str) -> None:
    configured = settings(f"servers: {{s: {{command: x, {entry}}}}}")
    definition = {"name": "x", "annotations": annotations} if annotations is not None else {"name": "x"}
    assert repetition(configured, "s")("x", msgspec.json.encode(definition)) == rule


CODE = """
hub: {code: ask}
servers: {git: {command: x}}
profiles: {none: {code: off}, reads: {code: reads}, same: {}}
"""


def test_profiles_say_what_scripts_may_call() -> None:
    assert {name: view.code for name, view in rules(CODE).items()} == {
        None: "ask",
        "none": "off",
        "reads": "reads",
        "same": "ask",
    }


def test_scripts_of_a_project_may_call_what_both_profiles_let_them() -> None:
    for outer, inner, code in ((None, "reads", "reads"), ("none", "same", "off"), ("same", None, "ask")):
        view = project_rules(settings(CODE), outer, OverlaySettings(profile=inner))
        assert view is not None and view.code == code


@pytest.mark.parametrize("has_extra", [True, False])
def test_run_code_is_listed_where_the_extra_is_installed(has_extra: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "code", "json" if has_extra else "no_such_module")
    assert {name: view.lists_code for name, view in rules(CODE).items()} == {
        None: has_extra,
        "none": False,
        "reads": has_extra,
        "same": has_extra,
    }
