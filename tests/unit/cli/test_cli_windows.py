"""Clients on Windows, the hub in WSL: what `install`, `import` and the way out do on a made drive, and refuse."""

import base64
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from anyio import fail_after

from mcp_hub.cli.commands.clients import import_dialog
from mcp_hub.cli.commands.clients import install as install_command
from mcp_hub.onboarding.clients import programs
from mcp_hub.onboarding.clients.model import Where
from mcp_hub.onboarding.clients.reading import hub_files
from mcp_hub.onboarding.clients.table import CLIENTS, WINDOWS_CLIENTS
from mcp_hub.onboarding.clients.wsl import _Machine
from mcp_hub.upstreams.process import commands
from rigs.clients.wsl import CURSOR, WslHome
from tests.unit.cli.homes import CANARIES, DISTRIBUTION, WindowsDrive
from tests.unit.cli.homes import WINDOWS_USER as USER

CANARY = CANARIES[0]
WRITTEN = [client for client in WINDOWS_CLIENTS.values() if client.is_written]
STORE = "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json"


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WindowsDrive:
    made = WindowsDrive(tmp_path)
    monkeypatch.setattr(_Machine, "here", made.machine)
    monkeypatch.setattr(programs, "_names", lambda system: iter(()))
    monkeypatch.setattr(commands, "SYSTEM_PLACES", ())  # nothing is started, whatever is installed there
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


def test_every_client_on_windows_gets_the_hub_of_wsl_and_its_bytes_back(windows: WindowsDrive) -> None:
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
    assert windows.cli("install", "--all").output.count("cannot see whether it runs") == 1
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


def test_leaving_restores_windows_files_and_a_lost_entry_is_put_back(windows: WindowsDrive) -> None:
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


def test_entry_names_the_folder_of_wsl_exe(windows: WindowsDrive) -> None:
    (windows.root / "c/Windows/System32/wsl.exe").touch()
    cursor = windows.write(".cursor/mcp.json", "{}")
    windows.cli("install", "cursor-windows")
    assert words_of(cursor)[:2] == [r"C:\Windows\System32\wsl.exe", "-d"]
    assert "already there" in windows.cli("install", "cursor-windows").output
    assert "cursor-windows" in windows.cli("install", "cursor", "--dry-run").output
    links = windows.cli("install", "--link").output.splitlines()
    assert "Cursor (Windows): cursor://" in links[0] and base64.b64encode(b'{"command":"C:').decode()[:16] in links[0]
    assert "it is this hub" not in windows.cli("import", "cursor-windows", "--dry-run").output


