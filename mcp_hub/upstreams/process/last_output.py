"""Finds why a process died in its output. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from mcp_hub.globs import late
from mcp_hub.types import LAST_OUTPUT

_SHOWN: Final = 5
"""Lines of output behind a reason."""
_FRAME: Final = " |+-\t"
"""Python draws these before the lines of an exception group."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_EXCEPTION: Final = late(
    r"(?:Uncaught )?[a-z_][\w.$]*(?:error|exception)(?: \[\w+\])?: .+"
    r"|(?:error|fatal|panic|Exception in thread \"[^\"]*\"|thread '[^']*' panicked at).*: .+"
    r"|npm (?:error|ERR!) code \w+",
    re.IGNORECASE,
)


def with_output(reason: str, lines: Sequence[str]) -> str:
    """The exception, the reason and the last lines of the output."""
    exception = exception_of(lines)
    head = reason if exception is None else f"{exception} ({reason})"
    return f"{head}{LAST_OUTPUT}{' | '.join(lines[-_SHOWN:])}" if lines else head


def exception_of(lines: Sequence[str]) -> str | None:
    """The last line that looks like an exception."""
    exception, traceback = None, None  # the depth of the traceback whose exception is still to come
    for line in lines:
        drawn = line.removeprefix("stdout: ")
        text, depth = drawn.strip(_FRAME), len(drawn) - len(drawn.lstrip(_FRAME))
        if text.endswith(_TRACEBACK):
            traceback = depth
        elif traceback is not None and text and depth <= traceback:
            exception, traceback = text, None
        elif traceback is None and _EXCEPTION.fullmatch(text):
            exception = text
    return exception
