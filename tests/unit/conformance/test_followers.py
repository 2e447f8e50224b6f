"""The vectors of clients (docs/specification/vectors/clients), played by the example of a client's state."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from mcp_hub.conformance.vectors import Scenario, read_all
from tests.streaming import follower as example

SPECIFICATION = Path(__file__).parents[3] / "docs/specification"
SCENARIOS = read_all(SPECIFICATION / "vectors/clients")


def began(client: dict[str, Any]) -> example.Follower:
    return example.Follower(
        is_handshake=client["era"] == "handshake",
        has_token=client.get("token", True),
        stream=client.get("stream"),
        cursor=client.get("cursor", 0),
    )


def hand(follower: example.Follower, step: dict[str, Any]) -> None:
    match step:
        case {"notification": message}:
            follower.notified(message["method"], message["params"])
        case {"result": result}:
            follower.answered(result)
        case {"error": error}:
            follower.failed(error)
        case {"lost": True}:
            follower.lost()
        case {"page": page}:
            follower.page(page)
        case {"refused": refused}:
            follower.refused(refused.get("status"), refused.get("error"))
        case _:
            raise AssertionError(step)


def has(expected: Any, value: Any) -> bool:
    """Objects may have more members."""
    if isinstance(expected, dict):
        return isinstance(value, dict) and all(
            name in value and has(its, value[name]) for name, its in expected.items()
        )
    return bool(expected == value)


def seen(follower: example.Follower, name: str, expected: Any) -> Any:
    match name:
        case "text":
            return {index: follower.text(int(index)) for index in expected}
        case "aux":
            return follower.text(channel="aux")
        case "whole":
            return follower.is_whole
    return getattr(follower, name)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name for one in SCENARIOS])
def test_the_example_of_a_client_passes(scenario: Scenario) -> None:
    first, *steps = scenario.steps
    follower = began(first["client"])
    checks = 0
    for step in steps:
        if "then" not in step:
            hand(follower, step)
            continue
        for name, expected in step["then"].items():
            value = seen(follower, name, expected)
            assert has(expected, value), f"{name} is {value}, not {expected}"
            checks += 1
    assert checks


def documents(step: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each message of the extension in a step, with its schema."""
    if "page" in step:
        yield "read-result.json", step["page"]
    for name, message in (
        ("notification.json", step.get("notification", {}).get("params")),
        ("mark.json", step.get("result")),
    ):
        part = ((message or {}).get("_meta") or {}).get(example.EXTENSION)
        if part is not None:
            yield name, part


def test_messages_of_the_vectors_are_as_their_schemas_say() -> None:
    schemas = {path.name: json.loads(path.read_text()) for path in (SPECIFICATION / "schema").glob("*.json")}
    registry = jsonschema_rs.Registry(list(schemas.items()))
    kinds = set()
    for scenario in SCENARIOS:
        for step in scenario.steps:
            for name, document in documents(step):
                kinds.add(name)
                jsonschema_rs.validator_for(schemas[name], registry=registry).validate(document)
    assert kinds == {"read-result.json", "notification.json", "mark.json"}
