"""Right values: what becomes of definitions that clients refuse a whole list for.

`rigs.definitions` plays each of these, and many more, against the clients themselves.
"""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.catalog.offers.definitions import parse
from mcp_hub.catalog.pins import pinned_texts
from mcp_hub.protocol.definitions.repair import repaired
from mcp_hub.types import Era, Kind, Snapshot

OBJECT = {"type": "object"}
BASES: dict[Kind, dict[str, Any]] = {
    Kind.TOOL: {"name": "t", "inputSchema": OBJECT},
    Kind.RESOURCE: {"uri": "a:b", "name": "n"},
    Kind.TEMPLATE: {"uriTemplate": "a:{b}", "name": "n"},
    Kind.PROMPT: {"name": "p"},
}
ABSENT = object()
"""In place of the value of a member that is not listed."""


def sent(kind: Kind, members: dict[str, Any]) -> bytes:
    return json.dumps({**BASES[kind], **members}).encode()


def schema(**members: Any) -> dict[str, Any]:
    return {"inputSchema": {**OBJECT, **members}}


REPAIRED: list[tuple[Kind, dict[str, Any], dict[str, Any]]] = [
    *(
        (kind, {member: None}, {member: ABSENT})
        for kind in BASES
        for member in ("title", "description", "icons", "_meta")
    ),
    *((kind, {"_meta": []}, {"_meta": {}}) for kind in BASES),
    *((kind, {"icons": {}}, {"icons": []}) for kind in BASES),
    *((kind, {"annotations": None}, {"annotations": ABSENT}) for kind in BASES if kind is not Kind.PROMPT),
    *((kind, {"annotations": []}, {"annotations": {}}) for kind in BASES if kind is not Kind.PROMPT),
    *(
        (Kind.TOOL, {"annotations": {hint: None, "x": None}}, {"annotations": {"x": None}})
        for hint in ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    ),
    *(
        (kind, {"annotations": {member: None}}, {"annotations": {}})
        for kind in (Kind.RESOURCE, Kind.TEMPLATE)
        for member in ("audience", "priority", "lastModified")
    ),
    (
        Kind.TOOL,
        {"icons": [{"src": "a", "mimeType": None, "sizes": None, "theme": None}]},
        {"icons": [{"src": "a"}]},
    ),
    (Kind.TOOL, {"icons": [{"src": "a", "sizes": "48x48 any"}]}, {"icons": [{"src": "a", "sizes": ["48x48", "any"]}]}),
    (Kind.TOOL, {"execution": None}, {"execution": ABSENT}),
    (Kind.TOOL, {"execution": []}, {"execution": {}}),
    (Kind.TOOL, {"outputSchema": None}, {"outputSchema": ABSENT}),
    (Kind.TOOL, {"outputSchema": True}, {"outputSchema": ABSENT}),
    (Kind.TOOL, {"outputSchema": []}, {"outputSchema": {}}),
    (
        Kind.TOOL,
        {"outputSchema": {**OBJECT, "properties": {"a": None, "b": True, "c": {"default": None}}, "required": None}},
        {"outputSchema": {**OBJECT, "properties": {"a": {}, "b": {}, "c": {"default": None}}}},
    ),
    (Kind.TOOL, {"inputSchema": {}}, schema()),
    (Kind.TOOL, {"inputSchema": []}, schema()),
    (Kind.TOOL, {"inputSchema": None}, schema()),
    (Kind.TOOL, {"inputSchema": {"type": "OBJECT", "title": "x"}}, schema(title="x")),
    (Kind.TOOL, schema(required=False), schema()),
    (Kind.TOOL, {"inputSchema": True}, schema()),
    (Kind.TOOL, {"inputSchema": {"type": None}}, schema()),
    (Kind.TOOL, {"inputSchema": {"type": ["null", "object"], "title": "x"}}, schema(title="x")),
    (Kind.TOOL, {"inputSchema": {"anyOf": [{"required": ["a"]}]}}, schema(anyOf=[{"required": ["a"]}])),
    (Kind.TOOL, schema(properties=None, required=None, **{"$schema": None}), schema()),
    (Kind.TOOL, schema(properties=[], required={}), schema(properties={}, required=[])),
    (
        Kind.TOOL,
        schema(properties={"a": None, "b": True, "c": False, "d": [], "e": {"enum": [None], "const": None}}),
        schema(properties={"a": {}, "b": {}, "c": {"not": {}}, "d": {}, "e": {"enum": [None], "const": None}}),
    ),
    (Kind.PROMPT, {"arguments": None}, {"arguments": ABSENT}),
    (Kind.PROMPT, {"arguments": {}}, {"arguments": []}),
    (
        Kind.PROMPT,
        {"arguments": [{"name": "a", "title": None, "description": None, "required": None}]},
        {"arguments": [{"name": "a", "title": None}]},
    ),
    (Kind.TOOL, {"description": ["a", "b"]}, {"description": "a\nb"}),
    (Kind.TOOL, {"icons": [None, {"src": "a"}]}, {"icons": [{"src": "a"}]}),
    *(
        (
            Kind.PROMPT,
            {"arguments": [{"name": "a", "required": text}]},
            {"arguments": [{"name": "a", "required": value}]},
        )
        for text, value in (("true", True), ("yes", True), (1, True), ("false", False), (0, False))
    ),
    (Kind.RESOURCE, {"mimeType": None, "size": None}, {"mimeType": ABSENT, "size": ABSENT}),
    (Kind.TEMPLATE, {"mimeType": None}, {"mimeType": ABSENT}),
]


