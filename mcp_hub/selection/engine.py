"""Selects values by a JSON path (RFC 9535), bounded by nodes looked at. Pure.

`match` and `search` use RE2, where `^` and `$` are anchors and `.` takes a carriage return, unlike RFC 9485. Importing
takes 100 ms.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError, JSONPathMatch
from jsonpath.filter import (
    BaseExpression,
    FunctionExtension,
    IntegerLiteral,
    RelativeFilterQuery,
    RootFilterQuery,
    StringLiteral,
)
from jsonpath.function_extensions import Count, ExpressionType, FilterFunction, Length, Value
from jsonpath.match import NodeList
from jsonpath.parse import Parser
from jsonpath.stream import TokenStream

from mcp_hub.errors import InvalidParams
from mcp_hub.masking import hide_head
from mcp_hub.selection.patterns import compiled

if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]  # ships no types

_MOST_PATH: Final = 1000
_MOST_NESTED: Final = 20
"""Filters within filters; the library's time for one grows with the cube."""
_MOST_NODES: Final = 3_000_000
_MOST_CONTAINERS: Final = 1_000_000
"""Objects and arrays of a value, each up to 240 bytes of memory."""
_MOST_BYTES: Final = 32 << 20
_SHOWN: Final = 200
"""Characters of the library's message."""
_LOOK: Final = 64
"""Nodes between looks at the time."""
_BUDGET: Final = "budget"
_MATCHING: Final = ("match", "search")
_MOST_PROGRAMS: Final = 3000
"""Instructions of RE2 in all patterns of a path: a path is checked before the call, in the event loop."""
_MOST_MATCHED: Final = 256 << 10
"""Bytes of one text for a pattern, which has no time limit."""


_MOST_SHAPE: Final = 300
_DEPTH: Final = 6
_MOST_KEY: Final = 40
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MOST_INNER: Final = 120
"""Bytes of a shape for the value in which nothing was selected."""


class _Selected(msgspec.Struct, frozen=True):
    """The encoded values. `is_single`: the path selects one at most; `reason`: why there is none."""

    values: tuple[bytes, ...]
    is_single: bool
    reason: str = ""


class _TooMuch(Exception):
    pass


class _Budget:
    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._remaining = _MOST_NODES
        self._is_over = is_over

    def spend(self) -> None:
        self._remaining -= 1
        if self._remaining < 0 or (self._remaining % _LOOK == 0 and self._is_over()):
            raise _TooMuch


class _Node(JSONPathMatch):
    def __init__(self, *, filter_context: Mapping[str, Any], obj: object, **more: Any) -> None:
        super().__init__(filter_context=filter_context, obj=obj, **{**more, "path": "", "parts": ()})
        filter_context[_BUDGET].spend()

    def add_child(self, *children: JSONPathMatch) -> None:
        pass


class _Path(JSONPath):
    def finditer(self, data: Any, *, filter_context: Mapping[str, Any] | None = None) -> Iterable[JSONPathMatch]:
        root = _Node(filter_context=filter_context or {}, obj=data, parent=None, path="", parts=(), root=data)
        nodes: Iterable[JSONPathMatch] = (root,)
        for segment in self.segments:
            nodes = segment.resolve(nodes)
        return nodes


class _Count(Count):
    def __call__(self, nodes: object) -> int:
        return super().__call__(nodes) if isinstance(nodes, NodeList) else 1


class _Value(Value):
    def __call__(self, nodes: object) -> object:
        return super().__call__(nodes) if isinstance(nodes, NodeList) else nodes


class _Matching(FilterFunction):
    """`match` (the `whole` text) or `search`."""

    arg_types = [ExpressionType.VALUE, ExpressionType.VALUE]
    return_type = ExpressionType.LOGICAL

    def __init__(self, is_over: Callable[[], bool], *, whole: bool) -> None:
        self._is_over = is_over
        self._whole = whole
        self._compiled = lru_cache(maxsize=64)(_pattern)

    def __call__(self, text: object, pattern: object) -> bool:
        if not (isinstance(text, str) and isinstance(pattern, str)):
            return False
        if self._is_over():
            raise _TooMuch
        if (regexp := self._compiled(pattern)) is None:
            return False
        body = text.encode()
        if len(body) > _MOST_MATCHED:
            raise InvalidParams(f"path: match and search take texts of up to {_MOST_MATCHED} bytes. Use grep.")
        return bool(regexp.fullmatch(body) if self._whole else regexp.search(body))


