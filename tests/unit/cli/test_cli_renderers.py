"""How a call looks while it runs: bytes in a pipe, a live region on a terminal."""

import io
import json
import re
from typing import Any

import msgspec
import pytest
from rich.console import Console

from mcp_hub.cli.render.renderers import JsonLines, OnTerminal, PlainText, ResultJson
from mcp_hub.cli.render.results import ShownResult
from mcp_hub.cli.setup import fail
from mcp_hub.errors import RpcError
from mcp_hub.events import Attempt, Delta, Log, Progressed, Reset


def delta(words: str, **more: Any) -> Delta:
    return Delta(msgspec.json.encode([{"type": "text", "text": words}]), **more)


def result(words: str, **members: object) -> ShownResult:
    return ShownResult.of(msgspec.json.encode({"content": [{"type": "text", "text": words}], **members}))


Show = type[PlainText] | type[ResultJson] | type[JsonLines]
FAILED_ATTEMPT = "The text so far belongs to a failed attempt."
NOTE = Log("info", b'{"level":"info","data":"note"}')
HALF = Progressed(1, 2, {"message": msgspec.Raw(b'"half\\n\\u001b[2Jdone"')})


class Terminal:
    """An `OnTerminal` that writes to memory; `lines` are those that stay when the live region is gone."""

    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        out, err = (Console(file=file, force_terminal=True, width=60) for file in (self.out, self.err))
        self.show = OnTerminal("job", out, err, shares_terminal=False)

    @property
    def lines(self) -> list[str]:
        self.show.close()
        return screen(self.out.getvalue())


def screen(output: str) -> list[str]:
    """The lines that stand on a terminal in the end: it obeys line feeds, returns, "erase line" and "one up"."""
    lines, row = [""], 0
    for step in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", output):
        if step == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif step == "\x1b[1A":
            row -= 1
        elif step == "\x1b[2K":
            lines[row] = ""
        elif step != "\r" and not step.startswith("\x1b"):
            lines[row] += step
    return [line.rstrip() for line in lines if line.strip()]


def piped(*texts: str, then: ShownResult) -> bytes:
    """All that a pipe gets of a call."""
    out = io.BytesIO()
    show = PlainText(out)
    for index, words in enumerate(texts):
        before = len(out.getvalue())
        show.event(delta(words))
        assert out.getvalue()[before:] == words.encode(), index  # at once
    show.outcome(then)
    return out.getvalue()


def test_pipe_gets_text_as_it_comes_then_the_rest_of_the_result() -> None:
    assert piped(then=result("done")) == b"done\n"
    assert piped("do", "ne", then=result("done")) == b"done\n"
    assert piped("d\u00f6", then=result("d\u00f6ne")) == "d\u00f6ne\n".encode()
    assert piped("step 1", then=result("done")) == b"step 1\ndone\n"
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    both = ShownResult.of(msgspec.json.encode({"content": [{"type": "text", "text": "done"}, image]}))
    assert piped("done", then=both) == b"done\n[image image/png 3 bytes]\n"


