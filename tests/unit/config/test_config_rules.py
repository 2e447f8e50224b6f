"""Rules for calls in the configuration: short forms, and mistakes that are named."""

from pathlib import Path

import pytest

from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError

TOOL = "servers:\n  a:\n    command: x\n    per_tool:\n      t: {%s}\n"


def settings(text: str) -> Settings:
    return parse(text, "servers.yaml", {}, Path("/")).settings


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("ask: always", ("always", None, "caller")),
        ("ask: once", ("once", None, "caller")),
        ("ask: {by: person}", ("always", None, "person")),
        ('ask: [{arguments: {a: "b*"}}]', ("always", [{"arguments": {"a": "b*"}}], "caller")),
        ("ask: {when: once, only_if: [{principal: [x, y]}]}", ("once", [{"principal": ["x", "y"]}], "caller")),
    ],
)
def test_short_forms(written: str, expected: object) -> None:
    ask = settings(TOOL % written).servers["a"].per_tool["t"].ask
    assert ask is not None
    conditions = None if ask.only_if is None else [each.patterns for each in ask.only_if]
    assert (ask.when, conditions, ask.by) == expected


@pytest.mark.parametrize(
    ("written", "place", "problem"),
    [
        ("ask: sometimes", "ask", "expected always, once"),
        ("ask: true", "ask", "expected always, once"),
        ("ask: []", "ask", "is empty"),
        ("allow_if: []", "allow_if", "every call would be refused"),
        ("reason: nope", "reason", "belongs to allow_if or deny_if"),
        ("deny_if: [{}]", "deny_if", "expected a mapping"),
        ("deny_if: [x]", "deny_if", "expected a mapping"),
        ("deny_if: [{arguments: {}}]", "arguments", "is empty"),
        ("deny_if: [{arguments: {a: []}}]", "arguments", "empty list"),
        ("deny_if: [{argument: {a: b}}]", "argument", "unknown key"),
        ("deny_if: [{hints: {readOnly: true}}]", "readOnly", "unknown key"),
        ("deny_if: {arguments: {a: b}}", "deny_if", "list"),
    ],
)
def test_mistake_is_named(written: str, place: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(TOOL % written)
    text = "\n".join(map(str, caught.value.findings))
    assert place in text and problem in text, text


def test_rules_that_nobody_can_fulfil_are_warned_of() -> None:
    text = TOOL % "ask: {by: person}, allow_if: [{claims: {groups: admin}}]"
    loaded = parse(text + "hub: {http: {dashboard: read}}\n", "servers.yaml", {}, Path("/"))
    assert [finding.code for finding in loaded.warnings] == ["nobody_to_ask", "no_claims"]