def _pattern(pattern: str) -> "re2._Regexp | None":
    try:
        return compiled(pattern, "path", by_line=False)
    except InvalidParams:
        return None


class _Parser(Parser):
    """Makes `_Path`s in filters; keeps integers exact."""

    env: "_Environment"

    def parse_absolute_query(self, stream: TokenStream) -> BaseExpression:
        stream.next()
        return RootFilterQuery(_Path(env=self.env, segments=self.parse_query(stream)))

    def parse_relative_query(self, stream: TokenStream) -> BaseExpression:
        stream.next()
        return RelativeFilterQuery(_Path(env=self.env, segments=self.parse_query(stream)))

    def parse_function_extension(self, stream: TokenStream) -> BaseExpression:
        extension = super().parse_function_extension(stream)
        if (
            isinstance(extension, FunctionExtension)
            and extension.name in _MATCHING
            and isinstance(extension.args[1], StringLiteral)
        ):
            self.env.add_pattern(extension.args[1].value)
        return extension

    def parse_integer_literal(self, stream: TokenStream) -> BaseExpression:
        written = stream.current().value
        literal = super().parse_integer_literal(stream)
        return IntegerLiteral(value=int(written)) if written.removeprefix("-").isdecimal() else literal


class _Environment(JSONPathEnvironment):
    """Handles a bare `@`, for which the library passes a value."""

    parser_class = _Parser

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._programs = 0
        super().__init__(strict=True)

    def add_pattern(self, pattern: str) -> None:
        """Raises `InvalidParams` for an invalid pattern, and if all of the path are too large together."""
        self._programs += compiled(pattern, "path", by_line=False).programsize
        if self._programs > _MOST_PROGRAMS:
            raise InvalidParams("path: its patterns are too large together. Use fewer, or shorter ones.")

    def setup_function_extensions(self) -> None:
        self.function_extensions.update(length=Length(), count=_Count(), value=_Value())
        for name in _MATCHING:
            self.function_extensions[name] = _Matching(self._is_over, whole=name == "match")


def select(body: bytes, path: str, is_over: Callable[[], bool]) -> _Selected:
    """Values of `body` that `path` selects. Raises `InvalidParams`, also beyond the bounds."""
    nodes, budget = parsed(path, is_over), _Budget(is_over)
    if has_too_many(body):
        reason = f"the JSON has more than {_MOST_CONTAINERS} objects and arrays. Read it by offset, or with grep"
        raise InvalidParams(f"path: {reason}.")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidParams(f"path: the text is not JSON ({problem}). Read it by offset, or with grep.") from None
    try:
        values = tuple(_encoded(nodes, value, budget))
        reason = "" if values else _miss(nodes, path.strip(), value, _Budget(is_over))
    except _TooMuch:
        problem_text = "selects too much or takes too long. Narrow it down"
    except RecursionError:
        problem_text = "the text is nested too deeply for it"
    except JSONPathError as problem:
        problem_text = hide_head(str(problem.message), _SHOWN)
    else:
        return _Selected(values, nodes.singular_query(), reason)
    raise InvalidParams(f"path: {hide_head(path, 100)!r} {problem_text}. $ is {_described(value, _MOST_SHAPE)}")


def has_too_many(body: bytes) -> bool:
    """Whether JSON may have more objects and arrays than are read; those written in texts count, too."""
    return body.count(b"{") + body.count(b"[") > _MOST_CONTAINERS


def _encoded(nodes: "_Path", value: object, budget: "_Budget") -> Iterator[bytes]:
    room = _MOST_BYTES
    for node in nodes.finditer(value, filter_context={_BUDGET: budget}):
        encoded = msgspec.json.encode(node.obj)
        room -= len(encoded) + 1
        if room < 0:
            raise _TooMuch
        yield encoded


