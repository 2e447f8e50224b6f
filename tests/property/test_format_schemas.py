"""Schemas in each format: what a tool takes is valid in what a provider is given (random schemas and instances)."""

import json
import random
from typing import Any

import jsonschema_rs
import pytest

from mcp_hub.formats.arguments import ArgumentNames
from mcp_hub.formats.providers import PROVIDERS, Format
from mcp_hub.formats.schemas.canonical import canonical
from mcp_hub.formats.schemas.emitters import plain, strict
from mcp_hub.formats.schemas.root import merged
from mcp_hub.formats.schemas.subset import NotStrict
from mcp_hub.protocol.rest.calls import LossInfo
from tests.captured import captured, needs_lists
from tests.property.compact_instances import Instances
from tests.property.compact_schemas import DRAFT_2020_12, Schemas, asks_itself

PER_TOOL = 30


def counted(schema: dict[str, Any], into: Format, rng: random.Random) -> int:
    """Instances that the original takes; each is one that the export takes too."""
    dialect = PROVIDERS[into].plain
    losses: list[LossInfo] = []
    before = jsonschema_rs.validator_for(schema, offline=True, validate_formats=False)
    exported = plain(canonical(schema, losses), dialect, losses)
    after = jsonschema_rs.validator_for(exported, offline=True, validate_formats=False)
    names = ArgumentNames(schema, dialect)
    accepted = 0
    for instance in Instances(schema, rng).draw(PER_TOOL):
        if isinstance(instance, dict) and before.is_valid(instance):
            accepted += 1
            given = names.for_provider(instance)
            assert after.is_valid(given), (schema, exported, given, losses)
            assert names.restored(given) == instance
    return accepted


@needs_lists
@pytest.mark.parametrize("into", [into for into in PROVIDERS if into is not Format.OPENAI_RESPONSES])
@pytest.mark.first(1)
def test_what_a_captured_tool_takes_its_export_takes(into: Format) -> None:
    rng = random.Random(18)
    tools = [tool["inputSchema"] for tools in captured().values() for tool in tools]
    accepted = [counted(schema, into, rng) for schema in tools]
    assert len(accepted) == 611
    # otherwise the instances would show nothing
    assert sum(accepted) > 6000
    assert sum(not one for one in accepted) < 40


@pytest.mark.slow
@pytest.mark.parametrize("into", [Format.ANTHROPIC, Format.OPENAI, Format.GEMINI])
def test_what_a_random_schema_takes_its_export_takes(into: Format) -> None:
    rng = random.Random(2026)
    schemas = (Schemas(rng).document() for _ in range(800))
    accepted = 0
    for schema in schemas:
        if not asks_itself(schema) and _is_valid(schema):
            accepted += counted({**schema, "type": "object"}, into, rng)
    assert accepted > 5000


@needs_lists
@pytest.mark.parametrize("into", [Format.ANTHROPIC, Format.OPENAI])
@pytest.mark.first(1)
def test_what_a_model_may_send_under_a_strict_schema_the_tool_takes(into: Format) -> None:
    """Of tools whose constraints the strict schema says: optional parameters may be null, and are left out."""
    rng, facts, sent, enforced = random.Random(3), PROVIDERS[into], 0, 0
    for schema in [tool["inputSchema"] for tools in captured().values() for tool in tools]:
        losses: list[LossInfo] = []
        try:
            found = strict(canonical(schema, losses), facts.strict or facts.plain, losses).schema
        except NotStrict:
            continue
        if any(loss.kind == "described" and loss.what not in ("default", "examples") for loss in losses):
            continue
        enforced += 1
        given, takes = (
            jsonschema_rs.validator_for(one, offline=True, validate_formats=False) for one in (found, schema)
        )
        names = ArgumentNames(schema, facts.strict or facts.plain)
        for instance in Instances(found, rng).draw(PER_TOOL):
            if isinstance(instance, dict) and given.is_valid(instance):
                sent += 1
                assert takes.is_valid(names.restored(instance)), (schema, found, instance)
    assert enforced > 300 and sent > 10 * enforced


@pytest.mark.slow
def test_merged_schemas_take_exactly_what_both_take() -> None:
    rng, exact = random.Random(4), 0
    for _ in range(3000):
        first, second = (_without_references(Schemas(rng).document()["$defs"]["A"]) for _ in range(2))
        if first is None or second is None:
            continue
        found = merged(first, second)
        if found is None:
            continue
        one, other, both = (jsonschema_rs.Draft202012Validator(part) for part in (first, second, found))
        exact += 1
        for instance in (*Instances(first, rng).draw(12), *Instances(found, rng).draw(12)):
            assert both.is_valid(instance) is (one.is_valid(instance) and other.is_valid(instance)), (first, second)
    assert exact > 300


def _without_references(schema: Any) -> dict[str, Any] | None:
    found = canonical({**schema, "$schema": DRAFT_2020_12} if isinstance(schema, dict) else None, [])
    return None if "$ref" in json.dumps(found) or not found else found


def _is_valid(schema: dict[str, Any]) -> bool:
    try:
        jsonschema_rs.validator_for(schema, offline=True, validate_formats=False)
    except (ValueError, jsonschema_rs.ReferencingError):
        return False
    return True
