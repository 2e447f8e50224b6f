"""Clients on Windows, the hub in WSL: what `install`, `import` and the way out do on a made drive, and refuse."""

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from anyio import fail_after
from click.testing import CliRunner, Result

from mcp_hub import masking
from mcp_hub.cli import main
from mcp_hub.cli.clients import running
from mcp_hub.cli.clients.entries import Command
from mcp_hub.cli.clients.files.replace import FileRefused
from mcp_hub.cli.clients.find import hub_files
from mcp_hub.cli.clients.places import Where
from mcp_hub.cli.clients.table import CLIENTS, WINDOWS_CLIENTS
from mcp_hub.cli.clients.wsl import Machine, WindowsSide, side_of, through_wsl, wsl_settings
from mcp_hub.cli.imports import asked_inputs, moves
from rigs.clients.wsl import CURSOR, WslHome

DISTRIBUTION, USER = "Ubuntu-24.04", "me"
CANARY = "ghp_CANARYcanary1234567890"
WRITTEN = [client for client in WINDOWS_CLIENTS.values() if client.is_written]
STORE = "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json"


class Windows:
    """A Linux in WSL whose drives are in `win`, as `etc/wsl.conf` says, with the profile of Jörg on C:."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "win"
        self.profile = self.root / "c/Users/Jörg"
        self.config = folder / "home/servers.yaml"
        self.answers: dict[str, bytes] = {"cmd.exe": "C:\\Users\\Jörg\r\n".encode("cp850")}
        self.asked: list[tuple[str, Path]] = []
        self.env = {"WSL_DISTRO_NAME": DISTRIBUTION, "PATH": str(folder / "bin"), "HOME": str(folder / "home")}
        for name in ("etc", "bin", "home", "win/c/Windows/System32"):
            (folder / name).mkdir(parents=True)
        (self.profile / "AppData").mkdir(parents=True)
        (folder / "etc/wsl.conf").write_text('[automount]\nroot = "/win/" # drives\nroot = /other\n')
        (self.root / "c/Windows/System32/cmd.exe").touch()
        self.config.write_text("servers: {a: {command: x, enabled: false}}\n")

    def machine(self) -> Machine:
        return Machine(self.folder, USER, self.run)

    def run(self, argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> bytes:
        self.asked.append((Path(argv[0]).name, folder))
        return self.answers.get(Path(argv[0]).name, b"")

    def program(self, name: str) -> None:
        (self.folder / "bin" / name).write_text("#!/bin/sh\n")
        (self.folder / "bin" / name).chmod(0o755)

    def side(self, **more: str) -> WindowsSide | str | None:
        return side_of({**self.env, **more}, self.machine())

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.profile / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def cli(self, *args: str, code: int = 0) -> Result:
        try:
            done = CliRunner().invoke(main, list(args))
        finally:
            masking.forget()
        assert done.exit_code == code and CANARY not in done.output, done.output
        return done

    def contents(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Windows:
    made = Windows(tmp_path)
    monkeypatch.setattr(Machine, "here", made.machine)
    monkeypatch.setattr(running, "_names", lambda system: iter(()))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "USERPROFILE", "WSL_INTEROP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MCP_HUB_CONFIG", str(made.config))
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path / "home")
    return made


def start(file: Path) -> bytes:
    """A file as Windows writes it: with a byte order mark where the format allows it, and its line ends."""
    text = '{ // mine\n  "mcpServers": {"one": {"command": "x", "env": {"KEY": "%s"}}},\n}\n'
    if file.suffix == ".toml":
        text = '# mine\n[mcp_servers.one]\ncommand = "x"\nenv = { KEY = "%s" }\n'
    if file.suffix == ".yaml":
        text = "# mine\nextensions:\n  one: {type: stdio, cmd: x, envs: {KEY: %s}}\n"
    mark = "" if file.suffix == ".toml" else "\ufeff"
    return (mark + text % CANARY).replace("\n", "\r\n").encode()


def words_of(file: Path) -> list[str]:
    """The command line of the hub in a client's file."""
    text = file.read_bytes().decode("utf-8-sig")
    if file.suffix == ".toml":
        data: Any = tomllib.loads(text)
    elif file.suffix == ".yaml":
        data = yaml.safe_load(text)
    else:
        data = json.loads(text.replace("{ // mine", "{").replace("},\r\n}", "}\r\n}"))
    keys = ("servers", "mcp", "context_servers", "extensions", "mcp_servers", "mcpServers")
    held: Any = next(data[key] for key in keys if key in data and "mcp-hub" in str(data[key]))
    entry = next(one for one in held if one["name"] == "mcp-hub") if isinstance(held, list) else held["mcp-hub"]
    entry = entry.get("transport", entry) if isinstance(entry.get("transport"), dict) else entry
    command = entry.get("command", entry.get("cmd"))
    return command if isinstance(command, list) else [command, *entry["args"]]


