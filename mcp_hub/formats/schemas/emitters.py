"""A tool's schema for one provider: plain, or strict if possible."""

from typing import Final, NamedTuple

import msgspec

from mcp_hub.formats.schemas.dialects import STRICT_OPTIONAL, STRICT_TOOLS, STRICT_UNIONS, Dialect
from mcp_hub.formats.schemas.nodes import Node, children, definition
from mcp_hub.formats.schemas.renames import renamed, renames
from mcp_hub.formats.schemas.root import rooted
from mcp_hub.formats.schemas.subset import NotStrict, Subset
from mcp_hub.protocol.rest.calls import LossInfo
from mcp_hub.schema import named_types

_LONG: Final = 15_000
"""Characters of an enum of more than 250 values."""
OVER: Final = (
    f"one request takes {STRICT_TOOLS} strict tools with {STRICT_OPTIONAL} optional parameters and {STRICT_UNIONS} "
    "with alternatives, and those before this tool use them"
)
"""The reason of a tool that Anthropic would enforce in a smaller request."""


class _Strictness(NamedTuple):
    """A strict schema, with figures that providers sum over a request."""

    schema: Node
    optional: int
    unions: int


def plain(schema: Node, dialect: Dialect, losses: list[LossInfo]) -> Node:
    """A schema that is not enforced; never narrower."""
    root = _named(rooted(schema, losses), dialect, losses)
    if dialect.keywords is not None:
        return Subset(root, dialect, losses).document()
    return _with_items(root)


def strict(schema: Node, dialect: Dialect, losses: list[LossInfo], most_optional: int | None = None) -> _Strictness:
    """A schema to enforce. Raises: NotStrict, also above `most_optional` optional properties at the top."""
    root = _named(rooted(schema, losses), dialect, losses)
    if most_optional is not None and len(root["properties"]) - len(root.get("required", ())) > most_optional:
        raise NotStrict(OVER)
    subset = Subset(root, dialect, losses)
    document = subset.document()
    if dialect.levels and not _is_small(document, subset.deepest, dialect):
        _measure(document, dialect)
    if dialect.all_required:
        return _Strictness(document, 0, 0)
    nodes = _all(document)
    optional = sum(len(node.get("properties", ())) - len(node.get("required", ())) for node in nodes)
    parts = (part for node in nodes for part in node.get("properties", {}).values())
    return _Strictness(document, optional, sum("anyOf" in part or isinstance(part.get("type"), list) for part in parts))


def _named(root: Node, dialect: Dialect, losses: list[LossInfo]) -> Node:
    names = renames(root, dialect.parameters)
    if not names:
        return root
    losses += (LossInfo(old, "renamed", new) for old, new in names.items())
    return renamed(root, names)


def _with_items(node: Node) -> Node:
    """OpenAI refuses an array without `items`."""
    lacking = [part for part in _all(node) if "array" in named_types(part) and "items" not in part]
    for part in lacking:
        part["items"] = {}
    return node


def _all(root: Node) -> list[Node]:
    nodes, pending = [], [root, *root.get("$defs", {}).values()]
    while pending:
        node = pending.pop()
        nodes.append(node)
        pending += children(node)
    return nodes


def _is_small(root: Node, deepest: int, dialect: Dialect) -> bool:
    if deepest >= dialect.levels or "$defs" in root:
        return False
    text = msgspec.json.encode(root)
    return len(text) <= _LONG and text.count(b",") < dialect.values


def _measure(root: Node, dialect: Dialect) -> None:
    nodes = _all(root)
    names: list[str] = []
    values: list[object] = []
    containers = 0
    for node in nodes:
        names += node.get("properties", ())
        values += node.get("enum", ())
        containers += "properties" in node or "items" in node
    strings = [*names, *root.get("$defs", ()), *(value for value in values if isinstance(value, str))]
    if len(names) > dialect.properties:
        raise NotStrict(f"it has more than {dialect.properties} properties")
    if len(values) > dialect.values:
        raise NotStrict(f"its enums have more than {dialect.values} values")
    if sum(map(len, strings)) > dialect.strings:
        raise NotStrict(f"its names and values have more than {dialect.strings} characters")
    if any(_is_long(node["enum"]) for node in nodes if "enum" in node):
        raise NotStrict(f"an enum of more than 250 values has more than {_LONG} characters")
    if containers > dialect.levels and _levels(root, root, frozenset(), 0, dialect.levels) > dialect.levels:
        raise NotStrict(f"it has more than {dialect.levels} levels")


def _is_long(values: list[object]) -> bool:
    return len(values) > 250 and sum(len(value) for value in values if isinstance(value, str)) > _LONG


def _levels(root: Node, node: Node, around: frozenset[str], level: int, limit: int) -> int:
    """A cycle counts once."""
    if level > limit:
        return level
    if "$ref" in node:
        name = node["$ref"]
        return level if name in around else _levels(root, definition(root, node), around | {name}, level, limit)
    depth = level + (not {"properties", "items"}.isdisjoint(node))
    return max([depth, *(_levels(root, child, around, depth, limit) for child in children(node))])
