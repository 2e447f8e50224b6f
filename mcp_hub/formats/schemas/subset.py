"""A canonical schema in a provider's subset, never narrower."""

import re
from functools import cache
from typing import Any, Final

from mcp_hub.errors import HubError
from mcp_hub.formats.schemas.dialects import Dialect
from mcp_hub.formats.schemas.nodes import (
    MAX_DEPTH,
    OF_TYPE,
    Node,
    accepts_null,
    cyclic,
    definition,
    inferred_type,
    noted,
)
from mcp_hub.formats.schemas.root import merged
from mcp_hub.protocol.rest.calls import LossInfo
from mcp_hub.schema import ANNOTATIONS, TYPES, named_types, type_name

_MOST_NODES: Final = 4000
_HARD_PATTERN: Final = re.compile(r"\(\?|\\[bB1-9pPkK]|\{\d{3,}|\{\d*,\d{3,}")
"""Look-around, boundaries, back references, classes by property and long repetitions: not enforced anywhere."""
_KNOWN: Final = frozenset(
    (
        *(keyword for keywords in OF_TYPE.values() for keyword in keywords),
        *("default", "examples", "not", "if", "then", "else", "allOf", "anyOf", "oneOf", "enum", "type"),
    )
)
_NOT_NULL: Final = ("string", "integer", "number", "boolean")
_SCALARS: Final = (*_NOT_NULL, "null")
_ALWAYS: Final = frozenset(("type", "title", "description"))
_CHECKED: Final = frozenset(("format", "pattern", "minItems"))
_COMPOSED: Final = frozenset(("$ref", "allOf", "anyOf", "oneOf", "enum"))
_KEEP: Final = frozenset(("$ref", "anyOf", "properties", "items", "prefixItems", "additionalProperties", "required"))


@cache
def _keywords(dialect: Dialect) -> tuple[frozenset[str], frozenset[str]]:
    keywords = (dialect.keywords or frozenset()) - _KEEP
    return _ALWAYS | (keywords - _CHECKED), keywords & _CHECKED


class NotStrict(HubError):
    """The provider cannot enforce the schema."""


def narrowed(root: Node, dialect: Dialect, losses: list[LossInfo]) -> tuple[Node, int]:
    """A rooted, renamed schema, and its levels of subschemas, each definition by itself.

    Raises: NotStrict, in a strict dialect.
    """
    subset = _Subset(root, dialect, losses)
    return subset.document(), subset.deepest


