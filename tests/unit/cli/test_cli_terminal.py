"""Texts that are not ours on a terminal: nothing in them is obeyed, whichever way they come."""

import json
import os
import pty
import select
import subprocess
import sys
import unicodedata
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from mcp_hub.masking import shown, visible, visible_json
from tests.fork_server import forked_command
from tests.unit.cli.command import command_env

EVIL = (
    "\x1b[2J\x1b]0;title\x07\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\\x1b]52;c;ZXZpbA==\x07\x9b31m\x9d0;t\x9c"
    "\u202etxt.exe\u2066\u2069\u061c\u200f\u2028\u2029\ufeff\r\b\x7f\x00\U000e0041\ufff9"
)
"""Escape sequences (CSI, titles, hyperlinks OSC 8, the clipboard OSC 52), C1 codes, directions, breaks, tags."""
SECONDS = 240


def is_obeyed(char: str) -> bool:
    return char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def test_what_a_terminal_obeys_is_spelled_out() -> None:
    seen = visible(EVIL + "\ud800 plain é 中 \U0001f600\r\n\ttab")
    assert not [char for char in seen if is_obeyed(char)]
    assert seen.startswith("\\x1b[2J") and "\\u202e" in seen and "\\U000e0041" in seen and "\\ud800" in seen
    assert seen.endswith(" plain é 中 \U0001f600\n\ttab")
    assert visible(seen) == seen
    assert visible("a\x1b[2Jb\r\nc\td\x07\x9b\n") == "a\\x1b[2Jb\nc\td\\x07\\x9b\n"


UNSEEN = (
    "\u200b \u200c \u200d \u2060 \u2061 \u2062 \u2063 \u2064 \xad \ufe00 \ufe0f \U000e0100 \u034f \u180e \u3164 \u206a"
)


def test_characters_that_nobody_sees_are_spelled_out() -> None:
    for char in UNSEEN.split(" "):
        for spelled in (
            visible(f"pay{char}ee"),
            shown(f"pay{char}ee"),
            visible_json(f'"pay{char}ee"'.encode()).decode(),
        ):
            assert spelled.isprintable() and char not in spelled and f"{ord(char):x}"[-2:] in spelled.lower()
        assert json.loads(visible_json(f'"pay{char}ee"'.encode())) == f"pay{char}ee"
    assert "\ufe0f" not in visible("\u263a\ufe0f\ufe0f\ufe0f")[2:], "more than one selector is no emoji"


@pytest.mark.parametrize(
    "text", ["👩\u200d💻", "❤\ufe0f\u200d🔥", "1\ufe0f\u20e3", "☺\ufe0e", "می\u200cخواهم", "क\u094d\u200dष"]
)
def test_joiners_that_are_a_part_of_an_emoji_or_a_word_stay(text: str) -> None:
    assert visible(text) == shown(text) == visible_json(text.encode()).decode() == text


def test_json_on_a_terminal_is_the_same_data_without_control_characters() -> None:
    data = {EVIL: [EVIL, "é\n\t\\"], "a": 1}
    text = json.dumps(data, ensure_ascii=False, indent=1).replace("\n", "\r\n").encode()
    escaped = visible_json(text)
    assert json.loads(escaped) == data
    assert not [char for char in escaped.decode() if is_obeyed(char)]


