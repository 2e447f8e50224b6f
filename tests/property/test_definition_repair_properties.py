"""Definitions of random members: whatever a server lists, what the hub lists of it is read by the strictest model."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.offers.definitions import encode_as, parse
from mcp_hub.protocol.definitions.models import CHECKS
from mcp_hub.protocol.definitions.output_schemas import problem_of_pattern, problem_of_schema
from mcp_hub.types import Kind

MEMBERS = (
    "name uri uriTemplate title description icons _meta annotations execution inputSchema outputSchema arguments "
    "mimeType size audience priority lastModified readOnlyHint src sizes theme x"
).split()
KEYWORDS = (
    "$ref $id $anchor $defs type properties required items anyOf pattern patternProperties enum nullable id minimum"
).split()
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(
    ["", "object", "a:b", "#", "#/properties/a", "#a", "x", "user", "dark", "\\d", "(", "2025-01-12T15:00:58Z"]
)  # fmt: skip
names = st.sampled_from([*MEMBERS, *KEYWORDS, "a", "b"])
values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5), max_leaves=20
)
definitions = st.dictionaries(st.sampled_from(MEMBERS), values, max_size=8)
BASES: dict[Kind, dict[str, Any]] = {
    Kind.TOOL: {"name": "t", "inputSchema": {"type": "object"}},
    Kind.RESOURCE: {"uri": "a:b", "name": "n"},
    Kind.TEMPLATE: {"uriTemplate": "a:{b}", "name": "n"},
    Kind.PROMPT: {"name": "p"},
}


@given(st.sampled_from(list(BASES)), definitions, st.booleans())
def test_a_listed_definition_is_read_by_the_strictest_model_and_is_not_changed_again(
    kind: Kind, members: dict[str, Any], is_based: bool
) -> None:
    raw = msgspec.json.encode({**members, **BASES[kind]} if is_based else {**BASES[kind], **members})
    usable, unfit = parse(kind, [raw], "s")
    assert len(usable) + sum(not own.member for own in unfit) == 1
    for own in usable:
        listed = encode_as(own, own.key)
        CHECKS[kind](listed)
        (again,), rest = parse(kind, [listed], "s2")
        assert again.sent is None and rest == []
        if own.sent is None:
            assert own.fields == msgspec.json.decode(raw, type=dict[str, msgspec.Raw])


@given(st.dictionaries(names, values, max_size=8))
def test_any_object_has_a_verdict_as_a_schema(schema: dict[str, Any]) -> None:
    assert isinstance(problem_of_schema(schema), str | None)


@given(st.text("ab-_\\dDpPkKu{}()[]^$|?*+:<>=!0123,xX/bB", max_size=30))
def test_any_text_has_a_verdict_as_an_expression(text: str) -> None:
    assert isinstance(problem_of_pattern(text), str | None)
