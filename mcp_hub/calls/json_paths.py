"""Selects values of a JSON text by a JSON path (RFC 9535), within bounds. Pure.

Every node that is looked at counts, those of nested queries in filters too, so that no path takes long however it is
written. There are no regular expressions (`match`, `search`): Python's may take exponential time, and `read_result` has
`grep`. Numbers come out as Python's floats have them. Not imported with the hub: it takes a tenth of a second.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec
from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError, JSONPathMatch
from jsonpath.filter import FilterQuery, walk
from jsonpath.function_extensions import Count, Length, Value
from jsonpath.match import NodeList
from jsonpath.selectors import Filter

from mcp_hub.errors import InvalidParams

__all__ = ["Selected", "select"]

_MOST_PATH: Final = 1000
_MOST_NODES: Final = 3_000_000
_MOST_BYTES: Final = 32 << 20
_SHOWN: Final = 200
"""Characters of what the library says, which may repeat the path."""
_LOOK: Final = 64
"""Nodes between two looks at the time."""
_BUDGET: Final = "budget"


@dataclass(frozen=True, slots=True)
class Selected:
    """The values in UTF-8, each as JSON on a line of its own, and how many they are."""

    body: bytes
    count: int


class _TooMuch(Exception):
    pass


class _Budget:
    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._left = _MOST_NODES
        self._is_over = is_over

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0 or (self._left % _LOOK == 0 and self._is_over()):
            raise _TooMuch


class _Node(JSONPathMatch):
    """A node that is paid for and does not remember where it is."""

    def __init__(self, *, filter_context: Mapping[str, Any], obj: object, **more: Any) -> None:
        super().__init__(filter_context=filter_context, obj=obj, **{**more, "path": "", "parts": ()})
        filter_context[_BUDGET].spend()

    def add_child(self, *children: JSONPathMatch) -> None:
        pass


class _Path(JSONPath):
    """A path, with those within its filters, that makes such nodes; the library's own knows but one kind."""

    def __init__(self, path: JSONPath) -> None:
        super().__init__(env=path.env, segments=path.segments)
        for selector in chain.from_iterable(segment.selectors for segment in path.segments):
            if isinstance(selector, Filter):
                for expression in walk(selector.expression):
                    if isinstance(expression, FilterQuery) and not isinstance(expression.path, _Path):
                        expression.path = _Path(expression.path)

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


class _Environment(JSONPathEnvironment):
    """Its functions know that the library has for a bare `@` the value itself in place of a node."""

    def setup_function_extensions(self) -> None:
        self.function_extensions.update(length=Length(), count=_Count(), value=_Value())


_environment: Final = _Environment(strict=True)


def select(body: bytes, path: str, is_over: Callable[[], bool]) -> Selected:
    """The values of the JSON text `body` that `path` selects, in its order.

    Raises `InvalidParams` for a path that cannot be read, a text that is no JSON, and what goes beyond the bounds.
    """
    compiled = _compiled(path)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidParams(f"path: the text is no JSON ({problem}); read it by offset or with grep") from None
    lines: list[bytes] = []
    left = _MOST_BYTES
    try:
        for node in compiled.finditer(value, filter_context={_BUDGET: _Budget(is_over)}):
            lines.append(msgspec.json.encode(node.obj))
            left -= len(lines[-1]) + 1
            if left < 0:
                raise _TooMuch
    except _TooMuch:
        raise InvalidParams(f"path: {path[:100]!r} selects too much or takes too long; narrow it down") from None
    except RecursionError:
        raise InvalidParams(f"path: {path[:100]!r}: the text is nested too deeply for it") from None
    except JSONPathError as problem:
        raise InvalidParams(f"path: {path[:100]!r}: {str(problem.message)[:_SHOWN]}") from None
    return Selected(b"\n".join(lines), len(lines))


def _compiled(path: str) -> _Path:
    if len(path) > _MOST_PATH:
        raise InvalidParams(f"path: it has {len(path)} characters; {_MOST_PATH} are allowed")
    path = path.strip()
    try:
        compiled = _environment.compile(path)
    except (RecursionError, ValueError, OverflowError):
        raise InvalidParams(f"path: {path[:100]!r} is no JSON path: nested too deeply, or a number too large") from None
    except JSONPathError as problem:
        at = problem.token.index if problem.token is not None else -1
        place = f"at character {at + 1}" if at >= 0 else "at its end"
        raise InvalidParams(f"path: {path[:100]!r} is no JSON path: {str(problem.message)[:_SHOWN]} {place}") from None
    assert isinstance(compiled, JSONPath)  # unions are not of the standard
    return _Path(compiled)