@pytest.mark.parametrize(("kind", "members", "listed"), REPAIRED)
def test_a_definition_loses_nothing_and_is_listed(kind: Kind, members: dict[str, Any], listed: dict[str, Any]) -> None:
    (found,), unfit = parse(kind, [sent(kind, members)], "s")
    expected = {name: value for name, value in {**BASES[kind], **listed}.items() if value is not ABSENT}
    assert json.loads(msgspec.json.encode(found.fields)) == expected
    assert unfit == []
    assert json.loads(msgspec.json.encode(found.as_sent)) == {**BASES[kind], **members}


LAST = "lastModified"
ODD: tuple[Any, ...] = ("true", "yes", 1, [])
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
DROPPED: list[tuple[Kind, dict[str, Any], dict[str, Any], str, str]] = [
    (Kind.RESOURCE, {"annotations": {"priority": 5, "x": 1}}, {"annotations": {"x": 1}}, "annotations.priority", "<="),
    (Kind.TEMPLATE, {"annotations": {"audience": ["human"]}}, {"annotations": {}}, "annotations.audience", "human"),
    (Kind.RESOURCE, {"size": 1.5}, {"size": ABSENT}, "size", "multiple of 1"),
    (Kind.TOOL, {"icons": [{"src": "a", "theme": "blue"}]}, {"icons": [{"src": "a"}]}, "icons[0].theme", "blue"),
    *(
        (Kind.RESOURCE, {"annotations": {LAST: text}}, {"annotations": {}}, f"annotations.{LAST}", "regex")
        for text in ("yesterday", "2025-01-12", "2025-01-12T15:00:58", "2025-02-30T15:00:58Z", "2025-01-12 15:00:58Z")
    ),
    *((kind, {member: 5}, {member: ABSENT}, member, "Expected") for kind in BASES
      for member in ("title", "description", "icons", "_meta")),
    *((kind, {"annotations": odd}, {"annotations": ABSENT}, "annotations", "Expected `object`")
      for kind in (Kind.TOOL, Kind.RESOURCE, Kind.TEMPLATE) for odd in ODD[:-1]),
    *((Kind.TOOL, {"annotations": {hint: odd, "x": 1}}, {"annotations": {"x": 1}}, f"annotations.{hint}", "bool")
      for hint in HINTS for odd in ODD),
    (Kind.TOOL, {"annotations": {"title": 5}}, {"annotations": {}}, "annotations.title", "Expected `str`"),
    (Kind.TOOL, {"execution": "x"}, {"execution": ABSENT}, "execution", "Expected `object`"),
    *((Kind.TOOL, {"outputSchema": odd}, {"outputSchema": ABSENT}, "outputSchema", "Expected `object`")
      for odd in (7, False)),
    (Kind.TOOL, {"outputSchema": {"properties": "a"}}, {"outputSchema": ABSENT}, "outputSchema", "properties"),
    (Kind.TOOL, {"icons": ["a.png", {"src": "a"}, {}]}, {"icons": [{"src": "a"}]}, "icons[0]", "Expected `object`"),
    (Kind.TOOL, {"icons": [{"src": "a", "sizes": 5}]}, {"icons": [{"src": "a"}]}, "icons[0].sizes", "array"),
    (Kind.PROMPT, {"arguments": [{"name": "a", "description": 5}]}, {"arguments": [{"name": "a"}]},
     "arguments[0].description", "Expected `str`"),
    (Kind.PROMPT, {"arguments": [{"name": "a", "required": "perhaps"}]}, {"arguments": [{"name": "a"}]},
     "arguments[0].required", "Expected `bool`"),
    *((kind, {"mimeType": 1}, {"mimeType": ABSENT}, "mimeType", "str") for kind in (Kind.RESOURCE, Kind.TEMPLATE)),
    (Kind.RESOURCE, {"size": "big"}, {"size": ABSENT}, "size", "Expected `float`"),
    (Kind.TEMPLATE, {"annotations": {"audience": "user"}}, {"annotations": {}}, "annotations.audience", "array"),
    (Kind.TOOL, {"outputSchema": {**OBJECT, "properties": {"a": {"$ref": "#/$defs/b"}}}}, {"outputSchema": ABSENT},
     "outputSchema", "clients cannot compile it: /properties/a: $ref #/$defs/b leads nowhere"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "members", "listed", "member", "reason"), DROPPED)