def test_every_client_on_windows_gets_the_hub_of_wsl_and_its_bytes_back(windows: Windows) -> None:
    where = Where.here(os.environ)
    assert where.windows is not None and where.windows.home == windows.profile
    windows.write(STORE, "{}")
    windows.write("AppData/Roaming/Claude/claude_desktop_config.json", "{}")
    files = [file for client in WRITTEN for file in hub_files(client, where)]
    assert len(files) == len(WRITTEN) + 1 and all(file.path.is_relative_to(windows.profile) for file in files)
    for file in files:
        if not file.place.is_own:
            windows.write(str(file.path.relative_to(windows.profile)), start(file.path))
    (windows.profile / ".continue").mkdir(exist_ok=True)
    before = windows.contents()
    done = windows.cli("install", "--all", "--dry-run")
    assert windows.contents() == before and "Claude Desktop (Windows)" in done.output
    windows.cli("install", "--all")
    installed = windows.contents()
    prefix = ["wsl.exe", "-d", DISTRIBUTION, "-u", USER, "--cd", "~", "-e"]
    for file in files:
        words = words_of(file.path)
        assert words[:8] == prefix and os.path.isabs(words[8]), file.path
        assert words[-4:] == ["--config", str(windows.config), "--client", file.client.client_kind], file.path
        content = file.path.read_bytes()
        if not file.place.is_own:
            assert content.count(b"\n") == content.count(b"\r\n") and CANARY.encode() in content, file.path
    assert windows.cli("install", "--all").output.count("already there") == len(files)
    assert windows.contents() == installed
    windows.cli("uninstall", "--all")
    assert not any(b'"serve"' in file.path.read_bytes() for file in files if file.path.exists())
    windows.cli("install", "--undo")
    windows.cli("install", "--undo")
    assert windows.contents() == before


def test_leaving_restores_windows_files_and_a_lost_entry_is_put_back(windows: Windows) -> None:
    cursor = windows.write(".cursor/mcp.json", start(Path("mcp.json")))
    before = windows.contents()
    windows.cli("install", "cursor-windows")
    installed = cursor.read_bytes()
    cursor.write_bytes(before[str(cursor)])
    assert "Cursor (Windows) has lost the hub" in windows.cli("doctor", code=3).output
    assert "fixed" in windows.cli("doctor", "--fix").output and cursor.read_bytes() == installed
    assert "windows:" in windows.cli("paths").stdout and str(windows.profile) in windows.cli("status", code=3).output
    windows.cli("leave", "--yes")
    assert cursor.read_bytes() == before[str(cursor)]


