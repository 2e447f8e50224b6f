"""`mcp-hub run`: where the script comes from, what is printed, and how it ends."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.command import hub

SCRIPT = "rows = 'ä'\nrows\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code_tools.py").write_text((Path(__file__).parent / "code_tools.py").read_text())
    settings = {"servers": {"made": {"local": "code_tools", "prefix": "never"}}}
    (tmp_path / "servers.yaml").write_text(json.dumps(settings))
    (tmp_path / "script.py").write_text(SCRIPT, "utf-8")
    return tmp_path


@pytest.mark.parametrize(("name", "stdin"), [("script.py", ""), ("-", SCRIPT)])
def test_script_comes_from_a_file_or_stdin(folder: Path, name: str, stdin: str) -> None:
    done = hub(folder, "run", name, stdin=stdin)
    assert (done.returncode, done.stdout) == (0, f"printed {len(SCRIPT)}\n{SCRIPT}False\n")


def test_output_has_the_forms_of_a_call(folder: Path) -> None:
    lines = [json.loads(line) for line in hub(folder, "run", "script.py", "--json", "--again").stdout.splitlines()]
    assert [line["type"] for line in lines] == ["progress", "delta", "end"]
    assert lines[-1]["result"]["content"][0]["text"].endswith("True")
    alone = hub(folder, "run", "script.py", "--format", "json")
    assert json.loads(alone.stdout)["content"][0]["text"].endswith("False")


def test_hub_without_scripts_says_how_to_switch_them_on(folder: Path) -> None:
    (folder / "servers.yaml").write_text('{"servers": {}}')
    done = hub(folder, "run", "script.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "hub.code" in done.stderr and "[code_off]" in done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["none.py"], "none.py cannot be read: No such file"),
        (["."], "it is a directory"),
        (["latin.py"], "latin.py is not UTF-8 text"),
        (["large.py"], "larger than 1048576 bytes"),
        ([], "Name a script, or - for standard input."),
        (["script.py", "--path", "$["], "--path: "),
        (["script.py", "--detach", "--local"], "--detach leaves the call"),
    ],
)
def test_what_cannot_be_a_script_ends_with_2(folder: Path, options: list[str], reason: str) -> None:
    (folder / "latin.py").write_bytes(b"\xff")
    (folder / "large.py").write_bytes(b"#" * ((1 << 20) + 1))
    done = hub(folder, "run", *options)
    assert done.returncode == 2 and reason in done.stderr, done.stderr
