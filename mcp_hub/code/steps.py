"""Records of a run, and its errors."""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Final, Literal

import msgspec

from mcp_hub.errors import HubError
from mcp_hub.types import JsonObject, RawJson

_FORMAT: Final = 2
"""The form of what a snapshot holds beside the bytes of the engine."""

CodeErrorKind = Literal["unavailable", "syntax", "types", "raised", "limit", "crashed", "not_resumable"]


class CodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one run, keys of `hub.code_limits`; bytes and seconds. `seconds`: of its own computing, over all loads.

    `parallel` and `silence` are for who sends the calls.
    """

    memory: int = 28 << 20
    seconds: float = 10.0
    calls: int = 200
    parallel: int = 8
    silence: float = 300.0
    output: int = 1 << 20
    printed: int = 1 << 20
    snapshot: int = 1 << 20


class CodeError(HubError):
    """A script cannot run or go on. `line` is 0 if unknown, `source` its text.

    `key` names a reached limit of `hub.code_limits`, `exception` the class that a script raised. `problems`: lines and
    reasons of a check.
    """

    def __init__(
        self,
        kind: CodeErrorKind,
        message: str,
        *,
        line: int = 0,
        source: str = "",
        key: str = "",
        exception: str = "",
        problems: tuple[tuple[int, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.line = line
        self.source = source
        self.key = key
        self.exception = exception
        self.problems = problems


class CodeRaise(msgspec.Struct, frozen=True):
    """An exception at a call's `await`. `data`: `tool` and `arguments` of `OutcomeUnknown`, `code` of `ToolError`."""

    kind: Literal[
        "ToolError", "OutcomeUnknown", "PermissionError", "TimeoutError", "NameError", "TypeError", "ValueError"
    ]
    message: str
    data: JsonObject | None = None


class CodeCall(msgspec.Struct, frozen=True):
    """A call that a script waits for. `asyncio.sleep` has `{"seconds": …}`."""

    id: int
    name: str
    arguments: RawJson
    line: int


class CodeStep(msgspec.Struct, frozen=True, kw_only=True):
    """A script that waits for answers to `pending`, or has ended with `output`. `line`: where it waits, 0 if unknown.

    `seconds` and `sum_of_calls`: used by the run so far.
    """

    calls: tuple[CodeCall, ...] = ()
    pending: tuple[int, ...] = ()
    snapshot: bytes = b""
    line: int = 0
    output: RawJson | None = None
    has_ended: bool = False
    seconds: float = 0.0
    sum_of_calls: int = 0


@lru_cache(1)
def engine_version() -> str:
    """The version that a snapshot needs, such as `monty 1.4.0 1`; empty without the extra."""
    version: Callable[[str], str] = import_module("importlib.metadata").version  # it loads `email`
    try:
        return f"monty {version('pydantic-monty-runtime')} {_FORMAT}"
    except ImportError:
        return ""
