"""Compaction of real schemas keeps the verdict on every instance (data outside the repository)."""

import json
import random
from collections.abc import Iterator

import jsonschema_rs
import pytest

from mcp_hub.catalog.compact import compact_schema, compact_tool
from tests.captured import captured, encoded, needs_lists
from tests.property.compact_instances import Instances

PER_TOOL = 60

pytestmark = needs_lists


def captured_tools() -> Iterator[bytes]:
    for tools in captured().values():
        yield from map(encoded, tools)


@pytest.mark.proof
def test_no_captured_schema_changes_its_verdict_on_any_of_36660_instances() -> None:
    rng = random.Random(20_12)
    instances = accepted = one_sided = 0
    for tool in captured_tools():
        schema = json.loads(tool)["inputSchema"]
        before = jsonschema_rs.validator_for(schema, offline=True)
        after = jsonschema_rs.validator_for(compact_schema(encoded(schema)).decode(), offline=True)
        verdicts = []
        for instance in Instances(schema, rng).draw(PER_TOOL):
            verdicts.append(before.is_valid(instance))
            assert after.is_valid(instance) is verdicts[-1], (tool, instance)
        instances += len(verdicts)
        accepted += sum(verdicts)
        one_sided += len(set(verdicts)) < 2
    assert instances == 611 * PER_TOOL
    # otherwise the instances would show nothing
    assert 0.3 < accepted / instances < 0.7
    assert one_sided < 0.1 * 611


def test_captured_tools_lose_a_fifth_of_their_bytes_and_no_other_member_than_the_output_schema() -> None:
    before = after = schemas_before = schemas_after = 0
    for raw in captured_tools():
        compacted = compact_tool(raw)
        assert compact_tool(compacted) == compacted
        old, new = json.loads(raw), json.loads(compacted)
        schema = encoded(old["inputSchema"])
        shorter = compact_schema(schema)
        kept = {**old, "inputSchema": json.loads(shorter)}
        kept.pop("outputSchema", None)
        assert list(new.items()) == list(kept.items())
        before, after = before + len(raw), after + len(compacted)
        schemas_before, schemas_after = schemas_before + len(schema), schemas_after + len(shorter)
    assert (before, schemas_before) == (1_019_636, 600_734)
    assert after <= 806_432
    assert schemas_after <= 520_060