def _miss(nodes: "_Path", path: str, value: object, budget: "_Budget") -> str:
    """The first segment that selects nothing, its position, and shapes."""
    parent: object = value
    for number in range(1, len(nodes.segments) + 1):
        prefix = _Path(env=nodes.env, segments=nodes.segments[:number])
        node = next(iter(prefix.finditer(value, filter_context={_BUDGET: budget})), None)
        if node is None:
            break
        parent = node.obj
    starts = [each.token.index for each in nodes.segments]
    start = starts[number - 1]
    end = starts[number] if number < len(starts) else len(path)
    failed = f"{hide_head(path[start:end].strip(), 100)} at character {start + 1} selects nothing"
    if number == 1:
        return f"{failed}. $ is {_described(value, _MOST_SHAPE)}"
    inner = _described(parent, _MOST_INNER)
    return f"{failed} in {inner}. $ is {_described(value, _MOST_SHAPE - len(inner.encode()))}"


def _described(value: object, limit: int) -> str:
    """Keys, types and lengths in at most `limit` bytes, as deep as they fit: `{items: [3 of {id: number}]}`."""
    best = _kind(value)
    for depth in range(1, _DEPTH):
        text = _shape(value, depth, limit)
        if len(text.encode()) > limit:
            return _widest(value, limit) if depth == 1 else best
        if text == best:
            break
        best = text
    return best


def _shape(value: object, depth: int, limit: int) -> str:
    if depth == 0 or not value or not isinstance(value, dict | list):
        return _kind(value)
    if isinstance(value, list):
        return f"[{len(value)} of {_shape(value[0], depth - 1, limit)}]"
    members: list[str] = []
    room = limit
    for key, member in value.items():
        members.append(f"{_key(key)}: {_shape(member, depth - 1, room)}")
        room -= len(members[-1].encode()) + 2
        if room < 0:
            break
    return f"{{{', '.join(members)}}}"


def _widest(value: object, limit: int) -> str:
    if not isinstance(value, dict):
        return _kind(value)
    members: list[str] = []
    for key, member in islice(value.items(), limit):
        text = ", ".join([*members, f"{_key(key)}: {_kind(member)}"])
        if len(f"{{{text}, … {len(value)} keys}}".encode()) > limit:
            break
        members.append(f"{_key(key)}: {_kind(member)}")
    return f"{{{', '.join([*members, f'… {len(value)} keys'])}}}"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return f"string({len(value)})"
        case list():
            return f"array({len(value)})"
        case dict():
            return f"object({len(value)})"
        case _:
            return "number"


def _key(key: str) -> str:
    name = hide_head(key, _MOST_KEY)
    return name if _PLAIN_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=not name.isprintable())


def parsed(path: str, is_over: Callable[[], bool]) -> _Path:
    """The path. Raises `InvalidParams`, with the `character` of the mistake among its data."""
    if len(path) > _MOST_PATH:
        reason = f"it has {len(path)} characters; {_MOST_PATH} are allowed"
        raise InvalidParams(f"path: {reason}", data={"character": _MOST_PATH})
    path = path.strip()
    wrong = f"path: {hide_head(path, 100)!r} is not a JSON path"
    if not path.startswith("$"):
        raise InvalidParams(
            f"{wrong}: a path begins with $, such as $.items[*].name (character 1)", data={"character": 1}
        )
    _check_nesting(path, wrong)
    try:
        query = _Environment(is_over).compile(path)
    except (RecursionError, ValueError, OverflowError):
        raise InvalidParams(f"{wrong}: nested too deeply, or a number too large", data={"character": 1}) from None
    except JSONPathError as problem:
        at = problem.token.index if problem.token is not None else -1
        position = f"at character {at + 1}" if at >= 0 else "at its end"
        reason = f"{hide_head(str(problem.message), _SHOWN)} {position}"
        raise InvalidParams(f"{wrong}: {reason}", data={"character": at + 1 or len(path) + 1}) from None
    assert isinstance(query, JSONPath)  # unions are not of the standard
    return _Path(env=query.env, segments=query.segments)


def _check_nesting(path: str, wrong: str) -> None:
    depth = 0
    for position, char in enumerate(path, 1):
        depth += (char == "[") - (char == "]")
        if depth > _MOST_NESTED:
            reason = f"more than {_MOST_NESTED} brackets in each other at character {position}"
            raise InvalidParams(f"{wrong}: {reason}", data={"character": position})
