"""Where commands print to: a standard output that tells its own failures apart from those of anything else."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["OutputFailed", "kept_output"]


class OutputFailed(OSError):
    """Nothing can be written to stdout, though somebody could read it: the device is full, or gone."""


class _Output(io.FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise  # nobody reads it any more, which is no mistake
        except OSError as exc:
            raise OutputFailed(exc.errno, exc.strerror) from None


@contextmanager
def kept_output() -> Iterator[None]:
    """Ends the command with 1 and one line on stderr when its output cannot be written.

    Meanwhile what is printed goes through a stream of our own, except to a terminal or to what is no file.
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
        click.echo(f"cannot write the output: {reason}", err=True)
        raise SystemExit(1)


def _stream(before: TextIO) -> TextIO:
    try:
        number = before.fileno()
    except (OSError, ValueError):  # a stand-in that tests print to
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
