"""Schemas said shorter with the same verdict on every instance.

Dropped are keywords that assert nothing (but descriptions), definitions that nothing refers to, and `$schema` where the
meaning does not depend on it. A schema without it must keep its meaning both in 2020-12, which MCP presumes
(specification, basic, "JSON Schema usage"), and in draft-07, which many clients presume. A `$ref` stays: definitions in
their places would save 0.3 % of the bytes of 611 real tools. What cannot be proved is left alone (`references`).
"""

import json
from collections.abc import Collection
from typing import NoReturn

import msgspec

from mcp_hub.catalog.compact.keywords import DEFINITIONS, Json, Schema, rebuilt
from mcp_hub.catalog.compact.references import Unproven, height, survey
from mcp_hub.catalog.compact.rules import rules_of
from mcp_hub.catalog.offers.definitions import MAX_DEPTH
from mcp_hub.types import RawObject

MAX_BYTES = 1 << 18  # the longest schema of 611 real tools has 24 kB; the slowest of this length takes a second or two
_MAX_ROUNDS = 8  # a further round may find a little more, and the last one must find nothing; real schemas need two
_OBJECT = msgspec.json.Decoder(RawObject)


def compact_schema(raw: bytes) -> bytes:
    """One encoded schema as short as it gets without a change of meaning, or the same bytes. Never raises.

    Left as they are: schemas of more than `MAX_BYTES`, deeper than `MAX_DEPTH` or with a key twice, and other values.
    """
    shortest = raw
    for _ in range(_MAX_ROUNDS):
        shorter = _shorter(shortest)
        if len(shorter) >= len(shortest):
            return shortest
        shortest = shorter
    return raw


def compact_tool(raw: bytes) -> bytes:
    """One encoded tool definition with a compact `inputSchema` and no `outputSchema`, else the same. Never raises."""
    try:
        fields = _OBJECT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw
    kept = {name: value for name, value in fields.items() if name != "outputSchema"}
    if "inputSchema" in kept:
        kept["inputSchema"] = msgspec.Raw(compact_schema(bytes(kept["inputSchema"])))
    return raw if kept == fields else msgspec.json.encode(kept)


def _shorter(raw: bytes) -> bytes:
    """One round: the schema encoded anew, or `raw`."""
    if len(raw) > MAX_BYTES:
        return raw
    try:
        schema = _decoded(raw)
        if not isinstance(schema, dict) or height(schema) > MAX_DEPTH:
            return raw
        return msgspec.json.encode(_compacted(schema))
    except (ValueError, RecursionError):
        return raw


def _decoded(raw: bytes) -> Json:
    """Raises: ValueError (also for a key twice, where decoders differ), RecursionError."""
    value: Json = json.loads(
        raw.decode(), object_pairs_hook=_unique, parse_int=msgspec.Raw, parse_float=msgspec.Raw, parse_constant=_reject
    )
    return value


def _unique(pairs: list[tuple[str, Json]]) -> Schema:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key twice")
    return members


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _compacted(root: Schema) -> Schema:
    try:
        references = survey(root)
        rules = rules_of(root, references)
    except Unproven:
        return root
    done: dict[int, Schema] = {}
    for schema in reversed(references.schemas):  # inner before outer, so that depth costs no stack
        members = rebuilt(schema, lambda inner: done[id(inner)])
        members = rules.without_idle(schema, members, is_root=schema is root)
        done[id(schema)] = rules.nullable(schema, members)
    return _without_unneeded(done[id(root)], references.needed)


def _without_unneeded(root: Schema, needed: Collection[tuple[str, str]]) -> Schema:
    """Without definitions that nothing leads to."""
    kept = dict(root)
    for keyword in DEFINITIONS & root.keys():
        if isinstance(value := root[keyword], dict):
            kept[keyword] = {name: one for name, one in value.items() if (keyword, name) in needed}
            if not kept[keyword]:
                del kept[keyword]
    return kept