@pytest.mark.parametrize(
    ("show", "events", "end", "printed", "said"),
    [
        (PlainText, ["do", Reset(2, "lost", 2)], result("done"), b"do\ndone\n", f"{FAILED_ATTEMPT}\n"),
        (
            PlainText,
            [HALF, NOTE, delta("aux", channel="aux"), "a", delta("b", index=1)],
            RpcError("no", code=-5),
            b"a\nb\n",
            "error -5: no\n",
        ),
        (ResultJson, [], ShownResult.of(b'{"content":[], "x": 1.0}'), b'{"content":[], "x": 1.0}\n', ""),
        (PlainText, [], result("sorry", isError=True), b"sorry\n", "The tool reported an error.\n"),
    ],
    ids=["failed attempt", "no progress, no logs", "json", "error of the tool"],
)
def test_pipe_gets_whole_lines_and_the_result_as_sent(
    show: Show, events: list[Any], end: Any, printed: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.BytesIO()
    shown = show(out)
    for event in events:
        shown.event(delta(event) if isinstance(event, str) else event)
    if isinstance(end, RpcError):
        shown.error(end, "error -5: no")
    else:
        shown.outcome(end)
    assert (out.getvalue(), capsys.readouterr().err) == (printed, said)


def test_json_lines_tell_everything_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    show = JsonLines(out)
    for event in (HALF, delta("a"), NOTE):
        show.event(event)
    show.error(RpcError("no", code=-5), "error -5: no")
    kinds = [json.loads(line)["type"] for line in out.getvalue().splitlines()]
    assert kinds == ["progress", "delta", "log", "error"]
    assert capsys.readouterr().err == "error -5: no\n"


def test_terminal_shows_progress_with_its_message_and_the_numbers_of_the_server() -> None:
    beats = [Progressed(4, 9, server_value=1), Progressed(5, 9, server_value=1, is_hubs=True)]
    for events, texts in (([HALF], ["1/2", "half \\x1b[2Jdone", "━"]), (beats, ["1/9"])):
        terminal = Terminal()
        for event in events:
            terminal.show.event(event)
        terminal.show.close()
        shown = terminal.out.getvalue()
        assert all(text in shown for text in texts) and "4/9" not in shown and "5/9" not in shown


@pytest.mark.parametrize(
    ("events", "end", "lines", "said"),
    [
        (["first ", "line\nsec", "ond\n"], "done", ["first line", "second", "done"], []),
        (["all ", "of it"], "all of it", ["all of it"], []),
        (["one", delta("two", index=1)], None, ["one", "two"], []),
        (["all of it", delta("by the way", channel="aux")], "all of it", ["all of it"], ["by the way"]),
        (
            ["ha", Attempt(2, "lost", 0.5, "gone"), Reset(2, "lost", 2), "half"],
            "half",
            ["half"],
            ["gone (attempt 2 in 0.5 s)", FAILED_ATTEMPT],
        ),
        (["done\n", Reset(2, "lost", 2)], "done\n", ["done", "done"], [FAILED_ATTEMPT]),
    ],
    ids=["lines", "not twice", "another index", "beside it", "second attempt", "only a failed attempt"],
)
def test_terminal_keeps_streamed_lines_and_the_result_once(
    events: list[Any], end: str | None, lines: list[str], said: list[str]
) -> None:
    terminal = Terminal()
    for event in events:
        terminal.show.event(delta(event) if isinstance(event, str) else event)
    if end is not None:
        terminal.show.outcome(result(end))
    assert terminal.lines == lines and screen(terminal.err.getvalue()) == said


def test_notes_logs_and_the_end_of_a_cancelled_call_go_to_stderr() -> None:
    terminal = Terminal()
    terminal.show.event(delta("half"))
    terminal.show.event(NOTE)
    terminal.show.note("stream \x1b[2Jst_1")
    terminal.show.cancelled("enough")
    assert terminal.lines == ["half"]
    assert "stream \\x1b[2Jst_1" in terminal.err.getvalue()
    assert "The call was cancelled: enough" in terminal.err.getvalue()
    assert "\x1b[2minfo: note\x1b[0m" in terminal.err.getvalue()


def test_upstream_text_is_no_markup_and_no_escape_sequence() -> None:
    terminal = Terminal()
    terminal.show.outcome(result("[red]a[/red] \x1b[2J"))
    assert terminal.lines == ["[red]a[/red] \\x1b[2J"]


@pytest.mark.parametrize("show", [PlainText, ResultJson, JsonLines])
def test_errors_hold_no_escape_sequence_wherever_stderr_goes(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no terminal is soon shown on one; and a sequence that went would put together what it had split."""
    message = "error 1: s3c\x1b[0mret \x1b]0;title\x07\nnext"
    show(io.BytesIO()).error(RpcError(message), message)
    assert capsys.readouterr().err == "error 1: s3c\\x1b[0mret \\x1b]0;title\\x07\nnext\n"


def test_a_command_that_fails_says_so_without_escape_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail("usage", "no \x1b]0;title\x07\x1b[2J", 2)
    assert capsys.readouterr().err == "no \\x1b]0;title\\x07\\x1b[2J [usage]\n"
