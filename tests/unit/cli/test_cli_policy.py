"""`mcp-hub policy test`: the order of all rules about a call, as a table."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mcp_hub.cli import main

CONFIG = """
hub: {ask: once}
profiles:
  narrow: {tools: {deny: ["hidden_*"]}, ask: {when: always, by: person}}
  elsewhere: {servers: []}
servers:
  notes:
    command: "true"
    prefix: never
    tools: {deny: ["gone_*"]}
    per_tool:
      "*": {deny_if: [{arguments: {repo: "secret/*"}}, {principal: mallory}], reason: "not that"}
      delete_*: {allow_if: [{arguments: {repo: "team/*"}}, {claims: {groups: admin}}]}
      delete_all: {ask: {when: always, by: person}}
      show: {annotations: {readOnlyHint: true}, ask: [{arguments: {repo: "team/x"}}]}
      off: {hide: true}
"""
NOTES = "servers.notes"
TEAM, SECRET, OTHER = {"repo": "team/a"}, {"repo": "secret/a"}, {"repo": "other/a"}


def judged(root: Path, sample: dict[str, Any]) -> tuple[int, Any]:
    config = root / "servers.yaml"
    config.write_text(CONFIG)
    call = root / "call.json"
    call.write_text(json.dumps({"server": "notes", **sample}))
    env = {"MCP_HUB_STATE_DIR": str(root / "state")}
    result = CliRunner().invoke(main, ["policy", "test", str(call), "--json", "--config", str(config)], env=env)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize(
    ("sample", "verdict", "rule"),
    [
        # a profile and filters decide before conditions
        ({"tool": "write", "arguments": SECRET, "profile": "elsewhere"}, "denied", "profiles.elsewhere.servers"),
        ({"tool": "gone_x", "arguments": SECRET}, "denied", f"{NOTES}.tools"),
        ({"tool": "hidden_x", "arguments": SECRET, "profile": "narrow"}, "denied", "profiles.narrow.tools"),
        ({"tool": "off", "arguments": TEAM}, "denied", f'{NOTES}.per_tool["off"].hide'),
        # every deny before any allow, and both before ask
        ({"tool": "delete_all", "arguments": SECRET}, "denied", f'{NOTES}.per_tool["*"].deny_if[0]'),
        ({"tool": "delete_all", "arguments": {}}, "denied", f'{NOTES}.per_tool["*"].deny_if[0]'),
        (
            {"tool": "delete_all", "arguments": TEAM, "principal": "mallory"},
            "denied",
            f'{NOTES}.per_tool["*"].deny_if[1]',
        ),
        ({"tool": "delete_all", "arguments": OTHER}, "denied", f'{NOTES}.per_tool["delete_*"].allow_if'),
        # what asks: of the tool, of the hub, of the profile; the strictest holds
        ({"tool": "delete_all", "arguments": TEAM}, "asks", f'{NOTES}.per_tool["delete_all"].ask'),
        (
            {"tool": "delete_all", "arguments": OTHER, "claims": {"groups": ["admin"]}},
            "asks",
            f'{NOTES}.per_tool["delete_all"].ask',
        ),
        ({"tool": "write", "arguments": TEAM}, "asks", "hub.ask"),
        ({"tool": "write", "arguments": TEAM, "profile": "narrow"}, "asks", "profiles.narrow.ask"),
        ({"tool": "write", "arguments": TEAM, "hints": {"readOnlyHint": True}}, "passes", None),
        ({"tool": "show", "arguments": TEAM}, "passes", None),
        ({"tool": "show", "arguments": {"repo": "team/x"}}, "asks", f'{NOTES}.per_tool["show"].ask'),
    ],
)
def test_rule_that_decides(tmp_path: Path, sample: dict[str, Any], verdict: str, rule: str | None) -> None:
    code, found = judged(tmp_path, sample)
    assert (found["verdict"], found["rule"], code) == (verdict, rule, int(verdict == "denied"))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"server":"notes"}', '{"server":"x","tool":"y"}', '{"tools":1}'])
def test_mistake_in_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "servers.yaml").write_text(CONFIG)
    (tmp_path / "call.json").write_text(text)
    line = ["policy", "test", str(tmp_path / "call.json"), "--config", str(tmp_path / "servers.yaml")]
    result = CliRunner().invoke(main, line, env={"MCP_HUB_STATE_DIR": str(tmp_path / "state")})
    assert result.exit_code == 2 and "[" in result.stderr
