"""Renderers of a running call: JSON lines, the result, plain text, a live view."""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, BinaryIO, Final

from mcp_hub.cli.render import results
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.results import ShownResult
from mcp_hub.errors import RpcError
from mcp_hub.events import Attempt, CallEvent, Delta, Log, Progressed, Reset, said_of_cancel
from mcp_hub.masking import visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_TAIL: Final = 400
"""Characters shown of a streamed line that has not ended yet."""
_OF_ANOTHER: Final = "The text so far is not part of the result."


class Show:
    """Shows nothing on stdout; gets events in order, the ending last."""

    def doing(self, task: str) -> None:
        """The hub waits for `task`; empty ends the wait."""

    def numbered(self, seq: int) -> AbstractContextManager[None]:
        """Spans all that is shown of the event with this number."""
        return nullcontext()

    def event(self, event: CallEvent) -> None:
        """An event before the ending."""

    def outcome(self, outcome: ShownResult) -> None:
        """The result."""
        self.close()
        if outcome.is_error:
            sys.stdout.flush()
            say("The tool reported an error.")

    def error(self, error: RpcError, message: str) -> None:
        """The call failed."""
        self.close()
        self._say(message, "red")

    def cancelled(self, reason: str | None) -> None:
        """The call was cancelled."""
        self.close()
        self._say(said_of_cancel(reason), "yellow")

    def note(self, text: str) -> None:
        self._say(text, "dim")

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        """Idempotent."""

    def _say(self, text: str, style: str) -> None:
        say(text)


class _JsonLines(Show):
    """One JSON object for each event; errors also on stderr."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._seq = 0

    @contextmanager
    def numbered(self, seq: int) -> Iterator[None]:
        self._seq = seq
        try:
            yield
        finally:
            self._seq = 0

    def event(self, event: CallEvent) -> None:
        self._write(results.event_line(event, self._seq))

    def outcome(self, outcome: ShownResult) -> None:
        self._write(results.result_line(outcome, self._seq))
        super().outcome(outcome)

    def error(self, error: RpcError, message: str) -> None:
        self._write(results.error_line(error, self._seq))
        super().error(error, message)

    def cancelled(self, reason: str | None) -> None:
        self._write(results.cancelled_line(reason, self._seq))
        super().cancelled(reason)

    def _write(self, line: bytes | None) -> None:
        if line is not None:
            self._out.write(line)
            self._out.flush()


class _ResultJson(Show):
    """The result as the server sent it."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def outcome(self, outcome: ShownResult) -> None:
        body = bytes(outcome.raw)
        self._out.write(body if body.endswith(b"\n") else body + b"\n")
        self._out.flush()
        super().outcome(outcome)


class _Streamed:
    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._length = 0

    def add(self, text: str) -> None:
        message = text.encode("utf-8", "replace")
        self._digest.update(message)
        self._length += len(message)

    def remainder(self, outcome: ShownResult) -> tuple[str, str]:
        message = outcome.joined.encode("utf-8", "replace")
        if not self._length or hashlib.sha256(message[: self._length]).digest() != self._digest.digest():
            return "", outcome.text
        return message[self._length :].decode(), outcome.other_text


class _PlainText(Show):
    """Text only: partial content, then the rest."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._streamed = _Streamed()
        self._index = 0
        self._is_within_line = False

    def event(self, event: CallEvent) -> None:
        if isinstance(event, Delta) and event.channel == "content":
            if event.index != self._index:
                self.close()
            self._index = event.index
            text = results.content_text(event.content)
            self._streamed.add(text)
            self._write(text)
        elif isinstance(event, Reset):
            self.close()
            self._streamed = _Streamed()
            self.note(_OF_ANOTHER)

    def outcome(self, outcome: ShownResult) -> None:
        more, lines = self._streamed.remainder(outcome)
        self._write(more)
        if outcome.data is not None:
            self._out.write(outcome.data)
            self._out.flush()
        elif lines:
            self.close()
            self._write(lines)
        super().outcome(outcome)

    def close(self) -> None:
        if self._is_within_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text.encode("utf-8", "replace"))
            self._out.flush()
            self._is_within_line = not text.endswith("\n")


def renderer(form: str, out: BinaryIO) -> Show:
    """Writes to `out`: `jsonl`, `json`, or text."""
    match form:
        case "jsonl":
            return _JsonLines(out)
        case "json":
            return _ResultJson(out)
        case _:
            return _PlainText(out)


def on_terminal(title: str, out: "Console", err: "Console", *, shares_terminal: bool) -> Show:
    """A progress bar below streamed lines. `shares_terminal`: `err` is the terminal of `out`."""
    return _OnTerminal(title, out, err, shares_terminal)


class _OnTerminal(Show):
    def __init__(self, title: str, out: "Console", err: "Console", shares_terminal: bool) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._out = out
        self._err = err
        self._shares_terminal = shares_terminal
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
        fields = (TextColumn("{task.fields[count]}", markup=False), TimeElapsedColumn())
        message = TextColumn("{task.fields[message]}", markup=False)
        self._bar = Bar(*columns, *fields, message, console=out, auto_refresh=False)
        self._task = self._bar.add_task(visible(title), total=None, count="", message="")
        self._growing = ""
        self._index = 0
        self._streamed = _Streamed()
        self._live = Live(
            get_renderable=self._region, console=out, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def doing(self, task: str) -> None:
        self._bar.update(self._task, message=visible(task))

    def event(self, event: CallEvent) -> None:
        match event:
            case Progressed(is_hubs=True):
                pass  # the numbers shown are the server's
            case Progressed():
                value = event.sent
                message = " ".join(visible(results.message_of(event)).split())
                count = f"{value:g}" if event.total is None else f"{value:g}/{event.total:g}"
                self._bar.update(self._task, completed=value, total=event.total, count=count, message=message)
            case Delta(channel="content"):
                self._content(event.index, results.content_text(event.content))
            case Delta():
                self.note(results.content_text(event.content))
            case Log():
                self.note(results.log_text(event))
            case Attempt():
                self.note(results.attempt_text(event))
            case Reset():
                self._discard()
            case _:
                pass

    def _content(self, index: int, text: str) -> None:
        self._streamed.add(text)
        if index != self._index and self._growing:
            self._growing += "\n"
        self._index = index
        lines, newline, self._growing = (self._growing + text).rpartition("\n")
        if newline:
            _print(self._out, lines)

    def _discard(self) -> None:
        self._growing, self._streamed = "", _Streamed()
        self.note(_OF_ANOTHER)

    def _say(self, text: str, style: str) -> None:
        with self.paused() if self._shares_terminal else nullcontext():
            _print(self._err, text, style)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Shows nothing within the block."""
        is_live = self._live.is_started
        self._live.stop()
        yield
        if is_live:
            self._live.start()

    def outcome(self, outcome: ShownResult) -> None:
        more, lines = self._streamed.remainder(outcome)
        self._growing += more
        self.close()
        _print(self._out, lines)
        super().outcome(outcome)

    def close(self) -> None:
        tail, self._growing = self._growing, ""
        self._live.stop()
        _print(self._out, tail)

    def _region(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        bar = self._bar.get_renderable()
        return Group(Text(visible(self._growing[-_TAIL:])), bar) if self._growing else bar


def _print(console: "Console", text: str, style: str = "") -> None:
    from rich.text import Text

    if text:
        console.print(Text(visible(text.removesuffix("\n")), style=style), soft_wrap=True, highlight=False)
