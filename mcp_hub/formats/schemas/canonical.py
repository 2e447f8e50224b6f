"""Any JSON Schema as one of 2020-12."""

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

from mcp_hub.formats.schemas.nodes import MAX_DEPTH, NESTED, Node, loosened
from mcp_hub.protocol.rest.calls import LossInfo
from mcp_hub.schema import ANNOTATIONS, LISTS, NAMED, ONE, TYPES, identified, joined, named_types, resolve

_REFERENCES: Final = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
"""A dynamic one is taken for a plain one: the schema is a single document."""
_DROPPED: Final = _REFERENCES | frozenset(
    ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment")
    + ("definitions", "$defs")
)
_MODERN_ONLY: Final = frozenset(
    (
        *("prefixItems", "dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"),
        *("minContains", "maxContains", "$recursiveRef", "$dynamicRef"),
    )
)
"""Keywords that drafts 4 to 7 do not know, and so ignore."""
_IF: Final = frozenset(("if", "then", "else"))
_IGNORED: Final = {
    "3": _MODERN_ONLY | _IF | {"contains", "propertyNames"},
    "4": _MODERN_ONLY | _IF | {"contains", "propertyNames"},
    "6": _MODERN_ONLY | _IF,
    "7": _MODERN_ONLY,
    "2019-09": frozenset(("prefixItems", "$dynamicRef")),
}
_SAME_VALUE: Final = _IF | {"allOf", "anyOf", "oneOf", "not", "dependentSchemas"}
_DRAFT: Final = re.compile(r"json-schema\.org/draft(?:-0|/)(3|4|6|7|2019-09)/")
_ODD: Final = re.compile(r"[^A-Za-z0-9_.-]")
_OF_LEAVES: Final = frozenset(("type", "title", "description", "default", "enum"))
_STRINGS: Final = frozenset(("pattern", "format", "title", "description"))
_NUMBERS: Final = frozenset(
    (
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minContains", "maxContains"),
    )
)


def canonical(schema: object, losses: list[LossInfo]) -> Node:
    """The schema in 2020-12: references into `$defs`, `const` as `enum`, tuples as `prefixItems`, booleans as objects.

    Never narrower. Below 50 levels anything is valid.
    """
    return _Normaliser(schema if isinstance(schema, dict) else {}, losses).document()


