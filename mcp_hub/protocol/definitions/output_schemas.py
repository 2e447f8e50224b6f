"""Output schemas of tools as clients compile them.

The TypeScript SDK 1 compiles the output schemas of all tools when it reads a list, and refuses the list if one cannot
be compiled. It takes each schema for one of draft 7 without checking it by that draft's own schema. Source: Ajv 8 with
`strict: false` and `validateSchema: false`, against which `rigs.clients.definitions` compares this module.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin

from mcp_hub.protocol.definitions.patterns import problem_of_pattern

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_MOST_STEPS: Final = 100
"""References that lead to another one, and to another."""
_META: Final = frozenset({"http://json-schema.org/draft-07/schema", "http://json-schema.org/schema"})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_type(value: Any) -> bool:
    types = value if isinstance(value, list) else [value] if value != "" else []
    return all(isinstance(own, str) and own in _TYPES for own in types)


_SIZES: Final = ("Length", "Items", "Properties")
_NUMBERS: Final = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf")
_BRANCHES: Final = ("anyOf", "oneOf", "allOf")
_ONE: Final = ("not", "if", "then", "else", "propertyNames", "additionalProperties", "additionalItems", "contains")
_BY_NAME: Final = ("properties", "patternProperties", "dependencies", "$defs", "definitions")
_LIMITS: Final = ("formatMaximum", "formatMinimum", "formatExclusiveMaximum", "formatExclusiveMinimum")
_VALUES: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(_NUMBERS, _is_number),
    **dict.fromkeys((f"{end}{size}" for end in ("max", "min") for size in _SIZES), _is_number),
    **dict.fromkeys(("$ref", "pattern", "format", *_LIMITS), _is_text),
    **dict.fromkeys(("required", *_BRANCHES), _is_list),
    **dict.fromkeys(_BY_NAME[:3], _is_object),
    **dict.fromkeys(("uniqueItems", "nullable"), _is_flag),
    **dict.fromkeys(_ONE, _is_schema),
    "type": _is_type,
    "enum": lambda value: isinstance(value, list) and bool(value),
    "items": lambda value: isinstance(value, dict | list | bool),
}
"""The keywords of draft 7 whose values are looked at before anything is checked with them."""


class _Node:
    """A schema within another: its members, its path, and the address that its references are relative to."""

    __slots__ = ("base", "members", "path")

    def __init__(self, members: dict[str, Any], path: str, base: str) -> None:
        self.members, self.path, self.base = members, path, base


class _Addresses:
    """The schemas that references can name: by address, and by address and anchor."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._resources: dict[str, Any] = {"": root}
        self._anchors: dict[tuple[str, str], Any] = {}

    def add(self, node: _Node) -> str | None:
        """Takes note of a schema, and sets its base; what is wrong with its names."""
        members = node.members
        if members.get("$id") is not None:
            if not isinstance(members["$id"], str):
                return "$id is not a text"
            try:
                address, _, anchor = urljoin(node.base, members["$id"]).partition("#")
            except ValueError:
                return "$id is not an address"
            if anchor and not self._names(address, anchor, members):
                return f"{members['$id']} is the name of two schemas"
            if not members["$id"].startswith("#"):
                if self._resources.setdefault(address, members) is not members:
                    return f"{address} is the address of two schemas"
                node.base = address
        name = members.get("$anchor")
        if isinstance(name, str) and f"#{name}" == members.get("$id"):
            return f"#{name} names it twice"
        if isinstance(name, str) and not self._names(node.base, name, members):
            return f"#{name} is the name of two schemas"
        return None

    def _names(self, address: str, anchor: str, members: dict[str, Any]) -> bool:
        """Takes note of a name; whether nothing else has it."""
        return self._anchors.setdefault((address, anchor), members) is members

    def target(self, reference: str, base: str) -> tuple[Any, str] | None:
        """The schema that a reference names, and its base; None if there is none. Raises: ValueError."""
        whole = base + reference if reference.startswith("#") else urljoin(base, reference)
        address, _, fragment = whole.partition("#")
        if address in _META:
            return True, address
        if address not in self._resources:
            return None
        if fragment and not fragment.startswith("/"):
            anchored = self._anchors.get((address, unquote(fragment)))
            return None if anchored is None else (anchored, address)
        return _pointed(self._resources[address], fragment, address)