@pytest.mark.parametrize(
    ("distribution", "user", "program", "reason"),
    [
        ("Ubuntu & calc", USER, "/h/mcp-hub", "name of the WSL distribution"),
        ("-e", USER, "/h/mcp-hub", "name of the WSL distribution"),
        ("", USER, "/h/mcp-hub", "WSL_DISTRO_NAME"),
        ("U\nx", USER, "/h/mcp-hub", "name of the WSL distribution"),
        ("Ubuntu", "a b", "/h/mcp-hub", "name of the Linux user"),
        ("Ubuntu", "DOMAIN\\a", "/h/mcp-hub", "name of the Linux user"),
        ("Ubuntu", USER, "/h/100%/mcp-hub", "100%"),
        ("Ubuntu", USER, '/h/a"b/mcp-hub', "Move or rename"),
    ],
)
def test_name_that_windows_may_read_otherwise_is_refused(
    distribution: str, user: str, program: str, reason: str
) -> None:
    side = WindowsSide(Path("/mnt"), Path("/mnt/c/Users/a"), distribution, user)
    with pytest.raises(FileRefused, match="Move or rename|Only letters|not known") as refused:
        through_wsl(Command(program, ("serve",)), side)
    assert refused.value.code == "wsl_unplain" and reason in str(refused.value)


def test_entry_names_the_folder_of_wsl_exe(windows: Windows) -> None:
    (windows.root / "c/Windows/System32/wsl.exe").touch()
    cursor = windows.write(".cursor/mcp.json", "{}")
    windows.cli("install", "cursor-windows")
    assert words_of(cursor)[:2] == [r"C:\Windows\System32\wsl.exe", "-d"]
    assert "already there" in windows.cli("install", "cursor-windows").output
    assert "cursor-windows" in windows.cli("install", "cursor", "--dry-run").output
    assert "it is this hub" not in windows.cli("import", "cursor-windows", "--dry-run").output


