"""How a call looks while it runs: bytes in a pipe, a live region on a terminal."""

import io
import json
import re

import msgspec
import pytest
from rich.console import Console

from mcp_hub.cli.render.renderers import JsonLines, OnTerminal, PlainText, ResultJson
from mcp_hub.cli.render.results import ShownResult
from mcp_hub.cli.setup import fail
from mcp_hub.errors import RpcError
from mcp_hub.events import Attempt, Delta, Log, Progressed, Reset


def text(words: str) -> bytes:
    return msgspec.json.encode([{"type": "text", "text": words}])


def result(words: str, **members: object) -> ShownResult:
    return ShownResult.of(msgspec.json.encode({"content": [{"type": "text", "text": words}], **members}))


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
        show.event(Delta(text(words)))
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


def test_pipe_gets_the_result_whole_after_the_text_of_a_failed_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    show = PlainText(out)
    for event in (Delta(text("do")), Reset(2, "lost", 2)):
        show.event(event)
    show.outcome(result("done"))
    assert out.getvalue() == b"do\ndone\n"
    assert capsys.readouterr().err == "The text so far belongs to a failed attempt.\n"


def test_pipe_gets_no_progress_no_logs_and_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    show = PlainText(out)
    for event in (HALF, Log("info", b'{"level":"info","data":1}'), Delta(text("aux"), channel="aux")):
        show.event(event)
    show.event(Delta(text("a")))
    show.event(Delta(text("b"), index=1))
    show.error(RpcError("no", code=-5), "error -5: no")
    assert out.getvalue() == b"a\nb\n"
    assert capsys.readouterr().err == "error -5: no\n"


def test_pipe_gets_the_result_object_as_sent_if_json_is_asked_for() -> None:
    out = io.BytesIO()
    ResultJson(out).outcome(ShownResult.of(b'{"content":[], "x": 1.0}'))
    assert out.getvalue() == b'{"content":[], "x": 1.0}\n'


def test_tool_error_is_noted_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    PlainText(out).outcome(result("sorry", isError=True))
    assert out.getvalue() == b"sorry\n"
    assert capsys.readouterr().err == "The tool reported an error.\n"


def test_json_lines_tell_everything_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    show = JsonLines(out)
    for event in (HALF, Delta(text("a")), Log("info", b'{"level":"info","data":1}')):
        show.event(event)
    show.error(RpcError("no", code=-5), "error -5: no")
    kinds = [json.loads(line)["type"] for line in out.getvalue().splitlines()]
    assert kinds == ["progress", "delta", "log", "error"]
    assert capsys.readouterr().err == "error -5: no\n"


def test_terminal_shows_progress_with_message_and_count() -> None:
    terminal = Terminal()
    terminal.show.event(HALF)
    terminal.show.close()
    shown = terminal.out.getvalue()
    assert "1/2" in shown
    assert "half \\x1b[2Jdone" in shown
    assert "━" in shown


def test_terminal_shows_the_numbers_of_the_server() -> None:
    terminal = Terminal()
    terminal.show.event(Progressed(4, 9, server_value=1))
    terminal.show.event(Progressed(5, 9, server_value=1, is_hubs=True))
    terminal.show.close()
    assert "1/9" in terminal.out.getvalue() and "4/9" not in terminal.out.getvalue()
    assert "5/9" not in terminal.out.getvalue()


def test_terminal_keeps_streamed_lines_and_the_result() -> None:
    terminal = Terminal()
    for piece in ("first ", "line\nsec", "ond\n"):
        terminal.show.event(Delta(text(piece)))
    terminal.show.outcome(result("done"))
    assert terminal.lines == ["first line", "second", "done"]


def test_terminal_does_not_repeat_a_result_that_was_streamed() -> None:
    terminal = Terminal()
    terminal.show.event(Delta(text("all ")))
    terminal.show.event(Delta(text("of it")))
    terminal.show.outcome(result("all of it"))
    assert terminal.lines == ["all of it"]


def test_content_at_another_index_begins_a_line() -> None:
    terminal = Terminal()
    terminal.show.event(Delta(text("one")))
    terminal.show.event(Delta(text("two"), index=1))
    assert terminal.lines == ["one", "two"]


def test_content_beside_the_result_goes_to_stderr_and_is_no_part_of_it() -> None:
    terminal = Terminal()
    terminal.show.event(Delta(text("all of it")))
    terminal.show.event(Delta(text("by the way"), channel="aux"))
    terminal.show.outcome(result("all of it"))
    assert terminal.lines == ["all of it"]
    assert "by the way" in terminal.err.getvalue()


def test_notes_and_the_end_of_a_cancelled_call_go_to_stderr() -> None:
    terminal = Terminal()
    terminal.show.event(Delta(text("half")))
    terminal.show.note("stream \x1b[2Jst_1")
    terminal.show.cancelled("enough")
    assert terminal.lines == ["half"]
    assert "stream \\x1b[2Jst_1" in terminal.err.getvalue()
    assert "The call was cancelled: enough" in terminal.err.getvalue()


def test_log_messages_go_to_stderr_dimmed() -> None:
    terminal = Terminal()
    terminal.show.event(Log("info", b'{"level":"info","data":"note"}'))
    assert terminal.lines == []
    assert "\x1b[2minfo: note\x1b[0m" in terminal.err.getvalue()


def test_upstream_text_is_no_markup_and_no_escape_sequence() -> None:
    terminal = Terminal()
    terminal.show.outcome(result("[red]a[/red] \x1b[2J"))
    assert terminal.lines == ["[red]a[/red] \\x1b[2J"]


@pytest.mark.parametrize("show", [PlainText, ResultJson, JsonLines])
def test_errors_hold_no_escape_sequence_wherever_stderr_goes(
    show: type[PlainText] | type[ResultJson] | type[JsonLines], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is no terminal is soon shown on one; and a sequence that went would put together what it had split."""
    message = "error 1: s3c\x1b[0mret \x1b]0;title\x07\nnext"
    show(io.BytesIO()).error(RpcError(message), message)
    assert capsys.readouterr().err == "error 1: s3c\\x1b[0mret \\x1b]0;title\\x07\nnext\n"


def test_a_command_that_fails_says_so_without_escape_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail("usage", "no \x1b]0;title\x07\x1b[2J", 2)
    assert capsys.readouterr().err == "no \\x1b]0;title\\x07\\x1b[2J [usage]\n"


def test_text_of_a_failed_attempt_is_not_taken_for_the_result() -> None:
    terminal = Terminal()
    for event in (Delta(text("ha")), Attempt(2, "lost", 0.5, "gone"), Reset(2, "lost", 2), Delta(text("half"))):
        terminal.show.event(event)
    terminal.show.outcome(result("half"))
    assert terminal.lines == ["half"], "streamed whole by the second attempt, it is not printed again"
    said = screen(terminal.err.getvalue())
    assert said == ["gone (attempt 2 in 0.5 s)", "The text so far belongs to a failed attempt."]


def test_the_result_is_printed_if_only_a_failed_attempt_has_streamed_it() -> None:
    terminal = Terminal()
    for event in (Delta(text("done\n")), Reset(2, "lost", 2)):
        terminal.show.event(event)
    terminal.show.outcome(result("done\n"))
    assert terminal.lines == ["done", "done"]
