"""Tools as Python functions: a line for a model, stubs for a type checker. Pure.

Schemas are strangers': in any case a stub can be parsed, is bounded in length, and refuses no call that the schema
allows. Types that do not fit are `Any`.
"""

import json
import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from typing import Final, Literal

import msgspec

from mcp_hub.masking import hide_head
from mcp_hub.schema import (
    allowed_types,
    input_schema,
    is_open,
    listed_values,
    named_types,
    properties,
    required,
    resolve,
    type_name,
)
from mcp_hub.types import JsonObject

WIDTH: Final = 200
"""Characters of a line, which required parameters may exceed."""
_ABOUT: Final = 64  # characters of a line that are left to the description
_MAX_LEVELS: Final = 4  # levels of objects that the type of a result shows
_MAX_RESULT: Final = 60  # characters of a result's type in a line
_MAX_PARAMETER: Final = 128  # characters of a parameter's or a member's name
_MAX_PARAMETERS: Final = 256  # parameters of a stub; a function with more takes any
_MAX_STEPS: Final = 2000  # schemas that are looked at for one tool
_MAX_DEPTH: Final = 12
_MAX_MEMBERS: Final = 16  # members of a union
_MAX_TYPES: Final = 64  # types of objects that one tool returns
_MAX_VALUES: Final = 64  # values of an enumeration
_MAX_LITERAL: Final = {"line": 48, "input": 2000, "output": 2000}  # characters of an enumeration
_MAX_DEFAULT: Final = 16  # characters of a default value in a line
_MAX_STUB: Final = 16 << 10  # characters of a tool's stub; a longer one returns, then takes, anything
_MAX_NUMBER: Final = 1 << 53

_HEADER: Final = (
    "from collections.abc import Mapping as _Mapping, Sequence as _Sequence\n"
    "from typing import Any as _Any, Literal as _Literal, NotRequired as _NotRequired, TypedDict as _TypedDict\n"
)
"""The names are private, so that a script cannot take them for its own imports."""
_IDENTIFIER: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_TEXT: Final = re.compile("[ -~]*")
_WORDS: Final = frozenset(keyword.kwlist) | {"__debug__"}

_ANY: Final = "Any"
_NONE: Final = "None"
_BASES: Final = {"string": "str", "integer": "int", "boolean": "bool", "null": _NONE, "number": "float"}
_Form = Literal["line", "input", "output"]
_decode = msgspec.json.Decoder(JsonObject).decode