def test_windows_that_is_gone_is_named_on_the_way_out(windows: WindowsDrive, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = windows.write(".cursor/mcp.json", "{}")
    windows.cli("install", "cursor-windows")
    installed = cursor.read_bytes()
    monkeypatch.setenv("WSL_DISTRO_NAME", "")
    for args in (("leave", "--yes"), ("leave", "--purge", "--yes")):
        assert "The hub stays in: Cursor (Windows)" in windows.cli(*args, code=1).output
    assert cursor.read_bytes() == installed and windows.config.exists()


def test_refused_name_leaves_windows_files_alone_and_linux_clients_get_the_hub(
    windows: WindowsDrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WSL_DISTRO_NAME", "Ubuntu & calc")
    (windows.folder / "home/.cursor").mkdir()
    cursor = windows.write(".cursor/mcp.json", "{}")
    done = windows.cli("install", "--all", code=1)
    assert "wsl_unplain" in done.output and cursor.read_text() == "{}"
    assert (windows.folder / "home/.cursor/mcp.json").exists()


SERVERS = {
    "plain": {
        "command": "cmd",
        "args": ["/c", "npx", "-y", "@x/plain"],
        "env": {"GITHUB_TOKEN": CANARY, "APPDATA": r"C:\Users\Jörg\AppData\Roaming", "Path": r"C:\a;C:\b"},
    },
    "files": {"command": "npx.cmd", "args": ["@x/fs", r"C:\Users\Jörg\docs"], "cwd": r"C:\work"},
    "exe": {"command": r"C:\Tools\server.exe", "args": []},
    "var": {"command": "npx", "args": ["x"], "env": {"KEY": "${env:HOME}"}},
    "whole": {"command": "npx", "args": ["x"], "env": {"KEY": "%PATH%"}},
    "home": {"command": "npx", "args": ["x", "${userHome}/y"]},
    "remote": {"url": "https://r.example.com/mcp", "headers": {"X-Home": "${env:HOME}"}},
    "own": {"command": "wsl.exe", "args": ["-d", DISTRIBUTION, "-e", "/x/mcp-hub", "serve"]},
}


def taken(windows: WindowsDrive) -> dict[str, Any]:
    return dict(yaml.safe_load(windows.config.read_text())["servers"])


def test_import_takes_what_linux_can_start_and_says_the_rest(windows: WindowsDrive) -> None:
    windows.write(".cursor/mcp.json", json.dumps({"mcpServers": SERVERS}))
    shown = windows.cli("import", "cursor-windows", "--dry-run").output
    assert r"C:\Users\Jörg\docs becomes" in shown and set(taken(windows)) == {"a"}
    done = windows.cli("import", "cursor-windows", "--yes", "--no-count", "--no-sandbox").output
    found = taken(windows)
    assert set(found) == {"a", "plain", "files"}
    assert list(found["plain"]["env"]) == ["GITHUB_TOKEN"] and "plain.env.APPDATA: left out" in done
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


def test_paths_are_rewritten_only_if_somebody_agrees(windows: WindowsDrive, monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.setattr(import_dialog, "is_anybody_there", lambda: True)
        monkeypatch.setattr(import_dialog, "agrees", lambda question, default, answer=answer: answer)
        monkeypatch.setattr(install_command, "is_anybody_there", lambda: True)
        windows.cli("install", "cursor-windows", "--import", "--no-sandbox")
        assert ("files" in taken(windows)) is answer
        windows.cli("install", "--undo")
        assert cursor.read_bytes() == before


def test_entry_on_windows_keeps_options_and_says_that_variables_do_not_cross(windows: WindowsDrive) -> None:
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
    assert "starts the hub in the WSL distribution Debian" in windows.cli("doctor").output


def test_named_file_of_a_project_gets_no_path_or_program_of_windows_unasked(windows: WindowsDrive) -> None:
    project = windows.root / "c/work/.mcp.json"
    project.parent.mkdir()
    servers = {"a": {"command": "cmd", "args": ["/c", "npx", "x", r"C:\Users\Jörg\.ssh"]}, "b": {"command": "x.exe"}}
    project.write_text(json.dumps({"mcpServers": {**servers, "c": {"command": r"\\evil\share\x"}}}))
    done = windows.cli("import", str(project), code=2).output
    assert r"C:\Users\Jörg\.ssh becomes" in done and "no_terminal" in done and set(taken(windows)) == {"a"}
    assert "b " in done and r"\\evil\share\x is a program of Windows" in done


def test_clients_on_windows_are_those_of_the_table_and_none_outside_of_wsl(
    windows: WindowsDrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [name for name in CLIENTS if name not in ("vscode-flatpak", "vscodium-flatpak")]
    assert [client.windows_of for client in WINDOWS_CLIENTS.values()] == others
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
    home.config.write_text('{servers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}}')
    home.hub("install", "cursor-windows", "--config", str(home.config))
    with fail_after(240):
        async with home.opened(CURSOR) as client:
            assert any(tool.name.startswith("jobs_") for tool in (await client.list_tools()).tools)
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["servers.yaml"]


def test_windows_of_vs_code_in_wsl_start_the_hub_once(windows: WindowsDrive) -> None:
    remote = windows.folder / "home/.vscode-server/data/User/mcp.json"
    remote.parent.mkdir(parents=True)
    assert "VS Code Server: the hub is installed" in windows.cli("install", "--all").output
    windows.cli("uninstall", "--all")
    file = windows.write("AppData/Roaming/Code/User/mcp.json", "{}")
    done = windows.cli("install", "--all")
    assert "VS Code (Windows): the hub is installed" in done.output and "mcp-hub" in file.read_text()
    assert "VS Code Server" not in done.output and not remote.exists()
    windows.cli("install", "vscode-server")
    assert "mcp-hub" in remote.read_text()