class _Normaliser:
    def __init__(self, root: Node, losses: list[LossInfo]) -> None:
        dialect = root.get("$schema")
        self._root = root
        self._losses = losses
        version = _DRAFT.search(dialect) if isinstance(dialect, str) else None
        draft = version[1] if version else ""
        self._ignored = _IGNORED.get(draft, frozenset())
        self._is_legacy = draft in tuple("3467")
        self._is_draft_4 = draft in ("3", "4")
        self._names: dict[str, str] = {}
        self._pending: list[tuple[str, object]] = []
        self._definitions: dict[str, Node] = {}
        self._identified: tuple[dict[int, str], dict[str, object]] | None = None

    def document(self) -> Node:
        document = self._node(self._root, "", 0)
        while self._pending:
            name, target = self._pending.pop()
            self._definitions[name] = self._node(target, f"/$defs/{name}", 0)
        if self._definitions:
            self._end_circles()
            document["$defs"] = dict(sorted(self._definitions.items()))
        return loosened(document) if any(loss.kind == "widened" for loss in self._losses) else document

    def _end_circles(self) -> None:
        """Takes out references that come back to the same value: no validator ends with them."""
        circles = {f"#/$defs/{name}": _at_once(node) for name, node in self._definitions.items()}
        while ended := [name for name, nodes in circles.items() if not any(at.get("$ref") in circles for at in nodes)]:
            for name in ended:
                del circles[name]
        for name, nodes in circles.items():
            self._losses.append(LossInfo(name.removeprefix("#"), "widened", "$ref leads back to itself"))
            for node in nodes:
                if node.get("$ref") in circles:
                    del node["$ref"]

    def _node(self, schema: object, path: str, depth: int) -> Node:
        if not isinstance(schema, dict) or not schema:
            return {"not": {}} if schema is False else {}
        if depth > MAX_DEPTH:
            self._losses.append(LossInfo(path, "widened", f"more than {MAX_DEPTH} levels"))
            return {}
        if _OF_LEAVES.issuperset(schema) and _is_leaf(schema):
            return schema.copy()  # as half of all nodes: nothing to be changed
        source = self._understood(schema)
        node: Node = {}
        if not _REFERENCES.isdisjoint(source):
            self._reference(node, schema, path)
        for keyword, value in source.items():
            if keyword == "type" and value in TYPES:
                node["type"] = value
            elif keyword in _SPECIAL:
                _SPECIAL[keyword](self, node, source, path, depth)
            elif keyword in NESTED:
                self._nested(node, source, keyword, path, depth)
            elif keyword not in _DROPPED and _is_sound(keyword, value):
                node[keyword] = value
        return node

    def _nested(self, node: Node, source: Node, keyword: str, path: str, depth: int) -> None:
        value, below = source[keyword], depth + 1
        if keyword == "items" and isinstance(value, list):
            self._items(node, source, path, depth)
        elif keyword in ONE:
            if keyword != "additionalItems":
                node[keyword] = self._keyword(keyword, value, path, depth)
        elif keyword in LISTS and isinstance(value, list) and value:
            parts = [self._node(part, f"{path}/{keyword}/{at}", below) for at, part in enumerate(value)]
            node[keyword] = [*node.get(keyword, ()), *parts]
        elif keyword in NAMED and isinstance(value, dict):
            named = {
                name: part.copy()
                if isinstance(part, dict)
                and part
                and below <= MAX_DEPTH
                and _OF_LEAVES.issuperset(part)
                and _is_leaf(part)
                else self._node(part, f"{path}/{name}", below)
                for name, part in value.items()
            }
            node[keyword] = {**node[keyword], **named} if keyword in node else named

    def _keyword(self, keyword: str, value: object, path: str, depth: int) -> Any:
        if keyword in ("additionalProperties", "unevaluatedProperties") and isinstance(value, bool):
            return value
        return self._node(value, f"{path}/{keyword}", depth + 1)

    def _understood(self, schema: Node) -> Node:
        """Drafts 4 to 7 ignore what stands beside a reference."""
        if self._is_legacy and "$ref" in schema:
            return {key: value for key, value in schema.items() if key in ANNOTATIONS or key == "$ref"}
        if self._ignored.isdisjoint(schema):
            return schema
        return {key: value for key, value in schema.items() if key not in self._ignored}

    def _type(self, node: Node, source: Node, path: str, depth: int) -> None:
        types = [name for name in named_types(source) if name in TYPES]
        if types:
            node["type"] = types[0] if len(types) == 1 else types

    def _reference(self, node: Node, schema: Node, path: str) -> None:
        """`schema` is the subschema itself, by which its base URI is known."""
        reference = schema.get("$ref", schema.get("$dynamicRef", schema.get("$recursiveRef")))
        if self._identified is None:  # most schemas have no reference
            self._identified = identified(self._root)
        bases, targets = self._identified
        pointer = reference if isinstance(reference, str) else ""
        pointer = joined(bases.get(id(schema), ""), pointer) if bases else pointer
        target = self._target(pointer, targets) if isinstance(reference, str) else None
        if target is None:
            self._losses.append(LossInfo(path, "widened", f"$ref {reference!r} leads nowhere in this schema"))
            return
        if pointer not in self._names:
            self._names[pointer] = name = self._named(pointer)
            self._pending.append((name, target))
        node["$ref"] = f"#/$defs/{self._names[pointer]}"

    def _target(self, pointer: str, targets: dict[str, object]) -> object:
        uri, _, fragment = pointer.partition("#")
        if not targets:
            target = resolve(self._root, pointer)
        elif pointer.removesuffix("#") in targets:
            target = targets[pointer.removesuffix("#")]
        elif (decoded := unquote(pointer)) in targets:
            target = targets[decoded]
        else:
            target = resolve(targets[uri], f"#{fragment}") if uri in targets else None
        return target if isinstance(target, dict | bool) else None

    def _named(self, pointer: str) -> str:
        uri, _, fragment = pointer.partition("#")
        source = (fragment or uri).rpartition("/")[2] if "/" in pointer else fragment
        name = _ODD.sub("_", unquote(source)) if source or "/" in pointer else "root"
        taken, base, number = set(self._names.values()), name or "empty", 2
        name = base
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        return name

    def _const(self, node: Node, source: Node, path: str, depth: int) -> None:
        if not self._is_draft_4 and "enum" not in node:
            node["enum"] = [source["const"]]
        elif not self._is_draft_4:
            node["allOf"] = [*node.get("allOf", ()), {"enum": [source["const"]]}]

    def _enum(self, node: Node, source: Node, path: str, depth: int) -> None:
        if isinstance(source["enum"], list) and "enum" not in node:
            node["enum"] = source["enum"]
        elif isinstance(source["enum"], list):
            node["allOf"] = [*node.get("allOf", ()), {"enum": source["enum"]}]

    def _required(self, node: Node, source: Node, path: str, depth: int) -> None:
        if isinstance(source["required"], list):
            node["required"] = list(dict.fromkeys(name for name in source["required"] if isinstance(name, str)))

    def _bound(self, node: Node, source: Node, path: str, depth: int) -> None:
        for exclusive, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            limit, is_open = source.get(plain), source.get(exclusive)
            if is_open is True and _is_number(limit):
                node[exclusive] = limit
            else:
                node.update({key: value for key, value in ((plain, limit), (exclusive, is_open)) if _is_number(value)})

    def _items(self, node: Node, source: Node, path: str, depth: int) -> None:
        if source["items"]:
            node["prefixItems"] = [self._node(part, f"{path}/items", depth + 1) for part in source["items"]]
        if "additionalItems" in source:
            node["items"] = self._node(source["additionalItems"], f"{path}/additionalItems", depth + 1)

    def _dependencies(self, node: Node, source: Node, path: str, depth: int) -> None:
        """Later drafts ignore it; validators often do not."""
        if not self._is_legacy or not isinstance(source["dependencies"], dict):
            self._losses.append(LossInfo(path, "widened", "dependencies"))
            return
        named = source["dependencies"].items()
        lists = {name: value for name, value in named if isinstance(value, list)}
        schemas = {name: self._node(value, path, depth + 1) for name, value in named if name not in lists}
        if lists:
            node["dependentRequired"] = lists
        if schemas:
            node["dependentSchemas"] = schemas