def test_a_member_that_clients_refuse_is_left_out_with_its_reason(
    kind: Kind, members: dict[str, Any], listed: dict[str, Any], member: str, reason: str
) -> None:
    (found,), (unfit, *_) = parse(kind, [sent(kind, members)], "s")
    expected = {name: value for name, value in {**BASES[kind], **listed}.items() if value is not ABSENT}
    assert json.loads(msgspec.json.encode(found.fields)) == expected
    assert (unfit.member, unfit.key) == (member, found.key) and reason in unfit.reason
    assert unfit.text.startswith(f"{kind.value} {found.key}: {member} is left out: ")


@pytest.mark.parametrize(
    "members",
    [
        {"lastModified": "2024-02-29T23:59:59.123+02:00"},
        {"lastModified": "2025-01-12T15:00Z"},
        {"priority": 0, "audience": []},
        {"priority": 1.0, "audience": ["user", "assistant"]},
    ],
)
def test_annotations_that_clients_take_stay(members: dict[str, Any]) -> None:
    (found,), unfit = parse(Kind.RESOURCE, [sent(Kind.RESOURCE, {"annotations": members})], "s")
    assert unfit == [] and found.sent is None


@pytest.mark.parametrize("hint", HINTS)
def test_hint_that_cannot_be_read_counts_as_absent(hint: str) -> None:
    (odd,), _ = parse(Kind.TOOL, [sent(Kind.TOOL, {"annotations": {hint: "true"}})], "s")
    (silent,), _ = parse(Kind.TOOL, [sent(Kind.TOOL, {})], "s")
    assert odd.hints.claims == silent.hints.claims and odd.traits.hints == silent.hints.claims.hints()


def test_values_that_are_not_changed_keep_their_spelling() -> None:
    raw = b'{"name":"t", "title":null, "inputSchema":{ "type" : "object","x":1.50, "properties":{"a": { } ,"b":null}}}'
    (found,), _ = parse(Kind.TOOL, [raw], "s")
    schema = b'{"type":"object","x":1.50,"properties":{"a":{ },"b":{}}}'
    assert msgspec.json.encode(found.fields) == b'{"name":"t","inputSchema":%s}' % schema


def test_fields_without_a_fault_are_the_very_same() -> None:
    for kind, base in BASES.items():
        fields = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in base.items()}
        assert repaired(kind, fields) == (fields, [])
        assert repaired(kind, fields)[0] is fields


def test_approval_compares_the_definition_as_the_server_sent_it() -> None:
    raw = sent(Kind.TOOL, {"annotations": {"title": None}, "inputSchema": {"properties": []}})
    texts = pinned_texts(Snapshot("s", Era.HANDSHAKE, {Kind.TOOL: (raw,)}))
    members = {name: bytes(own) for name, own in texts["t"].items()}
    assert members == {"name": b'"t"', "annotations": b'{"title": null}', "inputSchema": b'{"properties": []}'}
