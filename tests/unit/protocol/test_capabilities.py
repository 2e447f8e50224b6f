"""What a client declared against what it takes, and what of it travels on."""

import json

import pytest

from mcp_hub.protocol.capabilities import MAX_RELAYED, SUPERSET, missing, relayed
from mcp_hub.types import JsonObject


@pytest.mark.parametrize(
    ("required", "declared", "lack"),
    [
        ({}, {}, None),
        ({"roots": {}}, {}, "roots"),
        ({"roots": {}}, {"roots": None}, "roots"),
        ({"roots": {"listChanged": True}}, {"roots": {"listChanged": False}}, "roots.listChanged"),
        ({"roots": {"listChanged": True}}, {"roots": {"listChanged": True}}, None),
        ({"sampling": {}, "roots": {}}, {"sampling": {}}, "roots"),
        ({"elicitation": {}}, {"elicitation": {"url": {}}}, None),
        ({"elicitation": {"form": {}}}, {"elicitation": {}}, None),
        ({"elicitation": {"form": {}}}, {"elicitation": {"x-future": {}}}, None),
        ({"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}, "elicitation.form"),
        ({"elicitation": {"url": {}}}, {"elicitation": {}}, "elicitation.url"),
        ({"elicitation": {"url": {}, "form": None}, "roots": None}, {"elicitation": {"url": {}}}, None),
        ({"extensions": {"io.x/y": {"a": 1}}}, {"extensions": {"io.x/z": {}}}, "extensions.io.x/y"),
        ({"extensions": {"io.x/y": {"a": 1}}}, {"extensions": {"io.x/y": {}}}, None),
        ({"x-future": 5}, {"x-future": {}}, None),
    ],
)
def test_the_first_that_is_missing_is_named(required: JsonObject, declared: JsonObject, lack: str | None) -> None:
    assert missing(required, declared) == lack


def test_nothing_is_missing_from_what_the_hub_declares() -> None:
    assert missing(SUPERSET, SUPERSET) is None
    assert all(missing({name: SUPERSET[name]}, {}) == name for name in SUPERSET)


def test_what_was_agreed_with_the_hub_alone_goes_no_further() -> None:
    declared = {**SUPERSET, "x-future": {"a": 1}, "extensions": {}, "experimental": {}, "tasks": {}}
    assert relayed(declared) == {**SUPERSET, "x-future": {"a": 1}}
    assert "tasks" in declared


def test_oversized_capabilities_are_cut_down_to_those_of_the_specification() -> None:
    declared: JsonObject = {"roots": {"x": "y" * MAX_RELAYED}, "sampling": {"tools": {"a": 1}}, "elicitation": 5}
    assert relayed(declared) == {"roots": {}, "sampling": {"tools": {}}}
    assert len(json.dumps(relayed({**SUPERSET, "x-future": "y" * MAX_RELAYED}))) < 200
