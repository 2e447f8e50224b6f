"""Patterns of `passthrough`: none lets a method through that the hub knows, however it is spelt."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.cli.commands.check import check
from mcp_hub.config.load.load import load
from mcp_hub.errors import ConfigError
from mcp_hub.fronts.mcp.tasks import READ
from mcp_hub.methods import KNOWN, MOST_PATTERNS, is_foreign, passes, pattern_problem
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.protocol.eras import METHODS
from mcp_hub.protocol.notifications import ACKNOWLEDGED, CANCELLED, CHANGED_LISTS, ROOTS_CHANGED, UPDATED
from mcp_hub.protocol.shape.questions import QUESTIONS

HUBS = sorted(
    {
        *(method for methods in METHODS.values() for method in methods), *QUESTIONS, *CHANGED_LISTS, READ,
        *(spec.list_method for spec in KINDS.values()),
        *(f"tasks/{name}" for name in ("get", "update", "cancel", "list", "result")),
        *(f"events/{name}" for name in ("list", "poll", "stream", "subscribe", "unsubscribe")),
        UPDATED, ROOTS_CHANGED, ACKNOWLEDGED, CANCELLED, "ping", "initialize", "server/discover",
        *(f"notifications/{name}" for name in ("initialized", "progress", "message", "tools/partial_result")),
        "notifications/elicitation/complete", "notifications/tasks/status", "notifications/events/occurred",
    }
)  # fmt: skip
GOOD = [
    "acme/get", "acme/*", "acme/x*", "acme/a/b/*", "com.acme/get", "com.acme.things/*", "acme", "acme-x_y.z",
    "notifications/acme/*", "notifications/acme", "toolsmith/*", "t/call", "pinger", "roots2/list",
]  # fmt: skip
BAD = [
    "", "*", "**", "*/*", "t*/call", "?ools/call", "[t]ools/call", "{tools}/call", "tools*", "tool*", "t*", "*/call",
    "notifications/*", "notifications/t*", "notifications*", "notifications/*/x", "n*", "not*/x", "notifications/",
    "tools/*", "TOOLS/*", "Tools/call", "tools", "tools.x/*", "tools.", "PING", "Initialize", "initialize/x",
    "notifications/TOOLS/*", "notifications/progress", "Notifications/x", "NOTIFICATIONS/acme/*", "notifications/Ping",
    "notifications/initialized", "notifications/notifications/tools/list_changed", "dev.mcp-hub/*", "rpc.discover",
    "io.modelcontextprotocol/*", "\uff54ools/call", "tooIs\u200b/call", "t\u043eols/call", "tools\u2215call", "acme/é",
    "tools/call\n", "acme/*\n", "acme/ *", " acme/*", "acme/*/x", "acme/**", "acme/?", "acme/[a-z]", "acme//x",
    "/acme/x",
    "acme/", "acme/../tools/call", "../tools/call", "./tools/call", "acme\\tools", "$/x", "acme/" + "x" * 200,
    "skills/list", "ui/*", "completion/*", "completions/*", "subscriptions/listen", "server/*", "events/*",
]  # fmt: skip


@pytest.mark.parametrize("pattern", GOOD)
def test_a_namespace_that_is_written_out_may_pass(pattern: str) -> None:
    assert pattern_problem(pattern) is None
    method = pattern.replace("*", "any/thing")
    assert passes((pattern,), method) and not passes((pattern,), method.upper())
    assert not passes((), method) and not passes(("other/*",), method)


@pytest.mark.parametrize("pattern", BAD)
def test_a_pattern_that_could_match_a_method_of_the_hub_is_refused(pattern: str) -> None:
    assert pattern_problem(pattern) is not None
    assert not any(passes((pattern,), method) for method in HUBS), "also where nobody checked it"


@pytest.mark.parametrize("method", HUBS)
def test_every_method_of_the_hub_is_known(method: str) -> None:
    for spelling in (method, method.upper(), method.title()):
        assert not is_foreign(spelling)
        assert pattern_problem(spelling) is not None
        assert not passes((spelling, method, "*", f"{method[0]}*"), spelling)


@given(st.text(max_size=20), st.sampled_from([*HUBS, *(f"{name}/x" for name in sorted(KNOWN))]))
def test_no_pattern_matches_a_method_of_the_hub(pattern: str, method: str) -> None:
    assert not passes((pattern,), method)


@given(st.text(alphabet="tols/cal*?[]. TOn\u200b", max_size=12))
def test_a_pattern_that_is_taken_names_another_namespace(pattern: str) -> None:
    if pattern_problem(pattern) is None:
        assert is_foreign(pattern.replace("*", "x")) and "*" not in pattern.partition("/")[0]


@pytest.mark.parametrize(
    "method", ["acme/x\u0000", "acme/\u00e9", "acme/x/", "acme//x", "acme/.x", "acme/x" * 50, "acme/ x"]
)
def test_a_method_that_is_written_otherwise_does_not_pass(method: str) -> None:
    assert not passes(("acme/*",), method)


def write(root: Path, passthrough: object, **server: object) -> Path:
    file = root / "servers.yaml"
    entry = server or {"command": "true"}
    text = {"servers": {"one": {**entry, "passthrough": passthrough}}}
    file.write_text(json.dumps(text, indent=1), "utf-8")
    return file


@pytest.mark.parametrize("pattern", ["tools/*", "*", "t*/call", "TOOLS/call", "\uff54ools/call", "notifications/*"])
def test_check_refuses_a_pattern_with_its_place_in_the_file(tmp_path: Path, pattern: str) -> None:
    file = write(tmp_path, ["acme/*", pattern])
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    (finding,) = refused.value.findings
    assert finding.path == "servers.one.passthrough[1]"
    assert finding.line is not None
    line = json.loads(file.read_text("utf-8").splitlines()[finding.line - 1].strip().rstrip(","))
    assert line == pattern
    assert "hub" in finding.message or "ASCII" in finding.message


def test_the_number_of_patterns_is_bounded(tmp_path: Path) -> None:
    assert load(write(tmp_path, ["acme/*"] * MOST_PATTERNS), {}).settings.servers["one"].passthrough
    with pytest.raises(ConfigError):
        load(write(tmp_path, ["acme/*"] * (MOST_PATTERNS + 1)), {})


@pytest.mark.parametrize("source", ["local", "skills", "scripts"])
def test_a_source_without_methods_has_no_patterns(tmp_path: Path, source: str) -> None:
    path = "m:f" if source == "local" else str(tmp_path)
    with pytest.raises(ConfigError) as refused:
        load(write(tmp_path, ["acme/*"], **{source: path}), {})
    assert [finding.code for finding in refused.value.findings] == ["misplaced_key"]


def test_check_lists_the_patterns(tmp_path: Path) -> None:
    file = write(tmp_path, ["acme/*", "notifications/acme/x"])
    options = ["--no-start", "--config", str(file)]
    shown = CliRunner().invoke(check, options)
    assert "    lets through acme/*, notifications/acme/x, which the hub does not know" in shown.output.splitlines()
    report = json.loads(CliRunner().invoke(check, [*options, "--json"]).output)
    assert report["servers"]["one"]["passthrough"] == ["acme/*", "notifications/acme/x"]
    assert "lets through" not in CliRunner().invoke(check, ["--no-start", "--config", str(write(tmp_path, []))]).output
