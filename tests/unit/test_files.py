"""Reading files that somebody else names: regular files only, bounded in size and time, in every command."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from mcp_hub.config.load.imported import ValuePlaces
from mcp_hub.config.load.load import load
from mcp_hub.config.load.locate import read_document
from mcp_hub.errors import ConfigError
from mcp_hub.files import LARGEST_OF_CLIENTS, LARGEST_OWN, open_null, read_file, remove_tree
from mcp_hub.onboarding.clients.model import Where
from mcp_hub.onboarding.imports.found import of_file
from tests.fork_server import forked_command
from tests.unit.cli.command import command_env

SECONDS = 240
"""A command that is killed after this has read without a bound."""


def pipe(place: Path) -> None:
    os.mkfifo(place)


def listener(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(place))  # whose length is limited


def zeros(place: Path) -> None:
    place.symlink_to("/dev/zero")


def terminal(place: Path) -> None:
    place.symlink_to("/dev/tty")


def circle(place: Path) -> None:
    place.symlink_to(place)


def large(place: Path) -> None:
    with place.open("wb") as file:
        file.write(b'{"mcpServers": {"a": {"command": "x", "args": ["')
        file.seek(20_000_000)
        file.write(b'"]}}}')


KINDS: list[Callable[[Path], None]] = [pipe, listener, zeros, terminal, circle, large, Path.mkdir]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("make", KINDS)
def test_file_that_is_not_regular_or_too_large_is_refused_at_once(home: Path, make: Callable[[Path], None]) -> None:
    make(home / "x.json")
    with pytest.raises(OSError):
        read_file(home / "x.json", LARGEST_OF_CLIENTS)


def test_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"12345678")
    (tmp_path / "link").symlink_to("real")
    content = read_file(tmp_path / "link", 8)
    assert (content.data, content.stat.st_size) == (b"12345678", 8)
    with pytest.raises(OSError, match="larger than 7 bytes"):
        read_file(tmp_path / "link", 7)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "gone", 8)
    with pytest.raises(OSError, match="no name can"):
        read_file(tmp_path / "a\0b", 8)
    place = tmp_path / "mcp.json"
    entries = {"a": {"command": "x"}}
    place.write_text(json.dumps({"mcpServers": entries, "history": ["y" * 900] * 12_000}, indent=1))
    assert LARGEST_OWN < place.stat().st_size < LARGEST_OF_CLIENTS
    (server,) = of_file(place, Where("linux", tmp_path / "home", {}), PLACES).servers
    assert (server.name, server.entry) == ("a", {"command": "x", "cwd": str(tmp_path)})


def test_file_that_does_not_arrive_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").touch()
    arrived = threading.Event()

    def hang(*_: object) -> int:
        arrived.wait(SECONDS)
        raise OSError

    monkeypatch.setattr("mcp_hub.files.os.open", hang)  # as a network file system does whose server is down
    with pytest.raises(TimeoutError, match="does not arrive within"):
        read_file(tmp_path / "x", 8, seconds=0.05)
    arrived.set()


COMMANDS = {
    "import": ("import", "{}", "--yes", "--no-count"),
    "add": ("add", "{}", "--yes"),
    "check": ("check", "--config", "{}", "--no-start"),
    "serve-attached": ("serve", "--config", "{}", "--attach", "always"),
    "remove": ("remove", "x", "--config", "{}"),
    "call": ("call", "x", "--args-json", "@{}"),
    "install": ("install", "cursor", "--config", "{}", "--dry-run", "--import"),
}


@pytest.mark.processes
@pytest.mark.first(len(COMMANDS) + 1)
@pytest.mark.parametrize(("name", "make"), [(name, make) for make in (pipe, zeros, large) for name in COMMANDS])
def test_no_command_waits_for_a_file_that_a_person_names(home: Path, name: str, make: Callable[[Path], None]) -> None:
    make(home / "x.json")
    env = {**command_env(home), "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    args = [word.format("x.json") for word in COMMANDS[name]]
    done = subprocess.run(
        [*forked_command(), *args], input="", capture_output=True, text=True, env=env, cwd=home, timeout=SECONDS
    )
    assert done.returncode in (1, 2, 3), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "x.json" in done.stderr or "name" in done.stderr


def test_client_with_a_file_that_is_not_regular_stops_no_import(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from mcp_hub.cli import main

    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("MCP_HUB_CONFIG", str(home / "servers.yaml"))
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(home / "state"))
    (home / ".cursor").mkdir()
    (home / ".codeium" / "windsurf").mkdir(parents=True)
    zeros(home / ".cursor" / "mcp.json")
    large(home / ".codeium" / "windsurf" / "mcp_config.json")
    (home / ".claude.json").write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}, "history": "y" * 20_000_000}))
    done = CliRunner().invoke(main, ["import", "--all", "--yes", "--no-count"])
    assert done.exit_code == 0, done.output
    assert "larger than 16777216 bytes" in done.stderr
    assert "a:" in (home / "servers.yaml").read_text()  # Claude Code keeps its history there: up to 64 MiB
    assert CliRunner().invoke(main, ["install", "cursor", "--dry-run"]).exit_code == 1


PLACES = ValuePlaces(lambda _: "", lambda *_: "")


def of_client(place: Path) -> object:
    return of_file(place, Where("linux", place.parent / "home", {}), PLACES)


def of_hub(place: Path) -> object:
    return load(place, {})


@pytest.mark.parametrize("read", [of_client, of_hub])
def test_lone_surrogate_is_an_error_with_its_line(tmp_path: Path, read: Callable[[Path], object]) -> None:
    place = tmp_path / "mcp.json"
    place.write_text('{"mcpServers": {"a": {\n"command": "x",\n"args": ["\\ud83d\\ude00", "\\ud800"]}}}')
    with pytest.raises(ConfigError) as refused:
        read(place)
    (finding,) = refused.value.findings
    assert (finding.code, finding.line) == ("invalid_text", 3)
    place.write_bytes(b'{"mcpServers": {"a": {\n"command": "\xed\xa0\x80"}}}')
    with pytest.raises(ConfigError) as refused:
        read(place)
    assert (refused.value.code, refused.value.findings[0].line) == ("invalid_text", 2)


BOMBS = {
    "deep.json": '{"mcpServers": ' + '{"a":' * 100_000,
    "deep2.json": '{"mcpServers": {"a": {"command": "x", "args": ' + "[" * 900 + "]" * 900 + "}}}",
    "lists.json": "[" * 1_000_000,
    "deep.yaml": "[" * 100_000,
    "deep.toml": "a = " + "[" * 100_000,
    "quotes.json": '{"a": "' + '\\"' * 450_000,
    "quotes2.json": '{"a": "x" ' + '\\"' * 450_000,
    "comments.json": "{" + "/*" * 450_000,
    "slashes.json": "{" + "/" * 900_000,
    "commas.json": "{" + ", " * 450_000,
    "words.json": "{" + "a: [1, 2, 'b'],\n" * 50_000,
    "laughs.yaml": "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*{'a' if n == 0 else f'b{n - 1}'}, "
                                             f"*{'a' if n == 0 else f'b{n - 1}'}]\n" for n in range(60)),
    "merges.yaml": "a: &a {x: 1}\n" + "".join(f"b{n}: &b{n} {{<<: [*a, *a]}}\n" for n in range(9000)),
    "self.yaml": "a: &a [*a]\n",
    "number.json": '{"a": ' + "1" * 900_000 + "}",
    "number.yaml": "a: " + "1" * 900_000,
    "times.yaml": "a: 1" + ":1" * 450_000,
    "number.toml": "a = " + "1" * 900_000,
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_text_that_is_made_to_use_up_time_or_memory_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError):
        read_document(BOMBS[name], name)


@pytest.mark.parametrize("read", [of_client, of_hub])
@pytest.mark.parametrize("name", BOMBS)
def test_file_that_is_made_to_use_up_time_or_memory_is_an_error(
    tmp_path: Path, name: str, read: Callable[[Path], object]
) -> None:
    (tmp_path / name).write_text(BOMBS[name])
    with pytest.raises(ConfigError):
        read(tmp_path / name)


@pytest.mark.parametrize("is_missing", [False, True])
def test_null_device_can_be_missing(is_missing: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if is_missing:  # an empty /dev, as in some containers and build sandboxes
        monkeypatch.setattr(os, "devnull", str(tmp_path / "null"))
    nothing = open_null(os.O_RDONLY)
    try:
        assert os.read(nothing, 1) == b"", "whoever reads it is at the end, and does not wait"
    finally:
        os.close(nothing)
    nowhere = open_null(os.O_WRONLY)
    with suppress(BrokenPipeError):
        os.write(nowhere, b"x" * 100_000)
    os.close(nowhere)
    assert list(tmp_path.iterdir()) == []


def test_a_tree_goes_though_rights_were_taken_away_and_no_link_is_followed() -> None:
    top = Path(tempfile.mkdtemp())  # where another user reaches it
    user, place = os.geteuid(), top / "tree"
    if user == 0:
        os.chown(top, 65534, 65534)
        os.seteuid(65534)  # root may do all
    try:
        outside = top / "outside"
        outside.mkdir(0o500)
        (place / "a/b/c").mkdir(parents=True)
        for name, mode in {"a/file": 0o000, "a/b/file": 0o400}.items():
            (place / name).touch()
            (place / name).chmod(mode)
        (place / "link").symlink_to(outside)
        (place / "a/b/link").symlink_to(outside)
        for name, mode in {"a/b/c": 0o000, "a/b": 0o500, "a": 0o000, ".": 0o300}.items():
            (place / name).chmod(mode)
        remove_tree(place)
        assert not os.path.lexists(place) and outside.stat().st_mode & 0o777 == 0o500
        outside.rmdir()
    finally:
        os.seteuid(user)
        shutil.rmtree(top, ignore_errors=True)