def line(name: str, raw: bytes, purpose: str = "", *, exported: str = "", mark: str = "", width: int = WIDTH) -> str:
    """`async def git_log(*, path: str, max_count: int = 10) -> str: Show the log` of an encoded definition.

    At most `width` characters, unless required parameters need more; `+5?` counts omitted others. `exported` follows in
    brackets if different.
    """
    tool = _object(raw)
    schema = input_schema(tool)
    typist = _Typist(schema, "line")
    needed, optional = _split(schema)
    end = f"{mark} ({exported})" if exported and exported != name else mark
    start = f"async def {name}("
    used = len(start) + len(") -> ") + len(end) + (min(len(purpose), _ABOUT) + len(": ") if purpose else 0)
    texts = _required(needed, schema, width - used - len(_ANY))
    room = width - used - len(_joined(texts))
    result = _result_text(tool, min(max(room // 2, 0), _MAX_RESULT))
    texts = _with_optional(texts, optional, typist, room - len(result))
    head = f"{start}{_joined(texts)}) -> {result}{end}"
    remaining = width - len(head) - len(": ")
    return f"{head}: {_cut(purpose, remaining)}" if purpose and remaining > 1 else head


def stubs(tools: Mapping[str, bytes], taken: Collection[str] = ()) -> str:
    """Declarations of tools for a type checker; encoded definitions by Python name.

    `taken`: further names that no type may have.
    """
    names = _Names({*tools, *taken})
    return "\n".join([_HEADER, *(_stub(name, raw, names) for name, raw in tools.items())])


def returned(raw: bytes, room: int) -> str:
    """The type of what a tool returns, in at most about `room` characters; empty if nothing is known."""
    text = _result_text(_object(raw), room)
    return "" if text == _ANY else text


def left_out_if_none(raw: bytes) -> frozenset[str]:
    """Optional parameters left out of calls if `None`, as the schema does not allow null."""
    schema = input_schema(_object(raw))
    _, optional = _split(schema)
    types = {name: allowed_types(member, schema) for name, member in optional.items()}
    return frozenset(name for name, allowed in types.items() if allowed and "null" not in allowed)


def _object(raw: bytes) -> JsonObject:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


_Parameters = dict[str, object]


def _split(schema: JsonObject) -> tuple[_Parameters, _Parameters]:
    names = dict.fromkeys(required(schema))
    listed = properties(schema)
    return {name: listed.get(name) for name in names}, {k: v for k, v in listed.items() if k not in names}


def _is_identifier(name: str) -> bool:
    return len(name) <= _MAX_PARAMETER and name not in _WORDS and _IDENTIFIER.fullmatch(name) is not None


def _quoted(text: str) -> str:
    """A string in ASCII, on one line, as Python and JSON write it."""
    return json.dumps(text if len(text) <= _MAX_PARAMETER else hide_head(text, _MAX_PARAMETER, "…"))


# -- one line


def _required(needed: _Parameters, schema: JsonObject, room: int) -> list[str]:
    """Texts of required parameters, with the members of objects as far inside as they fit."""
    texts = [_required_texts(needed, _Typist(schema, "line", levels=levels)) for levels in (2, 1, 0)]
    return next((candidate for candidate in texts if len(_joined(candidate)) <= room), texts[-1])


def _required_texts(needed: _Parameters, typist: "_Typist") -> list[str]:
    texts = [f"{name}: {typist.text(schema)}" for name, schema in needed.items() if _is_identifier(name)]
    strange = [f"{_quoted(name)}: {typist.text(schema)}" for name, schema in needed.items() if not _is_identifier(name)]
    return [*texts, f"**{{{', '.join(strange)}}}"] if strange else texts


def _with_optional(texts: list[str], optional: _Parameters, typist: "_Typist", room: int) -> list[str]:
    """The texts, and as many of the other parameters as fit into `room` characters."""
    strange = texts[-1:] if texts and texts[-1].startswith("**") else []
    plain = texts[: len(texts) - len(strange)]
    before, fitting = len(_joined(texts)), 0
    for name, schema in optional.items():
        text = _optional(name, schema, typist)
        is_last = fitting + 1 == len(optional)
        end = [] if is_last else [f"+{len(optional) - fitting - 1}?"]
        if len(_joined([*plain, text, *strange, *end])) - before > room:
            break
        plain.append(text)
        fitting += 1
    more = [f"+{len(optional) - fitting}?"] if fitting < len(optional) else []
    return [*plain, *strange, *more]


def _optional(name: str, schema: object, typist: "_Typist") -> str:
    kind = typist.text(schema)
    if not _is_identifier(name):
        return f"**{{{_quoted(name)}: {kind}}}"
    default = _default(schema)
    return f"{name}: {_or_none(kind)} = None" if default is None else f"{name}: {kind} = {default}"


def _or_none(kind: str) -> str:
    return kind if kind in ("Any", "_Any") or kind.endswith(_NONE) else f"{kind} | {_NONE}"


def _default(schema: object) -> str | None:
    value = schema.get("default") if isinstance(schema, dict) else None
    text = _literal(value)
    return None if value is None or text is None or len(text) > _MAX_DEFAULT else text


def _joined(texts: list[str]) -> str:
    return "" if not texts else ", ".join(texts if texts[0][0] in "*+" else ["*", *texts])


def _result_text(tool: JsonObject, room: int) -> str:
    """The output schema's type, with members of objects as deep as they fit; `Any` without one."""
    if not isinstance(schema := tool.get("outputSchema"), dict):
        return _ANY
    whole = (_Typist(schema, "line", levels=levels).text(schema) for levels in range(_MAX_LEVELS, 0, -1))
    plain, cut = _Typist(schema, "line").text(schema), _cut_members(schema, room)
    return next((text for text in whole if len(text) <= room), cut if plain == "dict" else plain)


def _cut_members(schema: JsonObject, room: int) -> str:
    typist, listed = _Typist(schema, "line"), properties(schema)
    members = [f"{_quoted(name)}: {typist.text(listed[name])}" for name in [*listed][:_MAX_MEMBERS]]
    texts = (f"{{{', '.join([*members[:fitting], '...'])}}}" for fitting in range(len(members), 0, -1))
    return next((text for text in texts if len(text) <= room), "dict")


def _cut(text: str, limit: int) -> str:
    head = text[: limit - 1]
    return text if len(text) <= limit else (head.rpartition(" ")[0] or head).rstrip(" ,;:.") + "…"


# -- stubs


class _Names:
    """Names of types that are not names of functions."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def new(self, plain: str) -> str:
        numbered = (f"{plain}_{number}" for number in count(2))
        name = plain if plain not in self._taken else next(text for text in numbered if text not in self._taken)
        self._taken.add(name)
        return name


def _stub(name: str, raw: bytes, names: _Names) -> str:
    tool = _object(raw)
    typist = _Typist(tool.get("outputSchema"), "output", lambda: names.new(f"{name}_result"))
    result = typist.text(typist.root) if isinstance(typist.root, dict) else typist.any
    takes = _stub_parameters(tool)
    exact = "".join([*typist.declared, f"async def {name}({takes}) -> {result}: ...\n"])
    texts = (exact, f"async def {name}({takes}) -> _Any: ...\n")
    return next((text for text in texts if len(text) <= _MAX_STUB), f"async def {name}(**_more: _Any) -> _Any: ...\n")


def _stub_parameters(tool: JsonObject) -> str:
    schema = input_schema(tool)
    typist = _Typist(schema, "input")
    needed, optional = _split(schema)
    texts = [f"{name}: {typist.text(member)}" for name, member in needed.items() if _is_identifier(name)]
    kinds = {name: typist.text(member) for name, member in optional.items() if _is_identifier(name)}
    texts += [f"{name}: {_or_none(kind)} = None" for name, kind in kinds.items()]
    every = needed | optional
    is_partial = len(texts) > _MAX_PARAMETERS
    texts = ["*", *texts[:_MAX_PARAMETERS]] if texts else []
    if is_open(schema) or is_partial or not all(map(_is_identifier, every)):
        more = next(text for text in (f"_more{'_' * number}" for number in count()) if text not in every)
        texts.append(f"**{more}: _Any")
    return ", ".join(texts)


# -- types


class _Typist:
    """Types of one tool's schemas, for a line or a stub.

    In a stub, parameters are as wide as types inferred for a script's own lists and mappings; results are exact.
    Numbers in results may be whole ones, and then indexes: they are `Any`.
    """

    def __init__(
        self, root: object, form: _Form, new_name: Callable[[], str] | None = None, *, levels: int = 0
    ) -> None:
        """`levels`: of objects whose members a line has."""
        self.root = root
        self.declared: list[str] = []
        self.any = _ANY if form == "line" else f"_{_ANY}"
        self._form = form
        self._new_name = new_name
        self._declared_names: dict[int, str] = {}
        self._steps = 0
        self._levels = levels

    def text(self, schema: object, depth: int = 0, *, is_item: bool = False) -> str:
        members = dict.fromkeys(self._members(schema, depth, is_item))
        if not 0 < len(members) <= _MAX_MEMBERS or self.any in members:
            return self.any
        if _NONE in members:
            del members[_NONE]
            members[_NONE] = None
        return " | ".join(members)

    def _members(self, schema: object, depth: int, is_item: bool) -> Iterator[str]:
        self._steps += 1
        if self._steps > _MAX_STEPS or depth > _MAX_DEPTH or not isinstance(schema, dict):
            yield self.any
        elif isinstance(reference := schema.get("$ref"), str):
            yield from self._members(resolve(self.root, reference), depth + 1, is_item)
        elif (values := listed_values(schema)) is not None:
            yield from self._values(values, is_item)
        elif names := named_types(schema):
            for name in names[:_MAX_MEMBERS]:
                yield self._of_type(name, schema, depth)
        elif (branches := _branches(schema)) is not None:
            for branch in branches:
                yield from self._members(branch, depth + 1, is_item)
        else:
            yield self._object(schema, depth) if isinstance(schema.get("properties"), dict) else self.any

    def _of_type(self, name: str, schema: JsonObject, depth: int) -> str:
        match name:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema.get("items"), depth)
            case "number" if self._form == "output":
                return self.any
            case _:
                return _BASES.get(name, self.any)

    def _values(self, values: list[object], is_item: bool) -> Iterator[str]:
        texts = [_literal(value) for value in values[: _MAX_VALUES + 1]]
        literals = [text for text in texts if text is not None]
        is_whole = len(texts) == len(literals) and 0 < len(values) <= _MAX_VALUES
        text = f"{'' if self._form == 'line' else '_'}Literal[{', '.join(dict.fromkeys(literals))}]"
        # a script's own list of such texts is a list of any text
        if is_whole and len(text) <= _MAX_LITERAL[self._form] and not (is_item and self._form == "input"):
            yield text
        else:
            for value in values:
                yield self._of_type(type_name(value), {}, _MAX_DEPTH)

    def _array(self, items: object, depth: int) -> str:
        kind = self.text(items, depth + 1, is_item=True)
        if self._form == "line":
            return "list" if kind == self.any else f"list[{kind}]"
        if self._form == "output":
            return f"list[{kind}]"
        # a text is a sequence of texts, too, but no list
        if kind == self.any or "str" in kind.split(" | "):
            kind = kind if kind == "str" else self.any
            return f"list[{kind}] | tuple[{kind}, ...]"
        return f"_Sequence[{kind}]"

    def _object(self, schema: JsonObject, depth: int) -> str:
        if self._form == "input":
            return "_Mapping[str, _Any]"
        members, more = properties(schema), schema.get("additionalProperties")
        if self._form == "line":
            return self._inline(members, more, depth)
        is_declared = id(schema) in self._declared_names or len(self._declared_names) < _MAX_TYPES
        if members and is_declared and _is_typed(schema) and self._new_name is not None:
            return self._typed_dict(schema, members, depth)
        kind = self.text(more, depth + 1) if isinstance(more, dict) and not members else self.any
        return f"dict[str, {kind}]"

    def _inline(self, members: _Parameters, more: object, depth: int) -> str:
        if self._levels == 0 or not (members or isinstance(more, dict)):
            return "dict"
        self._levels -= 1
        if members:
            texts = [f"{_quoted(name)}: {self.text(members[name], depth + 1)}" for name in [*members][:_MAX_MEMBERS]]
            text = f"{{{', '.join([*texts, *(['...'] if len(texts) < len(members) else [])])}}}"
        else:
            text = f"dict[str, {self.text(more, depth + 1)}]"
        self._levels += 1
        return text

    def _typed_dict(self, schema: JsonObject, members: _Parameters, depth: int) -> str:
        if (name := self._declared_names.get(id(schema))) is not None:
            return name
        assert self._new_name is not None
        name = self._declared_names[id(schema)] = self._new_name()
        needed = set(required(schema))
        texts = [
            f"{_quoted(member)}: {kind if member in needed else f'_NotRequired[{kind}]'}"
            for member, kind in ((member, self.text(inner, depth + 1)) for member, inner in members.items())
        ]
        self.declared.append(f'{name} = _TypedDict("{name}", {{{", ".join(texts)}}})\n')
        return name


def _is_typed(schema: JsonObject) -> bool:
    """Whether an object has the listed members alone, as far as a script may know."""
    names = properties(schema)
    is_plain = all(_TEXT.fullmatch(name) and len(name) <= _MAX_PARAMETER for name in names)
    return is_plain and len(names) <= _MAX_PARAMETERS and not is_open(schema)


def _branches(schema: JsonObject) -> list[object] | None:
    """The alternatives of a schema; `allOf` is one if it has one member."""
    for union in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(union), list):
            return branches[: _MAX_MEMBERS + 1]
    branches = schema.get("allOf")
    return branches if isinstance(branches, list) and len(branches) == 1 else None


def _literal(value: object) -> str | None:
    """A value as Python writes it, or None if no literal type has it."""
    match value:
        case None | bool():
            return repr(value)
        case int() if abs(value) < _MAX_NUMBER:
            return str(value)
        case str() if _TEXT.fullmatch(value):
            return json.dumps(value)
        case _:
            return None
