"""What holds for one tool's calls: `task`, `orphan` and `idempotent` of tool, server and defaults."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.defaults import RetrySettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.schema.tools import ToolRules
from mcp_hub.errors import ConfigError
from mcp_hub.globs import first_match
from tests.unit.config.faults import shown, shown_all

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


def findings(body: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        settings(f"\n  git:\n    {body}\n    command: x\n")
    return shown_all(caught)


def test_tool_of_which_nothing_is_said_leaves_everything_to_the_hub() -> None:
    assert settings(" {a: {command: x}}").tool_rules("a", "t") == ToolRules("auto", None, False)


def test_defaults_hold_for_servers_that_say_nothing() -> None:
    assert settings(" {a: {command: x}}", DEFAULTS).tool_rules("a", "t") == ToolRules("required", 90.0, True)


def test_key_of_the_server_goes_before_the_default_even_if_it_is_false() -> None:
    own = settings(" {a: {command: x, idempotent: false, task: auto}}", DEFAULTS)
    assert own.tool_rules("a", "t") == ToolRules("auto", 90.0, False)


@pytest.mark.parametrize(
    ("tool", "rules"),
    [
        ("run_tests", ToolRules("never", 7200.0, True)),  # the exact name alone; the rest is the server's
        ("run_lint_tests", ToolRules("always", "finish", False)),  # the first glob alone
        ("list_tests", ToolRules("required", "cancel", False)),
        ("RUN_lint", ToolRules("never", "finish", False)),  # case matters
        ("[", ToolRules("never", "finish", True)),  # a name that only looks like a glob
        ("other", ToolRules("never", "finish", False)),
    ],
)
def test_exact_name_wins_over_globs_and_these_go_in_written_order(tool: str, rules: ToolRules) -> None:
    assert settings(SERVER).tool_rules("ci", tool) == rules


def test_key_that_a_tool_says_goes_before_the_server_even_if_it_is_false() -> None:
    own = settings(" {a: {command: x, idempotent: true, per_tool: {t: {idempotent: false}}}}", DEFAULTS)
    assert own.tool_rules("a", "t") == ToolRules("required", 90.0, False)


def test_rules_are_found_once_and_bounded_in_number() -> None:
    own = settings(SERVER)
    first = own.tool_rules("ci", "run_tests")
    assert own.tool_rules("ci", "run_tests") is first
    for number in range(5000):
        own.tool_rules("ci", f"t{number}")
    again = own.tool_rules("ci", "run_tests")
    assert again == first and again is not first


def test_copy_with_other_servers_forgets_the_old_rules() -> None:
    old, new = settings(" {a: {command: x, task: never}}"), settings(" {a: {command: x, task: always}}")
    assert old.tool_rules("a", "t").task == "never"
    for deep in (False, True):
        assert old.model_copy(update={"servers": new.servers}, deep=deep).tool_rules("a", "t").task == "always"


def test_effective_settings_of_a_server_include_its_rules() -> None:
    own = settings(SERVER, "defaults: {idempotent: true}").effective("ci")
    assert (own.task, own.orphan, own.idempotent) == ("never", "finish", True)


def test_interpolated_texts_take_the_type_of_their_key() -> None:
    env = {"TASK": "always", "ORPHAN": "5m", "SAFE": "true"}
    body = " {a: {command: x, orphan: '${WORD:-cancel}', per_tool: {t: {orphan: '${ORPHAN}', idempotent: '${SAFE}'}}}}"
    own = settings(body, env=env)
    assert own.tool_rules("a", "t") == ToolRules("auto", 300.0, True)
    assert own.tool_rules("a", "u").orphan == "cancel"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("taks: auto", "taks [unknown_key]"),
        ("per_tol: {}", "per_tol [unknown_key]"),
        ("task: sometimes", "task [invalid_value]"),
        ("orphan: forget", "orphan [invalid_value]"),
        ("orphan: never", "orphan [invalid_value]"),
        ("orphan: [cancel]", "orphan [invalid_value]"),
        ("orphan: 0", "orphan [invalid_value]"),
        ("orphan: -1", "orphan [invalid_value]"),
        ("orphan: 400d", "orphan [invalid_value]"),
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
    assert findings(body) == [f"servers.yaml:3: servers.git.{said}"]


@pytest.mark.parametrize(
    ("rename", "said"), [("{a: c}", "rename [conflicting_keys]"), ("{c: b}", "rename [duplicate_name]")]
)
def test_name_is_said_once_by_rename_or_per_tool(rename: str, said: str) -> None:
    assert findings(f"rename: {rename}\n    per_tool: {{a: {{name: b}}}}") == [f"servers.yaml:3: servers.git.{said}"]


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


def test_bad_default_is_found_where_it_stands() -> None:
    with pytest.raises(ConfigError, match=r"^servers\.yaml:2: defaults\.orphan: .*\[invalid_value\]$"):
        settings(" {a: {command: x}}", "defaults: {orphan: 0}")
    with pytest.raises(ConfigError, match=r"^servers\.yaml:2: defaults\.per_tool: .*\[unknown_key\]$"):
        settings(" {a: {command: x}}", "defaults: {per_tool: {}}")


def test_finding_does_not_show_what_was_put_in() -> None:
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
        RetrySettings(on=["lost"]),
        RetrySettings(on=["lost"]),
        RetrySettings(attempts=4),
    ]


@pytest.mark.parametrize(
    "retry", ["{attempts: 0}", "{attempts: 11}", "{attempts: true}", "{on: [always]}", "{on: lost}", "{retries: 2}"]
)
def test_a_wrong_rule_for_retries_is_a_finding(retry: str) -> None:
    (found,) = findings(f"retry: {retry}")
    assert "servers.git.retry" in found


def test_name_that_two_tools_are_given_is_a_warning() -> None:
    text = "servers:\n  a: {command: x, rename: {p: n}}\n  b:\n    command: x\n    per_tool: {q: {name: n}}\n"
    (warning,) = parse(text, "s", {}, Path("/base")).warnings
    assert shown(warning) == "s:5: servers.b.per_tool.q.name [duplicate_name]" and '"a"' in warning.message


def test_name_that_is_renamed_twice_is_a_warning() -> None:
    text = "servers:\n  a:\n    command: x\n    rename: {p: n}\n    per_tool: {n: {name: m}}\n"
    (warning,) = parse(text, "s", {}, Path("/base")).warnings
    assert shown(warning) == "s:5: servers.a.per_tool.n.name [duplicate_name]" and "rename" in warning.message
