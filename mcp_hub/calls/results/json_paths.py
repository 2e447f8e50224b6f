"""Selects values by a JSON path (RFC 9535), bounded by nodes looked at. Pure.

`match` and `search` use RE2, where `^` and `$` are anchors and `.` takes a carriage return, unlike RFC 9485. Importing
takes 100 ms.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
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

from mcp_hub.calls.results.paging import compiled
from mcp_hub.errors import InvalidParams
from mcp_hub.masking import hide_head

if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]  # ships no types

_MOST_PATH: Final = 1000
_MOST_NODES: Final = 3_000_000
_MOST_BYTES: Final = 32 << 20
_SHOWN: Final = 200
"""Characters of the library's message."""
_LOOK: Final = 64
"""Nodes between looks at the time."""
_BUDGET: Final = "budget"
_MATCHING: Final = ("match", "search")
_MOST_MATCHED: Final = 256 << 10
"""Bytes of one text for a pattern, which has no time limit."""


class _Selected(msgspec.Struct, frozen=True):
    """JSON lines in UTF-8, and their number."""

    body: bytes
    count: int


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
    """Makes `_Path`s in filters, and keeps integers exact."""

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
            compiled(extension.args[1].value, "path", by_line=False)
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
        super().__init__(strict=True)

    def setup_function_extensions(self) -> None:
        self.function_extensions.update(length=Length(), count=_Count(), value=_Value())
        for name in _MATCHING:
            self.function_extensions[name] = _Matching(self._is_over, whole=name == "match")


def select(body: bytes, path: str, is_over: Callable[[], bool]) -> _Selected:
    """Values of `body` that `path` selects. Raises `InvalidParams`, also beyond the bounds."""
    nodes = _parsed(path, is_over)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidParams(f"path: the text is not JSON ({problem}). Read it by offset, or with grep.") from None
    lines: list[bytes] = []
    room = _MOST_BYTES
    try:
        for node in nodes.finditer(value, filter_context={_BUDGET: _Budget(is_over)}):
            lines.append(msgspec.json.encode(node.obj))
            room -= len(lines[-1]) + 1
            if room < 0:
                raise _TooMuch
    except _TooMuch:
        raise InvalidParams(
            f"path: {hide_head(path, 100)!r} selects too much or takes too long. Narrow it down."
        ) from None
    except RecursionError:
        raise InvalidParams(f"path: {hide_head(path, 100)!r}: the text is nested too deeply for it") from None
    except JSONPathError as problem:
        raise InvalidParams(f"path: {hide_head(path, 100)!r}: {hide_head(str(problem.message), _SHOWN)}") from None
    return _Selected(b"\n".join(lines), len(lines))


def _parsed(path: str, is_over: Callable[[], bool]) -> _Path:
    if len(path) > _MOST_PATH:
        raise InvalidParams(f"path: it has {len(path)} characters; {_MOST_PATH} are allowed")
    path = path.strip()
    wrong = f"path: {hide_head(path, 100)!r} is not a JSON path"
    if not path.startswith("$"):
        raise InvalidParams(f"{wrong}: a path begins with $")
    try:
        parsed = _Environment(is_over).compile(path)
    except (RecursionError, ValueError, OverflowError):
        raise InvalidParams(f"{wrong}: nested too deeply, or a number too large") from None
    except JSONPathError as problem:
        at = problem.token.index if problem.token is not None else -1
        position = f"at character {at + 1}" if at >= 0 else "at its end"
        raise InvalidParams(f"{wrong}: {hide_head(str(problem.message), _SHOWN)} {position}") from None
    assert isinstance(parsed, JSONPath)  # unions are not of the standard
    return _Path(env=parsed.env, segments=parsed.segments)