def test_windows_that_is_gone_is_named_on_the_way_out(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = windows.write(".cursor/mcp.json", "{}")
    windows.cli("install", "cursor-windows")
    installed = cursor.read_bytes()
    monkeypatch.setenv("WSL_DISTRO_NAME", "")
    for args in (("leave", "--yes"), ("leave", "--purge", "--yes")):
        assert "The hub stays in: Cursor (Windows)" in windows.cli(*args, code=1).output
    assert cursor.read_bytes() == installed and windows.config.exists()


def test_refused_name_leaves_windows_files_alone_and_linux_clients_get_the_hub(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WSL_DISTRO_NAME", "Ubuntu & calc")
    (windows.folder / "home/.cursor").mkdir()
    cursor = windows.write(".cursor/mcp.json", "{}")
    done = windows.cli("install", "--all", code=1)
    assert "wsl_unplain" in done.output and cursor.read_text() == "{}"
    assert (windows.folder / "home/.cursor/mcp.json").exists()


def test_profile_is_that_of_windows_else_the_only_person(windows: Windows) -> None:
    def home(**more: str) -> str:
        side = windows.side(**more)
        return side.home.name if isinstance(side, WindowsSide) else str(side)

    assert home() == "Jörg" and windows.asked == [("cmd.exe", windows.root / "c")]
    (windows.root / "c/Users/Ann/AppData").mkdir(parents=True)
    for name in ("Public", "Default", "All Users"):
        (windows.root / "c/Users" / name / "AppData").mkdir(parents=True)
    windows.program("wslvar")
    windows.answers["wslvar"] = b"C:\\Users\\Ann\r\n"
    assert home() == "Ann"
    assert home(USERPROFILE="C:\\Users\\Jörg") == "Jörg"
    assert home(USERPROFILE=str(windows.profile)) == "Jörg"
    windows.answers.clear()
    assert "export USERPROFILE" in home()
    for answer in (b"", b"\xff\xfe", b"C:\\Users\\..\\..\\etc", b"\\\\evil\\share", b"C:\\Nobody", b"A" * 99, b"C:\\"):
        windows.answers["wslvar"] = answer
        assert "export USERPROFILE" in home()
    windows.answers["wslvar"] = "C:\\Users\\Ann".encode("utf-16")
    assert home() == "Ann"
    (windows.root / "c/Users/Ann/AppData").rmdir()
    windows.answers.clear()
    assert home() == "Jörg"


def test_interop_that_is_off_starts_no_program_of_windows(windows: Windows) -> None:
    for text in (
        "[interop]\nenabled=false\n[automount]\nroot=/win\n",
        '[INTEROP]\nEnabled = "False"\n[automount]\nroot=/win',
    ):
        (windows.folder / "etc/wsl.conf").write_text(text)
        side = windows.side()
        assert isinstance(side, WindowsSide) and side.home == windows.profile and not windows.asked


def test_linux_that_is_not_wsl_and_odd_settings(windows: Windows) -> None:
    del windows.env["WSL_DISTRO_NAME"]
    assert windows.side() is None
    (windows.folder / "proc/sys/kernel").mkdir(parents=True)
    (windows.folder / "proc/sys/kernel/osrelease").write_text("5.15.90.1-microsoft-standard-WSL2\n")
    assert isinstance(windows.side(), WindowsSide)
    for text in (
        "root=/win",
        "[automount]\nroot=win",
        "[automount]\nroot=/../win",
        "[automount]\nroot=/w\\nin",
        "\0" * 99,
    ):
        (windows.folder / "etc/wsl.conf").write_text(text)
        assert windows.side() is None  # a container on the kernel of WSL
        assert "the drive C: of Windows is not at" in str(windows.side(WSL_DISTRO_NAME="x"))
    (windows.folder / "etc/wsl.conf").unlink()
    os.mkfifo(windows.folder / "etc/wsl.conf")
    assert "/mnt/c" in str(windows.side(WSL_DISTRO_NAME="x"))


def test_settings_of_wsl_are_read_as_wsl_does() -> None:
    text = '# x\n[Automount] # y\nROOT = "/a b/#" # z\nroot=/late\nenabled\n[boot]\ncommand = x "y z" \\"\r\n'
    assert wsl_settings(text) == {"automount.root": "/a b/#", "boot.command": 'x y z "'}


SERVERS = {
    "plain": {"command": "cmd", "args": ["/c", "npx", "-y", "@x/plain"], "env": {"GITHUB_TOKEN": CANARY}},
    "files": {"command": "npx.cmd", "args": ["@x/fs", r"C:\Users\Jörg\docs"], "cwd": r"C:\work"},
    "exe": {"command": r"C:\Tools\server.exe", "args": []},
    "var": {"command": "npx", "args": ["x"], "env": {"KEY": "${env:HOME}"}},
    "whole": {"command": "npx", "args": ["x"], "env": {"KEY": "%PATH%"}},
    "home": {"command": "npx", "args": ["x", "${userHome}/y"]},
    "remote": {"url": "https://r.example.com/mcp", "headers": {"X-Home": "${env:HOME}"}},
    "own": {"command": "wsl.exe", "args": ["-d", DISTRIBUTION, "-e", "/x/mcp-hub", "serve"]},
}


def taken(windows: Windows) -> dict[str, Any]:
    return dict(yaml.safe_load(windows.config.read_text())["servers"])


def test_import_takes_what_linux_can_start_and_says_the_rest(windows: Windows) -> None:
    windows.write(".cursor/mcp.json", json.dumps({"mcpServers": SERVERS}))
    shown = windows.cli("import", "cursor-windows", "--dry-run").output
    assert r"C:\Users\Jörg\docs becomes" in shown and set(taken(windows)) == {"a"}
    done = windows.cli("import", "cursor-windows", "--yes", "--no-count", "--no-sandbox").output
    found = taken(windows)
    assert set(found) == {"a", "plain", "files"}
    assert found["plain"]["command"] == "npx" and found["plain"]["args"] == ["-y", "@x/plain"]
    root = windows.root
    assert {key: value for key, value in found["files"].items() if key != "sandbox"} == {
        "command": "npx",
        "args": ["@x/fs", f"{root}/c/Users/Jörg/docs"],
        "cwd": f"{root}/c/work",
    }
    assert r"exe (Cursor (Windows)): C:\Tools\server.exe is a program of Windows" in done
    for name, variable in (
        ("var", "${env:HOME}"),
        ("whole", "%PATH%"),
        ("home", "${userHome}"),
        ("remote", "${env:HOME}"),
    ):
        assert f"{name} (Cursor (Windows)): {variable} is a variable of Windows" in done
    assert os.environ["HOME"] not in json.dumps({name: one for name, one in found.items() if name != "files"})


def test_paths_are_rewritten_only_if_somebody_agrees(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = windows.write(".cursor/mcp.json", json.dumps({"mcpServers": SERVERS}))
    before = cursor.read_bytes()
    done = windows.cli("install", "cursor-windows", "--import", "--no-sandbox").output
    assert (
        "not moved: files" in done and "mcp-hub import cursor-windows --yes" in done and "files" not in taken(windows)
    )
    left = json.loads(cursor.read_text())["mcpServers"]
    assert "files" in left and "exe" in left and "plain" not in left and left["mcp-hub"]["command"] == "wsl.exe"
    windows.cli("install", "--undo")
    assert cursor.read_bytes() == before
    for answer in (False, True):
        monkeypatch.setattr(asked_inputs, "is_anybody_there", lambda: True)
        monkeypatch.setattr(asked_inputs, "agrees", lambda question, default, answer=answer: answer)
        monkeypatch.setattr(moves, "is_anybody_there", lambda: True)
        windows.cli("install", "cursor-windows", "--import", "--no-sandbox")
        assert ("files" in taken(windows)) is answer
        windows.cli("install", "--undo")
        assert cursor.read_bytes() == before


def test_entry_on_windows_keeps_options_and_says_that_variables_do_not_cross(windows: Windows) -> None:
    cursor = windows.write(".cursor/mcp.json", "{}")
    windows.cli("install", "cursor-windows")
    data = json.loads(cursor.read_text())
    entry = data["mcpServers"]["mcp-hub"]
    entry["args"] += ["--log-level", "debug"]
    entry["env"] = {"KEY": CANARY}
    cursor.write_text(json.dumps(data))
    done = windows.cli("install", "cursor-windows")
    assert json.loads(cursor.read_text()) == data and "variables of its entry do not reach" in done.output
    entry["args"][1] = "Debian"
    cursor.write_text(json.dumps(data))
    done = windows.cli("install", "cursor-windows", code=1)
    assert "in the WSL distribution Debian" in done.output and json.loads(cursor.read_text()) == data


def test_named_file_of_a_project_gets_no_path_or_program_of_windows_unasked(windows: Windows) -> None:
    project = windows.root / "c/work/.mcp.json"
    project.parent.mkdir()
    servers = {"a": {"command": "cmd", "args": ["/c", "npx", "x", r"C:\Users\Jörg\.ssh"]}, "b": {"command": "x.exe"}}
    project.write_text(json.dumps({"mcpServers": {**servers, "c": {"command": r"\\evil\share\x"}}}))
    done = windows.cli("import", str(project), code=2).output
    assert r"C:\Users\Jörg\.ssh becomes" in done and "no_terminal" in done and set(taken(windows)) == {"a"}
    assert "b " in done and r"\\evil\share\x is a program of Windows" in done


def test_clients_on_windows_are_those_of_the_table_and_none_outside_of_wsl(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [client.windows_of for client in WINDOWS_CLIENTS.values()] == [*CLIENTS]
    export = windows.cli("export", "cursor-windows").output
    assert "not exported, it starts in Linux" in export or "disabled" in export
    monkeypatch.delenv("WSL_DISTRO_NAME")
    assert "this is not the Linux of WSL" in windows.cli("install", "cursor-windows", code=2).output
    assert "this is not the Linux of WSL" in windows.cli("export", "cursor-windows", code=2).output


@pytest.mark.processes
@pytest.mark.anyio
async def test_client_on_windows_drives_the_hub_through_wsl(tmp_path: Path) -> None:
    home = WslHome(tmp_path, has_servers=False)
    home.config.parent.mkdir(parents=True)
    home.config.write_text('{servers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}, hub: {attach: never}}')
    home.hub("install", "cursor-windows", "--config", str(home.config))
    with fail_after(30):
        async with home.opened(CURSOR) as client:
            assert any(tool.name.startswith("jobs_") for tool in (await client.list_tools()).tools)
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["servers.yaml"]
    home.hub("uninstall", "cursor-windows")
    home.check_bytes([CURSOR])