class _Subset:
    """One run over one schema."""

    def __init__(self, root: Node, dialect: Dialect, losses: list[LossInfo]) -> None:
        self._root = root
        self._dialect = dialect
        self._losses = losses
        self._cyclic = cyclic(root) if "$defs" in root else frozenset()
        self._used: dict[str, Node | None] = {}
        self._nodes = 0
        self.deepest = 0
        """Subschemas inside each other so far; definitions count by themselves."""
        self._taken, self._checked = _keywords(dialect)

    def document(self) -> Node:
        """The whole schema, with the definitions in use."""
        document = self._node({key: value for key, value in self._root.items() if key != "$defs"}, "", 0)
        pending = True
        while pending:
            pending = False
            for name in [name for name, node in self._used.items() if node is None]:
                self._used[name] = self._node(self._root["$defs"][name], f"$defs/{name}", 0)
                pending = True
        return {**document, "$defs": dict(sorted(self._used.items()))} if self._used else document

    def _node(self, node: Node, path: str, depth: int) -> Node:
        self._nodes += 1
        if depth > self.deepest:
            self.deepest = depth
        if self._nodes > _MOST_NODES or depth > MAX_DEPTH:
            return self._any(path, "the schema is too large")
        if self._taken.issuperset(node) and _is_leaf(node):
            return node  # as half of all nodes: nothing to be changed
        if isinstance(node.get("type"), str) and _COMPOSED.isdisjoint(node):
            typed_notes: Node = {}
            reduced = self._typed(node, typed_notes, path, depth)
            return self._noted(reduced, typed_notes, path) if typed_notes else reduced
        node, notes = self._flat(node, path)
        if node.keys() == {"$ref"}:
            return self._reference(node)
        if "oneOf" in node:
            node = self._one_of(node, notes)
        if "anyOf" in node:
            node = self._any_of(node, notes)
        if "anyOf" not in node and ("enum" in node or len(named_types(node)) > 1):
            node = self._split(node, notes)
        if "anyOf" in node:
            parts = [part for part in node["anyOf"] if part != {"not": {}}]
            reduced = self._carried({key: value for key, value in node.items() if key != "anyOf"}, notes, path)
            reduced["anyOf"] = [self._node(part, path, depth + 1) for part in parts]
            return self._noted(reduced if parts else {}, notes, path)
        return self._noted(self._typed(node, notes, path, depth), notes, path)

    def _any(self, path: str, reason: str) -> Node:
        if self._dialect.is_strict:
            raise NotStrict(f"{path or 'the top'}: {reason}")
        self._losses.append(LossInfo(path, "widened", reason))
        return {}

    def _noted(self, node: Node, notes: Node, path: str) -> Node:
        if not notes:
            return node
        self._losses += [LossInfo(path, "described", keyword) for keyword in notes]
        return noted(node, notes)

    def _reference(self, node: Node) -> Node:
        if node["$ref"] in self._cyclic and not self._dialect.takes_cycles:
            raise NotStrict("it is recursive")
        self._used.setdefault(node["$ref"].removeprefix("#/$defs/"), None)
        return node

    def _flat(self, node: Node, path: str) -> tuple[Node, Node]:
        """Without `allOf`; a reference stands alone."""
        notes: Node = {}
        for _ in range(MAX_DEPTH):
            if "$ref" in node and len(node) > 1:
                siblings = {key: value for key, value in node.items() if key != "$ref"}
                target = None if node["$ref"] in self._cyclic else merged(siblings, definition(self._root, node))
                if target is None:
                    wrapped = {key: value for key, value in siblings.items() if key in ANNOTATIONS}
                    dropped = {key: value for key, value in siblings.items() if key not in ANNOTATIONS}
                    return {**wrapped, "anyOf": [{"$ref": node["$ref"]}]}, notes | dropped
                node = target
            elif "allOf" in node:
                whole: Node | None = {key: value for key, value in node.items() if key != "allOf"}
                for part in node["allOf"]:
                    whole = None if whole is None else self._with(whole, part)
                if whole is None:
                    if self._dialect.is_strict:
                        raise NotStrict(f"{path or 'the top'}: allOf cannot be one schema")
                    notes["allOf"] = node["allOf"]
                    whole = {key: value for key, value in node.items() if key != "allOf"}
                node = whole
            else:
                return node, notes
        return {}, notes

    def _with(self, whole: Node, part: Node) -> Node | None:
        for _ in range(MAX_DEPTH):
            if "$ref" not in part:
                return merged(whole, part)
            target = None if part["$ref"] in self._cyclic else definition(self._root, part)
            siblings = {key: value for key, value in part.items() if key != "$ref"}
            combined = None if target is None else merged(siblings, target)
            if combined is None:
                return None
            part = combined
        return None

    def _one_of(self, node: Node, notes: Node) -> Node:
        siblings = {key: value for key, value in node.items() if key != "oneOf"}
        if "anyOf" in node:
            notes["oneOf"] = node["oneOf"]
            return siblings
        return {**siblings, "anyOf": node["oneOf"]}

    def _any_of(self, node: Node, notes: Node) -> Node:
        siblings = {key: value for key, value in node.items() if key != "anyOf" and key not in ANNOTATIONS}
        if not siblings:
            return node
        annotations = {key: value for key, value in node.items() if key in ANNOTATIONS}
        if any(
            len(named_types(part)) or "$ref" in part or "properties" in part or "enum" in part for part in node["anyOf"]
        ):
            parts = [self._with(siblings, part) for part in node["anyOf"]]
            if None not in parts:
                return {**annotations, "anyOf": parts}
        notes["anyOf"] = node["anyOf"]
        return {**annotations, **siblings}

    def _split(self, node: Node, notes: Node) -> Node:
        values = node.get("enum")
        named = named_types(node) or (list(dict.fromkeys(map(type_name, values))) if values is not None else [])
        if values is not None:
            named = _distinct(named)
        parts = [part for name in named if (part := self._of_type(node, name, values)) is not None]
        if not named or not parts:
            return node if values is None else {key: value for key, value in node.items() if key != "enum"}
        if values is not None and any("enum" not in part for part in parts):
            notes["enum"] = values
        if len(parts) == 1:
            return {**{key: value for key, value in node.items() if key in ANNOTATIONS}, **parts[0]}
        annotations = {key: value for key, value in node.items() if key in ANNOTATIONS}
        return {**annotations, "anyOf": parts}

    def _of_type(self, node: Node, name: str, values: list[Any] | None) -> Node | None:
        keywords = OF_TYPE.get("number" if name == "integer" else name, ())
        typed: Node = {"type": name, **{key: node[key] for key in keywords if key in node}}
        if values is None:
            return typed
        fitting = [value for value in values if _has_type(value, name)]
        if not fitting:
            return None
        if name == "null":
            return {"type": "null"}
        if name in self._dialect.enums:
            return {"type": name, "enum": fitting}
        if self._dialect.is_strict:
            raise NotStrict("an enum has a value that is an object or a list")
        return {"type": name}

    def _typed(self, node: Node, notes: Node, path: str, depth: int) -> Node:
        name = node.get("type")
        if name is None and self._dialect.is_strict:
            name = inferred_type(node)
            if name is None:
                raise NotStrict(f"{path or 'the top'}: it takes any value")
            node = {**node, "type": name}
        reduced = self._carried(node, notes, path)
        if name in ("array", None):
            self._array(reduced, node, name, path, depth)
        if name in ("object", None):
            self._object(reduced, node, name, path, depth)
        return reduced

    def _carried(self, node: Node, notes: Node, path: str) -> Node:
        reduced: Node = {}
        for key, value in node.items():
            if key in self._taken or (key in self._checked and self._takes(key, value)):
                reduced[key] = value
            elif key in _KEEP:
                continue  # done where their subschemas are
            elif key in _KNOWN:
                notes[key] = value
            else:
                self._losses.append(LossInfo(path, "dropped", key))
        return reduced

    def _takes(self, keyword: str, value: Any) -> bool:
        match keyword:
            case "format":
                return self._dialect.formats is None or value in self._dialect.formats
            case "pattern":
                return _HARD_PATTERN.search(value) is None
            case _:
                return self._dialect.least_items or value in (0, 1)

    def _array(self, reduced: Node, node: Node, name: str | None, path: str, depth: int) -> None:
        if "prefixItems" in node:
            if "prefixItems" in (self._dialect.keywords or ()):
                reduced["prefixItems"] = [self._node(part, f"{path}[]", depth + 1) for part in node["prefixItems"]]
            elif self._dialect.is_strict:
                raise NotStrict(f"{path}: it is a tuple")
        if "items" in node:
            reduced["items"] = self._node(node["items"], f"{path}[]", depth + 1)
        elif name == "array":
            if self._dialect.is_strict:
                raise NotStrict(f"{path}: a list of any values")
            if "prefixItems" not in reduced:
                reduced["items"] = {}

    def _object(self, reduced: Node, node: Node, name: str | None, path: str, depth: int) -> None:
        below, taken = depth + 1, self._taken
        properties: Node = node.get("properties", {})
        has_room = below < MAX_DEPTH and self._nodes + len(properties) < _MOST_NODES
        named = {
            key: part
            if has_room and taken.issuperset(part) and _is_leaf(part)  # as `_node`, without a call
            else self._node(part, f"{path}.{key}" if path else key, below)
            for key, part in properties.items()
        }
        self._nodes += len(properties)
        if self._dialect.is_strict:
            if name == "object":
                self._closed(reduced, node, named, path)
            return
        if named or (name == "object" and not path):
            reduced["properties"] = named
        if "required" in node:
            reduced["required"] = node["required"]
        additional = node.get("additionalProperties")
        if isinstance(additional, dict):
            additional = self._node(additional, f"{path}{{}}", depth + 1) or True
        if additional is not None and "patternProperties" not in node:
            reduced["additionalProperties"] = additional

    def _closed(self, reduced: Node, node: Node, named: dict[str, Node], path: str) -> None:
        additional = node.get("additionalProperties", node.get("unevaluatedProperties"))
        if additional not in (None, False) or "patternProperties" in node:
            raise NotStrict(f"{path or 'the top'}: it takes properties of any name")
        if additional is None and not named and path:
            raise NotStrict(f"{path}: it is a free-form object")
        demanded = node.get("required", ())
        required = [key for key in demanded if key in named]
        if len(required) < len(demanded):
            raise NotStrict(f"{path or 'the top'}: it requires a property that it does not describe")
        if self._dialect.all_required:
            properties: Node = node["properties"] if named else {}
            for key in named.keys() - required:
                if properties[key].get("type") in _NOT_NULL or not accepts_null(self._root, properties[key]):
                    named[key] = _nullable(named[key])
            required = list(named)
        reduced |= {"properties": named, "additionalProperties": False}
        reduced |= {"required": required} if required or self._dialect.all_required else {}


def _nullable(node: Node) -> Node:
    remaining = node.copy()
    nullable: Node = {key: remaining.pop(key) for key in ("title", "description") if key in remaining}
    offered = remaining["anyOf"] if remaining.keys() == {"anyOf"} else [remaining]
    nullable["anyOf"] = [*offered, {"type": "null"}]
    return nullable


def _is_leaf(node: Node) -> bool:
    if "enum" in node:
        values = node["enum"]
        return node.get("type") == "string" and values != [] and all(isinstance(value, str) for value in values)
    return node.get("type") in _SCALARS


def _distinct(named: list[str]) -> list[str]:
    names: list[str] = [name for name in TYPES if name in named]
    return [name for name in names if name != "integer"] if "number" in names else names


def _has_type(value: object, name: str) -> bool:
    kind = type_name(value)
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return kind == name or (name == "number" and kind == "integer")
