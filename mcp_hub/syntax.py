"""The syntax trees of Python texts. Thread-safe."""

import ast
import threading
import warnings
from typing import Final, Literal, overload

_TURN: Final = threading.Lock()
"""CPython 3.11 counts the depth of trees for all threads together, and warnings are filtered for all together."""


@overload
def parsed(text: str | bytes) -> ast.Module: ...
@overload
def parsed(text: str | bytes, *, mode: Literal["eval"]) -> ast.Expression: ...
def parsed(text: str | bytes, *, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """The tree of a text, about which nothing is written to stderr.

    Raises `SyntaxError`, `ValueError`, `RecursionError`, `MemoryError`.
    """
    with _TURN, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text) if mode == "exec" else ast.parse(text, mode=mode)
