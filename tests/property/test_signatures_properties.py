"""Whatever a stranger's definition says, a signature is one bounded line that shows everything that is in it."""

import json
import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.discovery.answers import ServerAbout, answer, exact, overview
from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.catalog.texts import (
    all_names,
    counted,
    cut,
    first_sentence,
    one_line,
    parameter_notes,
    sentences,
    signature,
)

odd = st.sampled_from("\n\r\t\x00\x1b\x85\u2028\u202e\u200b\ufeff\U000e0041\ue000[]().:,{}'\" aé中")
texts = st.one_of(st.text(max_size=40), st.text(odd, max_size=40))
KEYS = ["type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "enum", "const", "$ref", "$defs"]
WORDS = ["string", "array", "object", "null", "#", "#/$defs/a", "#/properties/a", "#/properties/a/items"]
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(WORDS),
    texts,
)
keys = st.one_of(st.sampled_from([*KEYS, "a", "description"]), texts)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=25,
)
schemas = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(texts, values, max_size=8)},
    optional={"required": values, "$defs": st.dictionaries(st.sampled_from("ab"), values)},
)
tools = st.fixed_dictionaries({}, optional={"description": values, "title": values, "inputSchema": schemas | values})
names = st.text("abc_-", min_size=1, max_size=12)


def encoded(tool: Any) -> bytes:
    return json.dumps(tool).encode(errors="replace")


def is_seen(text: str) -> bool:
    return all(unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} for char in text)


@given(tools, st.integers(0, 300))
def test_a_signature_is_one_line_of_bounded_length(tool: Any, width: int) -> None:
    line = signature("server_tool", encoded(tool), width)
    assert len(line) <= width and is_seen(line)


@given(tools)
def test_required_parameters_come_first_and_none_is_forgotten(tool: Any) -> None:
    line = signature("t", encoded(tool), 10_000)
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and not line.startswith("t()"):
        assert line.count("?") + line.count(",") + 1 >= len(properties)


@given(tools, st.integers(-5, 400))
def test_notes_keep_to_their_budget(tool: Any, budget: int) -> None:
    notes = parameter_notes(encoded(tool), budget)
    assert sum(map(len, notes)) <= max(budget, 0) and all(map(is_seen, notes))


@given(tools)
def test_a_definition_alone_is_one_line_of_what_it_was(tool: Any) -> None:
    text = exact(encoded(tool))
    assert is_seen(text)
    assert json.loads(text).get("description") == json.loads(encoded(tool)).get("description")


@given(st.lists(tools, max_size=4), st.booleans(), st.sampled_from(["brief", "full"]), st.integers(-1, 300))
def test_an_answer_has_no_lines_but_those_of_hits_and_the_hub(
    found: list[Any], is_weak: bool, detail: Any, budget: int
) -> None:
    raws = {f"t{place}": encoded(tool) for place, tool in enumerate(found)}
    hits = [Hit(name, 1.0, (), {}, is_weak) for name in raws]
    text = answer(hits, raws, {"s": 1}, detail=detail, budget_tokens=budget)
    own = ("No tool fits", "No close match", "Those in one line", "  ", "{")
    for line in text.splitlines():
        assert line.startswith((*own, *(f"{name}(" for name in raws))) or line.endswith(" more were left out.")


@given(st.dictionaries(names, st.lists(names, max_size=6, unique=True), max_size=5), st.integers(0, 200))
def test_all_names_are_said_or_servers_within_the_limit(groups: dict[str, list[str]], limit: int) -> None:
    text = counted({server: len(listed) for server, listed in groups.items()}, limit)
    assert len(text.encode()) <= max(limit, len("…".encode()))
    said = [line for line in all_names(groups).split("\n") if line]
    for line, listed in zip(said, filter(None, groups.values()), strict=True):
        names_text = line.rpartition(": ")[2]
        shared, is_grouped, names_behind = names_text.rpartition("{")
        grouped, _, others = names_behind.partition("}") if is_grouped else ("", "", names_text)
        whole = [shared + name for name in grouped.split(" ")] if is_grouped else []
        assert sorted(whole + others.split()) == sorted(listed)


@given(st.text(odd, max_size=200), st.integers(0, 60))
def test_text_of_strangers_is_shown_on_one_line(text: str, limit: int) -> None:
    for line in (one_line(text, limit), first_sentence(text, limit), cut(one_line(text), limit)):
        assert len(line) <= limit and is_seen(line)
    assert all(map(is_seen, sentences(text)))
    assert one_line(one_line(text)) == one_line(text)


@given(st.lists(st.text(odd, max_size=300), min_size=1, max_size=6))
def test_servers_have_a_line_each_whatever_they_say(purposes: list[str]) -> None:
    lines = overview([ServerAbout("s", 1, purpose) for purpose in purposes], 10_000).split("\n")
    assert len(lines) == len(purposes) and all(map(is_seen, lines))