_SPECIAL: Final[dict[str, Callable[[_Normaliser, Node, Node, str, int], None]]] = {
    "type": _Normaliser._type,
    "const": _Normaliser._const,
    "enum": _Normaliser._enum,
    "required": _Normaliser._required,
    "minimum": _Normaliser._bound,
    "maximum": _Normaliser._bound,
    "exclusiveMinimum": _Normaliser._bound,
    "exclusiveMaximum": _Normaliser._bound,
    "dependencies": _Normaliser._dependencies,
}


def _at_once(node: Node) -> list[Node]:
    """The node and its subschemas for the same value."""
    nodes = [node]
    for current in nodes:
        for keyword in _SAME_VALUE & current.keys():
            value = current[keyword]
            nodes += value if isinstance(value, list) else value.values() if keyword in NAMED else [value]
    return nodes


def _is_leaf(schema: Node) -> bool:
    """Whether a node with only `_OF_LEAVES` stays unchanged."""
    return (
        schema.get("type") in TYPES
        and isinstance(schema.get("description", ""), str)
        and isinstance(schema.get("title", ""), str)
        and isinstance(schema.get("enum", []), list)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_sound(keyword: str, value: object) -> bool:
    if keyword in _STRINGS:
        return isinstance(value, str)
    return _is_number(value) if keyword in _NUMBERS else True