def _pointed(value: Any, pointer: str, base: str) -> tuple[Any, str] | None:
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isascii() and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value, base


def problem_of_schema(schema: dict[str, Any]) -> str | None:
    """Why clients could not compile the schema, with the place; None if they can."""
    addresses, nodes = _Addresses(schema), [_Node(schema, "", "")]
    for node in nodes:  # which grows
        if (problem := addresses.add(node)) is not None:
            return _placed(node, problem)
        nodes += _children(node)
    passed = {id(node.members) for node in nodes}
    for node in nodes:
        if (problem := _problem(node)) is not None:
            return _placed(node, problem)
        if "$ref" not in node.members:
            continue
        try:
            target = _referred(node, addresses)
        except _Unresolved as unresolved:
            return _placed(node, str(unresolved))
        if target is not None and id(target.members) not in passed:  # it stands where no schema is looked for
            fresh = [target]
            for own in fresh:  # which grows
                passed.add(id(own.members))
                fresh += (child for child in _children(own) if id(child.members) not in passed)
            nodes += fresh
    return None


def _placed(node: _Node, problem: str) -> str:
    return f"{node.path or 'the schema'}: {problem}"


def _children(node: _Node) -> Iterator[_Node]:
    members, path, base = node.members, node.path, node.base
    for name in (*_ONE, "items"):
        if isinstance(inner := members.get(name), dict):
            yield _Node(inner, f"{path}/{name}", base)
    for name in (*_BRANCHES, "items"):
        if isinstance(inner := members.get(name), list):
            yield from (
                _Node(own, f"{path}/{name}/{at}", base) for at, own in enumerate(inner) if isinstance(own, dict)
            )
    for name in _BY_NAME:
        if isinstance(inner := members.get(name), dict):
            yield from (_Node(own, f"{path}/{name}/{key}", base) for key, own in inner.items() if isinstance(own, dict))


def _problem(node: _Node) -> str | None:
    members = node.members
    for name, value in members.items():
        if name in _VALUES and not _VALUES[name](value):
            return f"{name} has a value that it cannot have"
    for name in (*_BRANCHES, "items"):
        if isinstance(inner := members.get(name), list) and None in inner:
            return f"null in {name}"
    for name in _BY_NAME[:3]:
        if None in members.get(name, {}).values():
            return f"null in {name}"
    return _contradiction(members) or _problem_of_patterns(members)


def _contradiction(members: dict[str, Any]) -> str | None:
    if "id" in members:
        return "id is a keyword of draft 4"
    types = members.get("type", ())
    if "nullable" in members and (not types or (members["nullable"] is False and "null" in types)):
        return "nullable contradicts type"
    anchor = members.get("$anchor")
    if isinstance(anchor, str) and not anchor.replace("-", "").replace(".", "").replace("_", "").isalnum():
        return "$anchor is not a name"
    return None


def _problem_of_patterns(members: dict[str, Any]) -> str | None:
    patterns = members.get("patternProperties", {})
    for pattern in (*patterns, *([members["pattern"]] if "pattern" in members else ())):
        if (problem := problem_of_pattern(pattern)) is not None:
            return f"the pattern {pattern} has {problem}"
    return None


class _Unresolved(Exception):
    """The message says what is wrong with a reference."""


def _referred(node: _Node, addresses: _Addresses) -> _Node | None:
    """The schema that `$ref` leads to, over all references; None if that is not an object. Raises: _Unresolved."""
    members: Any = node.members
    base = node.base
    passed: set[int] = set()
    while isinstance(members, dict) and isinstance(reference := members.get("$ref"), str):
        if id(members) in passed:
            raise _Unresolved(f"$ref {reference} leads to itself")
        if len(passed) >= _MOST_STEPS:
            raise _Unresolved(f"$ref {reference} leads over more than {_MOST_STEPS} others")
        passed.add(id(members))
        try:
            target = addresses.target(reference, base)
        except ValueError:  # the text is not an address
            target = None
        if target is None:
            raise _Unresolved(f"$ref {reference} leads nowhere")
        members, base = target
    return _Node(members, f"{node.path}/$ref", base) if isinstance(members, dict) else None
