"""Compaction keeps the verdict of schemas of every dialect, also of those that nobody would write."""

import json
import random
from collections.abc import Callable
from typing import Any

import jsonschema_rs
from hypothesis import HealthCheck, assume, example, given, reject, settings
from hypothesis import strategies as st

from mcp_hub.catalog.compact import compact_schema, compact_tool
from tests.captured import encoded
from tests.examples import examples
from tests.property.compact_instances import Instances
from tests.property.compact_schemas import DRAFT_2020_12, Schemas, asks_itself

Json = Any
Verdict = Callable[[Json], bool]

# by the seed of a generator of its own: choice by choice, one document in ten is worth a look
documents = st.integers(0, 1 << 32).map(lambda seed: Schemas(random.Random(seed)).document())


def readings(before: Json, after: Json) -> list[tuple[Verdict, Verdict]]:
    """The verdicts that must agree: without `$schema` a schema is read as draft-07 and as 2020-12.

    Unsatisfied assumption if `before` is no schema of its dialect, or refers to nothing: there is no verdict to keep.
    """
    both = [jsonschema_rs.Draft7Validator, jsonschema_rs.Draft202012Validator]
    try:
        old = [kind(before).is_valid for kind in (both if "$schema" not in before else [jsonschema_rs.validator_for])]
    except jsonschema_rs.ValidationError:
        reject()
    if "$schema" in after or before.get("$schema") == DRAFT_2020_12:
        return [(old[0], jsonschema_rs.validator_for(after).is_valid)]
    return [(verdict, kind(after).is_valid) for verdict, kind in zip(old * 2, both, strict=False)]


unhurried = settings(
    max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@unhurried
@given(documents, st.integers(0, 1 << 20))
def test_a_compacted_schema_has_the_same_verdict_on_every_instance(document: Json, seed: int) -> None:
    assume(not asks_itself(document))
    pairs = readings(document, json.loads(compact_schema(encoded(document))))
    for instance in Instances(document, random.Random(seed)).draw(12):
        for before, after in pairs:
            assert before(instance) is after(instance), instance


@unhurried
@given(documents)
def test_compaction_never_lengthens_and_is_done_after_once(document: Json) -> None:
    raw = encoded(document)
    compacted = compact_schema(raw)
    assert len(compacted) < len(raw) or compacted == raw
    assert compact_schema(compacted) == compacted
    assert compact_tool(b'{"inputSchema":%b}' % raw) == b'{"inputSchema":%b}' % compacted


@given(st.binary(max_size=40) | st.text('{}[]":,$refanyOf0', max_size=40).map(str.encode))
@example(b'{"a":"\\ud800","title":"t"}')
@example(b'{"a":"\xff"}')
def test_what_is_no_schema_stays_byte_for_byte_or_gets_shorter(raw: bytes) -> None:
    assert compact_schema(raw) == raw or len(compact_schema(raw)) < len(raw)
    assert compact_tool(raw) == raw or len(compact_tool(raw)) < len(raw)
