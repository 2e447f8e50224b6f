"""Stdout and its failures, messages on stderr."""

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO, cast

import click

from mcp_hub.masking import hide_head, visible, visible_json

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


ESCAPE: Final = "mcp-hub.escape"
"""The name of our way with characters that an encoding lacks."""
_LONGEST_QUESTION: Final = 1000
"""Characters of a question: its text may be that of a stranger."""


def say(text: str, color: str | None = None, *, ends_line: bool = True) -> None:
    """Prints to stderr, control characters spelled out."""
    click.echo(click.style(visible(text), fg=color) if color else visible(text), err=True, nl=ends_line)


def put(text: str = "") -> None:
    """Prints to stdout, control characters spelled out."""
    click.echo(visible(text))


def put_json(data: bytes) -> None:
    """Prints JSON to stdout; a terminal gets escapes."""
    click.echo(visible_json(data) if sys.stdout.isatty() else data)


def json_output() -> BinaryIO:
    """Stdout for JSON lines; a terminal gets escapes."""
    out: BinaryIO = sys.stdout.buffer
    return cast("BinaryIO", _Terminal(out)) if sys.stdout.isatty() else out


class _Terminal(io.BufferedIOBase):
    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, data: "ReadableBuffer", /) -> int:
        self._out.write(visible_json(bytes(data)))
        return memoryview(data).nbytes

    def flush(self) -> None:
        self._out.flush()


def agrees(question: str, *, default: bool, err: bool = True) -> bool:
    return click.confirm(visible(question), default=default, err=err)


def answer(question: str, default: str | None = None, *, is_secret: bool = False, shows_default: bool = True) -> str:
    """The person's answer; `default` for an empty line."""
    shown_default = f" [{_joined(default)}]" if default and shows_default and not is_secret else ""
    text = hide_head((_joined(question) + shown_default).encode("utf-8", "replace"), _LONGEST_QUESTION)
    reply: str = click.prompt(visible(text), default=default, show_default=False, hide_input=is_secret, err=True)
    return reply


def _joined(text: str) -> str:
    return " ".join(text.split())


def _escaped(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    units = problem.object[problem.start : problem.end].encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[index : index + 2]) for index in range(0, len(units), 2))
    return "".join(f"\\u{code:04x}" for code in codes), problem.end


codecs.register_error(ESCAPE, _escaped)


def escape_unknown(*streams: TextIO) -> None:
    """Makes these streams escape unknown characters."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=ESCAPE)


class _OutputFailed(OSError):
    """Stdout cannot be written though it has a reader."""


class _Output(io.FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise  # its reader has left, which is not an error
        except OSError as exc:
            raise _OutputFailed(exc.errno, exc.strerror) from None


@contextmanager
def kept_output() -> Iterator[None]:
    """Exits with 1 and one line if the output cannot be written."""
    before = sys.stdout
    reason = None
    try:
        sys.stdout = _stream(before)
        try:
            yield
        finally:
            with suppress(BrokenPipeError):
                sys.stdout.flush()
    except* _OutputFailed as failed:
        reason = _first(failed)
    finally:
        sys.stdout = before
    if reason is not None:
        say(f"Cannot write the output: {reason}.")
        raise SystemExit(1)


def _stream(before: TextIO) -> TextIO:
    try:
        number = before.fileno()
    except (OSError, ValueError):  # not a file, as in tests
        return before
    if before.isatty() or not isinstance(before, io.TextIOWrapper):
        return before
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(number, "w", closefd=False)),
        before.encoding,
        before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def _first(failed: BaseExceptionGroup[_OutputFailed]) -> str:
    error = failed.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else str(error.strerror)
