"""Stdout, whose failures a command reports as such, and messages on stderr."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

import click

from mcp_hub.masking import visible

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def say(text: str, color: str | None = None) -> None:
    """Prints a message for people to stderr, with control characters spelled out."""
    click.secho(visible(text), err=True, fg=color)


class OutputFailed(OSError):
    """Stdout cannot be written though it has a reader: the device is full, or gone."""


class _Output(io.FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise  # its reader has left, which is not an error
        except OSError as exc:
            raise OutputFailed(exc.errno, exc.strerror) from None


@contextmanager
def kept_output() -> Iterator[None]:
    """Ends the command with 1 and one line on stderr when its output cannot be written.

    Inside the block prints go through a stream of our own, except to a terminal or to an object that is not a file.
    """
    before = sys.stdout
    reason = None
    try:
        sys.stdout = _stream(before)
        try:
            yield
        finally:
            with suppress(BrokenPipeError):
                sys.stdout.flush()
    except* OutputFailed as failed:
        reason = _first(failed)
    finally:
        sys.stdout = before
    if reason is not None:
        click.echo(f"Cannot write the output: {reason}.", err=True)
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


def _first(failed: BaseExceptionGroup[OutputFailed]) -> str:
    found = failed.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else str(found.strerror)
