"""What people and programs are shown of a call: bytes in a pipe, a live region, results, files of `--output`."""

import io
import json
import os
import re
import stat
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from mcp_hub import events
from mcp_hub.cli.render import results
from mcp_hub.cli.render.renderers import on_terminal, renderer
from mcp_hub.cli.render.results import ShownResult
from mcp_hub.cli.setup import fail
from mcp_hub.errors import RpcError, UpstreamLost
from mcp_hub.events import Attempt, Delta, Log, Progressed, Reset


def delta(words: str, **more: Any) -> Delta:
    return Delta(msgspec.json.encode([{"type": "text", "text": words}]), **more)


def result(words: str, **members: object) -> ShownResult:
    return ShownResult.of(msgspec.json.encode({"content": [{"type": "text", "text": words}], **members}))


FAILED_ATTEMPT = "The text so far is not part of the result."
NOTE = Log("info", b'{"level":"info","data":"note"}')
HALF = Progressed(1, 2, {"message": msgspec.Raw(b'"half\\n\\u001b[2Jdone"')})


class Terminal:
    """A renderer on a terminal that writes to memory; `lines` are those that stay when the live region is gone."""

    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        out, err = (Console(file=file, force_terminal=True, width=60) for file in (self.out, self.err))
        self.show = on_terminal("job", out, err, shares_terminal=False)

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
    show = renderer("text", out)
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
    ("form", "steps", "end", "printed", "said"),
    [
        ("text", ["do", Reset(2, "lost", 2)], result("done"), b"do\ndone\n", f"{FAILED_ATTEMPT}\n"),
        (
            "text",
            [HALF, NOTE, delta("aux", channel="aux"), "a", delta("b", index=1)],
            RpcError("no", code=-5),
            b"a\nb\n",
            "error -5: no\n",
        ),
        ("json", [], ShownResult.of(b'{"content":[], "x": 1.0}'), b'{"content":[], "x": 1.0}\n', ""),
        ("text", [], result("sorry", isError=True), b"sorry\n", "The tool reported an error.\n"),
    ],
    ids=["failed attempt", "no progress, no logs", "json", "error of the tool"],
)
def test_pipe_gets_whole_lines_and_the_result_as_sent(
    form: str, steps: list[Any], end: Any, printed: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = io.BytesIO()
    shown = renderer(form, out)
    for event in steps:
        shown.event(delta(event) if isinstance(event, str) else event)
    if isinstance(end, RpcError):
        shown.error(end, "error -5: no")
    else:
        shown.outcome(end)
    assert (out.getvalue(), capsys.readouterr().err) == (printed, said)


def test_json_lines_tell_everything_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    show = renderer("jsonl", out)
    for event in (HALF, delta("a"), NOTE):
        show.event(event)
    show.error(RpcError("no", code=-5), "error -5: no")
    kinds = [json.loads(line)["type"] for line in out.getvalue().splitlines()]
    assert kinds == ["progress", "delta", "log", "error"]
    assert capsys.readouterr().err == "error -5: no\n"


def test_terminal_shows_progress_with_its_message_and_the_numbers_of_the_server() -> None:
    beats = [Progressed(4, 9, server_value=1), Progressed(5, 9, server_value=1, is_hubs=True)]
    for steps, texts in (([HALF], ["1/2", "half \\x1b[2Jdone", "━"]), (beats, ["1/9"])):
        terminal = Terminal()
        for event in steps:
            terminal.show.event(event)
        terminal.show.close()
        shown = terminal.out.getvalue()
        assert all(text in shown for text in texts) and "4/9" not in shown and "5/9" not in shown


@pytest.mark.parametrize(
    ("steps", "end", "lines", "said"),
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
    steps: list[Any], end: str | None, lines: list[str], said: list[str]
) -> None:
    terminal = Terminal()
    for event in steps:
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


@pytest.mark.parametrize("form", ["text", "json", "jsonl"])
def test_errors_hold_no_escape_sequence_wherever_stderr_goes(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no terminal is soon shown on one; and a sequence that went would put together what it had split."""
    message = "error 1: s3c\x1b[0mret \x1b]0;title\x07\nnext"
    renderer(form, io.BytesIO()).error(RpcError(message), message)
    assert capsys.readouterr().err == "error 1: s3c\\x1b[0mret \\x1b]0;title\\x07\nnext\n"


def test_a_command_that_fails_says_so_without_escape_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail("usage", "no \x1b]0;title\x07\x1b[2J", 2)
    assert capsys.readouterr().err == "no \\x1b]0;title\\x07\\x1b[2J [usage]\n"


TEXT = {"type": "text", "text": "hello"}
IMAGE = {"type": "image", "mimeType": "image/png", "data": "AAAA"}


def encoded(value: object) -> bytes:
    return msgspec.json.encode(value)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [TEXT, TEXT]}, "hello\nhello"),
        ({"content": [TEXT], "structuredContent": {"a": 1}}, "hello"),
        ({"content": [], "structuredContent": {"a": 1}}, '{\n  "a": 1\n}'),
        ({"content": [IMAGE]}, "[image image/png 3 bytes]"),
        ({"content": [{"type": "resource_link", "name": "n", "uri": "u:1"}]}, "[resource_link n u:1]"),
        ({"content": [{"type": "resource", "resource": {"uri": "u:1", "text": "t"}}]}, "[resource u:1]\nt"),
        ({"content": [{"type": "resource", "resource": {"uri": "u:1", "blob": "AA=="}}]}, "[resource u:1 1 byte]"),
        ({"content": ["odd", {"type": 5}]}, "['odd']\n[5]"),
        ({"content": "odd"}, ""),
        ({}, ""),
    ],
)
def test_result_reads_as_text(result: dict[str, Any], text: str) -> None:
    assert results.ShownResult.of(encoded(result)).text == text


def test_odd_results_and_deltas_are_shown_as_far_as_they_can_be_read() -> None:
    assert results.ShownResult.of(b"{nonsense").text == "{nonsense"
    assert results.ShownResult.of(b'{"isError":true}').is_error
    assert not results.ShownResult.of(b'{"isError":"yes"}').is_error
    assert results.content_text(encoded([TEXT, TEXT])) == "hellohello"
    assert results.content_text(b"[oops") == "[oops"


def test_logs_and_progress_read_as_text() -> None:
    assert results.log_text(events.Log("info", b'{"level":"info","logger":"db","data":"slow"}')) == "info db: slow"
    assert results.log_text(events.Log("error", b'{"level":"error","data":{"a":1}}')) == 'error: {"a":1}'
    assert results.log_text(events.Log("error", b"[]")) == "error: null"
    assert results.message_of(events.Progressed(1, members={"message": msgspec.Raw(b'"half"')})) == "half"
    assert results.message_of(events.Progressed(1, members={"message": msgspec.Raw(b"5")})) == ""
    assert results.message_of(events.Progressed(1)) == ""


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            events.Progressed(1, 2, {"message": msgspec.Raw(b'"m"'), "type": msgspec.Raw(b"0")}, skipped=3),
            {"type": "progress", "progress": 1, "total": 2, "message": "m", "skipped": 3},
        ),
        (events.Progressed(0.5), {"type": "progress", "progress": 0.5}),
        (events.Delta(encoded([TEXT]), 1), {"type": "delta", "index": 1, "content": [TEXT]}),
        (events.Delta(b"[]", 0, "aux"), {"type": "delta", "channel": "aux", "index": 0, "content": []}),
        (events.ToolCall("c", "a", b'{"x":1}'), {"type": "tool-call", "call": "c", "name": "a", "arguments": {"x": 1}}),
        (events.ToolResult("c", b"[]", True), {"type": "tool-result", "call": "c", "isError": True, "content": []}),
        (
            events.InputRequired("q", "roots/list", b"{}"),
            {"type": "input-required", "key": "q", "method": "roots/list", "params": {}},
        ),
        (events.InputReceived("q"), {"type": "input-received", "key": "q"}),
        (events.InputReceived("q", 1, "accept"), {"type": "input-received", "key": "q", "action": "accept"}),
        (events.Log("info", b'{"data":[1],"level":"info"}'), {"type": "log", "level": "info", "data": [1]}),
        (
            events.Attempt(2, "lost", 0.5, "gone"),
            {"type": "attempt", "attempt": 2, "reason": "lost", "after": 0.5, "detail": "gone"},
        ),
        (events.Reset(2, "lost", 3), {"type": "reset", "attempt": 2, "reason": "lost", "discard_from": 3}),
        (events.Started(), None),
        (events.Progressed(1, server_value=0.5, is_hubs=True), None),
    ],
)
def test_event_becomes_a_line(event: events.CallEvent, line: object) -> None:
    made = results.event_line(event)
    assert line == (None if made is None else json.loads(made))
    assert made is None or made.endswith(b"\n")


def test_lines_of_an_ending_hold_the_result_or_the_error() -> None:
    line = results.result_line(results.ShownResult.of(b'{"content":[], "isError":true, "x":1.0}'))
    assert line == b'{"type":"end","outcome":"tool_error","result":{"content":[], "isError":true, "x":1.0}}\n'
    own = {"type": "error", "code": 1002, "message": "gone", "data": {"code": "upstream_crashed"}}
    assert json.loads(results.error_line(UpstreamLost("gone"))) == own
    raw = b'{"code":-5,"message":"no","data":{"a":1},"type":"theirs"}'
    relayed = json.loads(results.error_line(RpcError("no", code=-5, raw=raw)))
    assert relayed == {"type": "error", "code": -5, "message": "no", "data": {"a": 1}}


def test_pages_that_a_call_requires_are_found_in_its_error() -> None:
    data = {"elicitations": [{"mode": "url", "url": "https://a/b", "message": "m"}, {"mode": "url"}]}
    assert results.urls_of(RpcError("first a page", code=-32042, data=data)) == ["https://a/b"]
    assert results.urls_of(RpcError("other", code=-5, data=data)) == []
    for odd in (None, {"elicitations": 5}, {"elicitations": [1]}):
        assert results.urls_of(RpcError("odd", code=-32042, data=odd)) == []


def shown(method: str, **result: object) -> results.ShownResult:
    return results.ShownResult.of(msgspec.json.encode(result), method)


def test_prompt_is_shown_as_its_messages() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    messages = [{"role": "user", "content": {"type": "text", "text": "a"}}, {"role": "assistant", "content": image}]
    found = shown("prompts/get", messages=[*messages, 5])
    assert found.text == "user: a\nassistant: [image image/png 3 bytes]\nNone: [None]"
    assert found.blocks[1] == image


@pytest.mark.parametrize(
    ("contents", "text", "data"),
    [
        ([{"uri": "a", "text": "only"}], "only", None),
        ([{"uri": "a", "text": "x"}, {"uri": "b", "text": "y"}], "[resource a]\nx\n[resource b]\ny", None),
        ([{"uri": "a", "blob": "AAAA"}], "[resource a 3 bytes]", b"\0\0\0"),
        ([{"uri": "a", "blob": "%"}], "[resource a 0 bytes]", None),
        ([], "", None),
        ("odd", "", None),
    ],
)
def test_resource_is_shown_as_its_text_or_kept_as_its_bytes(contents: object, text: str, data: bytes | None) -> None:
    found = shown("resources/read", contents=contents)
    assert (found.text, found.data) == (text, data)
    assert results.ShownResult.of(found.raw, "resources/read", is_saved=True).data is None


PNG = b"\x89PNG\r\n"


def block(kind: str = "image", mime: object = "image/png", data: bytes = PNG) -> dict[str, object]:
    return {"type": kind, "mimeType": mime, "data": b64encode(data).decode()}


def test_each_binary_block_is_a_file_named_by_position_and_type(tmp_path: Path) -> None:
    blob = {"uri": "x://../../a", "mimeType": "application/pdf", "blob": b64encode(b"%PDF").decode()}
    blocks: list[object] = [
        {"type": "text", "text": "a"},
        block(),
        block("audio", "audio/wav", b"RIFF"),
        {"type": "resource", "resource": blob},
        {"type": "resource", "resource": {"uri": "x://b", "text": "text"}},
        "odd",
        block(mime="image/../../../evil"),
        block(mime=None),
    ]
    said = list(results.saved(blocks, tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        **{"2.png": PNG, "3.wav": b"RIFF", "4.pdf": b"%PDF"},
        **{"7.bin": PNG, "8.bin": PNG},
    }
    assert said[0] == f"saved {tmp_path / '2.png'} (image/png, 6 bytes)"
    assert len(said) == 5


def test_files_are_their_owners_and_replace_nothing(tmp_path: Path) -> None:
    folder, outside = tmp_path / "out", tmp_path / "outside"
    folder.mkdir()
    (folder / "1.png").write_bytes(b"mine")
    (folder / "1-2.png").symlink_to(outside)
    assert list(results.saved([block()], folder)) == [f"saved {folder / '1-3.png'} (image/png, 6 bytes)"]
    assert (folder / "1.png").read_bytes() == b"mine" and not outside.exists()
    folder = tmp_path / "a" / "b"
    results.make_media_folder(folder)
    list(results.saved([block()], folder))
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(folder / "1.png").st_mode) == 0o600
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        results.make_media_folder(tmp_path / "file")


def test_data_that_are_not_base64_are_said_so(tmp_path: Path) -> None:
    spoilt = {"type": "image", "mimeType": "image/png", "data": "%%%"}
    assert list(results.saved([spoilt], tmp_path)) == ["block 1 (image/png) is not saved: its data are not Base64"]
    assert list(tmp_path.iterdir()) == []