def on_terminal(home: Path, *args: str, answers: Sequence[tuple[bytes, bytes]] = ()) -> str:
    """What a terminal gets of the command. `answers` are questions and the keys that are typed once each is shown.

    Keys that come before are lost where the answer is a secret: what is typed ahead is dropped then.
    """
    leader, follower = pty.openpty()
    env = {**command_env(home), "HOME": str(home), "TERM": "xterm", "XDG_CONFIG_HOME": str(home / ".config")}
    with subprocess.Popen(
        [*forked_command(), *args], stdin=follower, stdout=follower, stderr=follower, env=env, cwd=home
    ) as run:
        os.close(follower)
        seen, asked, waiting = b"", 0, deque(answers)
        try:
            while select.select([leader], [], [], SECONDS)[0] and (part := os.read(leader, 65536)):
                seen += part
                if waiting and (place := seen.find(waiting[0][0], asked)) >= 0:
                    asked = place + 1
                    os.write(leader, waiting.popleft()[1])
        except OSError:  # the end of a terminal on Linux
            pass
        finally:
            run.kill()
            os.close(leader)
    assert not waiting, (waiting, seen)
    return seen.decode("utf-8", "replace")


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo terminal")
@pytest.mark.parametrize("is_secret", [False, True])
def test_question_of_a_file_is_only_text(tmp_path: Path, is_secret: bool) -> None:
    asked = {"id": "key", "type": "promptString", "description": f"Key {EVIL}", "default": EVIL, "password": is_secret}
    servers = {
        f"a {EVIL}": {"command": "x", "args": ["${input:key}", EVIL], "env": {f"B{EVIL}": EVIL}, EVIL: 1},
        "b": {"command": "x", "args": ["${input:key}"]},
    }
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "mcp.json").write_text(json.dumps({"inputs": [asked], "servers": servers}))
    seen = on_terminal(
        tmp_path, "import", ".vscode/mcp.json", "--no-count", answers=[(b"Write", b"y\n"), (b"Key", b"value\n")]
    )
    assert "Key" in seen and "\\x1b]52" in seen
    ours = seen.replace("\r\n", "\n")
    for style in ("\x1b[0m", "\x1b[1m", "\x1b[31m"):
        ours = ours.replace(style, "")
    assert not [char for char in ours if is_obeyed(char)], repr(ours)


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo terminal")
@pytest.mark.parametrize("args", [("import", f"no-{EVIL.replace(chr(0), '')}.json"), (f"x{EVIL.replace(chr(0), '')}",),
                                  ("call", "a", "--args-json", f"@{EVIL.replace(chr(0), '')}"),
                                  ("add", f"--{EVIL.replace(chr(0), '')}", "x")])  # fmt: skip
def test_words_of_the_command_line_are_only_text(tmp_path: Path, args: tuple[str, ...]) -> None:
    seen = on_terminal(tmp_path, *args).replace("\r\n", "\n")
    assert seen and not [char for char in seen if is_obeyed(char)], repr(seen)


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo terminal")
def test_init_asks_again_for_what_it_cannot_use(tmp_path: Path) -> None:
    answers = [
        (b"clock", b"maybe\n"), (b"clock", b"n\n"), (b"folder whose", b"/no/such/folder\n"),
        (b"folder whose", b".\n"), (b"URL of", b"not a url\n"), (b"URL of", b"http://[\n"),
        (b"URL of", b"https://www.mcp.example/mcp\n"), (b"Start these", b"n\n"),
    ]  # fmt: skip
    seen = on_terminal(tmp_path, "init", "--config", "s.yaml", answers=answers)
    assert "/no/such/folder is not a folder" in seen and seen.count("[invalid_url]") == 1, seen
    written = yaml.safe_load((tmp_path / "s.yaml").read_text())["servers"]
    assert written["files"]["args"][-1] == str(tmp_path) and written["mcp"] == {"url": "https://www.mcp.example/mcp"}


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo terminal")
@pytest.mark.parametrize("answers", [[b"Import"], [b"clock", b"folder", b"URL"]], ids=["import", "questions"])
def test_init_ends_at_a_no(tmp_path: Path, answers: list[bytes]) -> None:
    if answers == [b"Import"]:
        (tmp_path / ".cursor").mkdir()
        (tmp_path / ".cursor" / "mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    seen = on_terminal(tmp_path, "init", "--config", "s.yaml", answers=[(prompt, b"n\n") for prompt in answers])
    assert "Nothing is changed." in seen and not (tmp_path / "s.yaml").exists()
