"""Schemas in each format: what a tool takes is valid in what a provider is given (random schemas and instances)."""

import random
from typing import Any

import jsonschema_rs
import pytest

from mcp_hub.formats.arguments import ArgumentNames
from mcp_hub.formats.providers import FACTS, Format
from mcp_hub.formats.records import Loss
from mcp_hub.formats.schemas.canonical import canonical
from mcp_hub.formats.schemas.emitters import plain
from tests.captured import captured, needs_lists
from tests.property.compact_instances import Instances
from tests.property.compact_schemas import Schemas, asks_itself

PROVIDERS = [into for into in Format if into is not Format.MCP]
PER_TOOL = 30


def counted(schema: dict[str, Any], into: Format, rng: random.Random) -> int:
    """Instances that the original takes; each is one that the export takes too."""
    dialect = FACTS[into].plain
    losses: list[Loss] = []
    before = jsonschema_rs.validator_for(schema, offline=True, validate_formats=False)
    exported = plain(canonical(schema, losses), dialect, losses)
    after = jsonschema_rs.validator_for(exported, offline=True, validate_formats=False)
    names = ArgumentNames(schema, dialect)
    accepted = 0
    for instance in Instances(schema, rng).draw(PER_TOOL):
        if isinstance(instance, dict) and before.is_valid(instance):
            accepted += 1
            given = names.given(instance)
            assert after.is_valid(given), (schema, exported, given, losses)
            assert names.restored(given) == instance
    return accepted


@needs_lists
@pytest.mark.parametrize("into", [into for into in PROVIDERS if into is not Format.OPENAI_RESPONSES])
def test_what_a_captured_tool_takes_its_export_takes(into: Format) -> None:
    rng = random.Random(18)
    tools = [tool["inputSchema"] for tools in captured().values() for tool in tools]
    accepted = [counted(schema, into, rng) for schema in tools]
    assert len(accepted) == 611
    # otherwise the instances would show nothing
    assert sum(accepted) > 6000
    assert sum(not one for one in accepted) < 40


@pytest.mark.parametrize("into", [Format.ANTHROPIC, Format.OPENAI, Format.GEMINI])
def test_what_a_random_schema_takes_its_export_takes(into: Format) -> None:
    rng = random.Random(2026)
    schemas = (Schemas(rng).document() for _ in range(800))
    accepted = 0
    for schema in schemas:
        if not asks_itself(schema) and _is_valid(schema):
            accepted += counted({**schema, "type": "object"}, into, rng)
    assert accepted > 5000


def _is_valid(schema: dict[str, Any]) -> bool:
    try:
        jsonschema_rs.validator_for(schema, offline=True, validate_formats=False)
    except (ValueError, jsonschema_rs.ReferencingError):
        return False
    return True
