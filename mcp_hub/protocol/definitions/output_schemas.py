"""Output schemas as clients compile them: the TypeScript SDK 1 refuses a whole list for one bad schema.

Source: Ajv 8 with draft 7, `strict: false` and `validateSchema: false`; ECMA-262, 2024, §22.2.1 with flag `u`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote, urljoin

from mcp_hub.globs import late
from mcp_hub.types import JsonObject

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_MOST_STEPS: Final = 100
"""References that lead to another one, and to another."""
_META: Final = frozenset({"http://json-schema.org/draft-07/schema", "http://json-schema.org/schema"})
MOST: Final = 10_000
"""Characters of an expression that is looked at; a longer one is refused."""
_ESCAPE = late(
    r"\\(?:[dDwWsSfnrtv^$\\.*+?()\[\]{}|/]|c[A-Za-z]|0(?!\d)|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}"
    r"|u\{0*(?:10|[0-9A-Fa-f])?[0-9A-Fa-f]{1,4}\}|[pP]\{(?P<property>[A-Za-z_]+(?:=[A-Za-z_]+)?)\})"
)
_CODE = late(r"\\[xu]((?![dD][89a-fA-F])[0-9A-Fa-f]{2,4})")
"""The escape of one character, but for halves of a pair."""
_QUANTIFIER = late(r"(?:[*+?]|\{(\d+)(?:(,)(\d*))?\})\??")
_OPEN = late(r"\((?:\?(?:[:=!]|<[=!]|<([A-Za-z_$][\w$]*)>))?", re.ASCII)
_REFERENCE = late(r"\\(?:([1-9]\d*)|k<([A-Za-z_$][\w$]*)>)", re.ASCII)
_CATEGORIES: Final = (
    "L Lu Ll Lt LC Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn"
)
_LONG: Final = (
    "Letter Uppercase_Letter Lowercase_Letter Mark Number Decimal_Number Punctuation Symbol Separator Other "
    "ASCII Alphabetic Any Assigned Emoji ID_Start ID_Continue Lowercase Uppercase White_Space XID_Start XID_Continue"
)
_PROPERTIES: Final = frozenset(f"{_CATEGORIES} {_LONG}".split())
_KEYED = late(r"(?:Script|sc|Script_Extensions|scx)=[A-Z][a-z]+(?:_[A-Z][a-z]+)*")
_CLASS_SETS: Final = frozenset("dDwWsSpP")
_ASSERTIONS: Final = frozenset({"(?=", "(?!", "(?<=", "(?<!"})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_type(value: object) -> bool:
    types = value if isinstance(value, list) else [value] if value != "" else []
    return all(isinstance(name, str) and name in _TYPES for name in types)


_SIZES: Final = ("Length", "Items", "Properties")
_NUMBERS: Final = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf")
_BRANCHES: Final = ("anyOf", "oneOf", "allOf")
_ONE: Final = ("not", "if", "then", "else", "propertyNames", "additionalProperties", "additionalItems", "contains")
_BY_NAME: Final = ("properties", "patternProperties", "dependencies", "$defs", "definitions")
_LIMITS: Final = ("formatMaximum", "formatMinimum", "formatExclusiveMaximum", "formatExclusiveMinimum")
_VALUES: Final[Mapping[str, Callable[[object], bool]]] = {
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
    __slots__ = ("base", "members", "path")

    def __init__(self, members: JsonObject, path: str, base: str) -> None:
        self.members, self.path, self.base = members, path, base


class _Addresses:
    """Targets by address and anchor."""

    def __init__(self, root: JsonObject) -> None:
        self._resources: JsonObject = {"": root}
        self._anchors: dict[tuple[str, str], object] = {}

    def add(self, node: _Node) -> str | None:
        """Registers a schema; returns the problem."""
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

    def _names(self, address: str, anchor: str, members: JsonObject) -> bool:
        return self._anchors.setdefault((address, anchor), members) is members

    def target(self, reference: str, base: str) -> tuple[object, str] | None:
        """Raises `ValueError`."""
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


def _pointed(value: object, pointer: str, base: str) -> tuple[object, str] | None:
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isascii() and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value, base


def problem_of_schema(schema: JsonObject) -> str | None:
    """Why clients cannot compile the schema, with the path; None if they can."""
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
            listed = enumerate(inner)
            yield from (_Node(part, f"{path}/{name}/{at}", base) for at, part in listed if isinstance(part, dict))
    for name in _BY_NAME:
        if isinstance(inner := members.get(name), dict):
            named = inner.items()
            yield from (_Node(part, f"{path}/{name}/{key}", base) for key, part in named if isinstance(part, dict))


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


def _contradiction(members: JsonObject) -> str | None:
    if "id" in members:
        return "id is a keyword of draft 4"
    types = members.get("type", ())
    if "nullable" in members and (not types or (members["nullable"] is False and "null" in types)):
        return "nullable contradicts type"
    anchor = members.get("$anchor")
    if isinstance(anchor, str) and not anchor.replace("-", "").replace(".", "").replace("_", "").isalnum():
        return "$anchor is not a name"
    return None


def _problem_of_patterns(members: JsonObject) -> str | None:
    patterns = members.get("patternProperties", {})
    for pattern in (*patterns, *([members["pattern"]] if "pattern" in members else ())):
        if (problem := problem_of_pattern(pattern)) is not None:
            return f"the pattern {pattern} has {problem}"
    return None


class _Unresolved(Exception):
    """A reference leads nowhere."""


def _referred(node: _Node, addresses: _Addresses) -> _Node | None:
    """Raises `_Unresolved`."""
    members: object = node.members
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


class _Refused(Exception):
    """The pattern is invalid."""


def problem_of_pattern(text: str) -> str | None:
    """Why clients cannot compile the pattern; None if they can."""
    if len(text) > MOST:
        return f"longer than {MOST} characters"
    try:
        _Reader(text).read()
    except _Refused as problem:
        return str(problem)
    return None


class _Reader:
    """Parses in one pass; checks group references at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open: list[str] = []  # groups that are not closed
        self._names: list[str] = []
        self._groups = 0
        self._references: list[tuple[str | None, str | None]] = []

    def read(self) -> None:
        """Raises `_Refused`."""
        while self._at < len(self._text):
            if self._term():
                self._quantifier()
        if self._open:
            raise _Refused("a group is not closed")
        if len(set(self._names)) < len(self._names):
            raise _Refused("two groups have one name")
        for number, name in self._references:
            if (int(number) > self._groups) if number else (name not in self._names):
                raise _Refused(f"there is no group {number or name}")

    def _term(self) -> bool:
        """Whether a quantifier may follow."""
        letter = self._text[self._at]
        match letter:
            case "(":
                self._group()
                return False
            case ")":
                if not self._open:
                    raise _Refused("a group is closed that is not open")
                self._at += 1
                return self._open.pop() not in _ASSERTIONS
            case "[":
                self._class()
                return True
            case "\\":
                return self._escape()
            case "*" | "+" | "?" | "{":
                raise _Refused(f"nothing that {letter} repeats")
            case "]" | "}":
                raise _Refused(f"{letter} without its beginning")
        self._at += 1
        return letter not in "^$|"

    def _quantifier(self) -> None:
        if self._text[self._at : self._at + 1] not in ("*", "+", "?", "{"):
            return
        read = _QUANTIFIER.match(self._text, self._at)
        if read is None:
            raise _Refused("a { that begins no quantifier")
        if read[3] and int(read[3]) < int(read[1]):
            raise _Refused(f"{read[0]} ends before it begins")
        self._at = read.end()

    def _group(self) -> None:
        read = _OPEN.match(self._text, self._at)
        if read is None or self._text.startswith("?", read.end()):
            raise _Refused(f"a group that JavaScript does not have: {self._text[self._at : self._at + 5]}")
        if read[1]:
            self._names.append(read[1])
        self._groups += read[0] == "(" or bool(read[1])
        self._open.append(read[0])
        self._at = read.end()

    def _escape(self) -> bool:
        if self._text.startswith(("\\b", "\\B"), self._at):
            self._at += 2
            return False
        if read := _REFERENCE.match(self._text, self._at):
            self._references.append((read[1], read[2]))
            self._at = read.end()
        else:
            self._at = _escape_at(self._text, self._at)
        return True

    def _class(self) -> None:
        self._at += 2 if self._text.startswith("[^", self._at) else 1
        while not self._text.startswith("]", self._at):
            low, is_set = self._member()
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                high, is_other_set = self._member()
                if is_set or is_other_set:
                    raise _Refused("a range between sets of characters")
                if low is not None and high is not None and low > high:
                    raise _Refused(f"the range {low}-{high} is out of order")
        self._at += 1

    def _member(self) -> tuple[str | None, bool]:
        if self._at >= len(self._text):
            raise _Refused("a [ is not closed")
        start = self._at
        if self._text[start] != "\\":
            self._at += 1
            return self._text[start], False
        if self._text.startswith(("\\b", "\\-"), start):
            self._at += 2
            return (None if self._text[start + 1] == "b" else "-"), False
        self._at = _escape_at(self._text, start)
        code = _CODE.fullmatch(self._text, start, self._at)
        return (chr(int(code[1], 16)) if code else None), self._text[start + 1] in _CLASS_SETS


def _escape_at(text: str, start: int) -> int:
    """Raises `_Refused`."""
    read = _ESCAPE.match(text, start)
    if read is None:
        raise _Refused(f"the escape {text[start : start + 2]}, which JavaScript does not have")
    name = read["property"]
    if name is not None and name not in _PROPERTIES and _KEYED.fullmatch(name) is None:
        raise _Refused(f"the property {name} of characters is unknown")
    return read.end()
