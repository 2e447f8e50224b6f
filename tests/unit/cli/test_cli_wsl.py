"""Windows around the Linux in WSL: how it is found, the command it gets, its servers as Linux starts them."""

import os
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config.load.foreign_windows import Drives, linux_path, linux_server
from mcp_hub.config.load.interpolate import Unresolved
from mcp_hub.onboarding.clients import programs, wsl
from mcp_hub.onboarding.clients.entries import Command
from mcp_hub.onboarding.clients.wsl import WindowsSide, _Machine, through_wsl, wsl_settings
from mcp_hub.onboarding.files import FileRefused
from tests.unit.cli.homes import WINDOWS_USER as USER
from tests.unit.cli.homes import WindowsDrive


@pytest.fixture
def windows(tmp_path: Path) -> WindowsDrive:
    return WindowsDrive(tmp_path)


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
    with pytest.raises(FileRefused, match="Move or rename|Give it one|not known") as refused:
        through_wsl(Command(program, ("serve",)), side)
    assert refused.value.code == "wsl_unplain" and reason in str(refused.value)


def test_profile_is_that_of_windows_else_the_only_person(windows: WindowsDrive) -> None:
    def home(**more: str) -> str:
        side = windows.side(**more)
        return side.home.name if isinstance(side, WindowsSide) else str(side)

    assert home() == "Jörg" and windows.asked == [("cmd.exe", windows.root / "c")]
    windows.answers["cmd.exe"] = b"C:\\Windows\r\nUSERPROFILE=C:\\Users\\J\x94rg\r\n"
    assert home() == "Jörg"
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
    windows.answers.clear()
    (windows.root / "c/Users/Ann/AppData").rmdir()
    assert home() == "Jörg"
    (windows.root / "c/Users/Jörg/AppData").rmdir()
    assert "export USERPROFILE" in home()
    (windows.root / "c/Users" / USER.upper()).mkdir()
    assert home() == USER.upper()


@pytest.mark.processes
def test_program_of_windows_that_hangs_or_floods_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wsl, "_SECONDS", 0.2)
    run = _Machine.here().run
    assert run(("/bin/sh", "-c", "echo x; exec sleep 60"), tmp_path, {}) == b""
    assert run(("/bin/sh", "-c", "exec cat /dev/zero"), tmp_path, {}) == b""
    assert run(("/nowhere",), tmp_path, {}) == run(("/bin/sh", "-c", "echo"), Path("/nowhere"), {}) == b""
    monkeypatch.setattr(wsl, "_SECONDS", 30.0)
    assert run(("/bin/pwd",), tmp_path, {}) == os.fsencode(tmp_path) + b"\n"


def test_program_in_the_working_directory_is_not_asked(windows: WindowsDrive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(windows.folder / "home")
    for name in ("cmd.exe", "wslvar"):
        (windows.folder / "home" / name).write_text("#!/bin/sh\n")
        (windows.folder / "home" / name).chmod(0o755)
    assert isinstance(windows.side(PATH=".:"), WindowsSide)
    assert windows.asked == [("cmd.exe", windows.root / "c")]  # that of System32


def test_windows_is_looked_for_with_the_settings_and_programs_of_wsl(windows: WindowsDrive) -> None:
    for text in (
        "[interop]\nenabled=false\n[automount]\nroot=/win\n",
        '[INTEROP]\nEnabled = "False"\n[automount]\nroot=/win',
    ):
        (windows.folder / "etc/wsl.conf").write_text(text)
        side = windows.side()
        assert isinstance(side, WindowsSide) and side.home == windows.profile and not windows.asked
    text = '# x\n[Automount] # y\nROOT = "/a b/#" # z\nroot=/late\nenabled\n[boot]\ncommand = x "y z" \\"\r\n'
    assert wsl_settings(text) == {"automount.root": "/a b/#", "boot.command": 'x y z "'}


def test_linux_that_is_not_wsl_and_odd_settings(windows: WindowsDrive) -> None:
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


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (r"C:\Users\a b\x.json", "/mnt/c/Users/a b/x.json"),
        ("d:/data/", "/mnt/d/data"),
        (r"C:\..\..\home\me\.ssh", "/mnt/c/home/me/.ssh"),
        ("C:/x/../../../y", "/mnt/c/y"),
        (r"\\wsl$\Ubuntu\..\..\etc", "/etc"),
        (r"\\?\C:\x", "/mnt/c/x"),
        (r"\\wsl.localhost\ubuntu\home\me", "/home/me"),
        (r"\\WSL$\Ubuntu", "/"),
        *((text, None) for text in (r"\\wsl$\Debian\home", r"\\server\share\x", "C:x", "/home/me", "C:\\a\0b")),
    ],
)
def test_path_of_windows_has_its_name_in_linux(text: str, place: str | None) -> None:
    assert linux_path(text, "/mnt/", "Ubuntu") == place


DRIVES = Drives("/mnt", "Ubuntu", lambda name: name in ("python3", "mcp-thing"))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"command": "cmd", "args": ["/c", "npx", "-y", "x"]}, ["npx", "-y", "x"]),
        ({"command": r"C:\Windows\System32\cmd.exe", "args": ["/d", "/S", "/C", "npx -y x"]}, ["npx", "-y", "x"]),
        ({"command": "npx.cmd", "args": ["x"]}, ["npx", "x"]),
        ({"command": "UVX.exe", "args": ["x"]}, ["uvx", "x"]),
        ({"command": "cmd.exe", "args": ["/c", "uvx.exe", "x"]}, ["uvx", "x"]),
        ({"command": "python", "args": ["-m", "x"]}, ["python3", "-m", "x"]),
        ({"command": "py", "args": ["-3.12-64", "-m", "x"]}, ["python3.12", "-m", "x"]),
        ({"command": "py", "args": ["-m", "x"]}, ["python3", "-m", "x"]),
        ({"command": "mcp-thing"}, ["mcp-thing"]),
        (
            {"command": "npx", "args": ["fs", r"C:\Users\a\docs", r"--db=D:\x.db"]},
            ["npx", "fs", "/mnt/c/Users/a/docs", "--db=/mnt/d/x.db"],
        ),
        (
            {"command": "npx", "args": ["fs", "file:///C:/x", r"\\wsl$\Ubuntu\srv"]},
            ["npx", "fs", "file:///mnt/c/x", "/srv"],
        ),
        (
            {"command": "docker", "args": ["run", "-v", r"C:\x:/data", "i"]},
            ["docker", "run", "-v", "/mnt/c/x:/data", "i"],
        ),
        (
            {"command": "docker", "args": ["run", "--mount", r"type=bind,src=C:\a b,dst=/p"]},
            ["docker", "run", "--mount", "type=bind,src=/mnt/c/a b,dst=/p"],
        ),
        ({"command": "wsl.exe", "args": ["-d", "Ubuntu", "-e", "/home/me/x", "C:\\y"]}, ["/home/me/x", "C:\\y"]),
        ({"command": "wsl", "args": ["npx", "-y", "x"], "env": {"A": "b"}, "envFile": "y"}, ["npx", "-y", "x"]),
        (
            {"command": "npx", "args": ["%KEY%", "100%", "https://x/%AB%CD"], "env": {"KEY": "v"}},
            ["npx", "%KEY%", "100%", "https://x/%AB%CD"],
        ),
    ],
)  # fmt: skip
def test_server_of_windows_is_one_of_linux(entry: dict[str, Any], words: list[str]) -> None:
    done = linux_server(entry, DRIVES, lambda key, said: None, lambda key, said: None)
    assert [done["command"], *done.get("args", [])] == words


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"command": r"C:\x\server.exe"}, "windows_program"),
        ({"command": "C:/x/python.exe"}, "windows_program"),
        ({"command": "server.EXE"}, "windows_program"),
        ({"command": r".\server"}, "windows_program"),
        ({"command": "/tools/server"}, "windows_program"),
        ({"command": "powershell", "args": ["-File", "x.ps1"]}, "windows_program"),
        ({"command": "cmd", "args": ["/c", "npx", "x", "&", "calc"]}, "windows_program"),
        ({"command": "cmd", "args": ["/k", "npx"]}, "windows_program"),
        ({"command": "cmd", "args": ["/c"]}, "windows_program"),
        ({"command": "cmd"}, "windows_program"),
        ({"command": "cmd", "args": ["/c", "cmd", "/c", "start", "x"]}, "windows_program"),
        ({"command": "only-on-windows"}, "windows_program"),
        ({"command": "wsl.exe", "args": ["-d", "Debian", "-e", "x"]}, "windows_program"),
        ({"command": "wsl.exe", "args": ["bash", "-lc", "x; y"]}, "windows_program"),
        ({"command": "wsl.exe"}, "windows_program"),
        ({"command": "npx", "args": [r"\\server\share"]}, "windows_path"),
        ({"command": "npx", "args": [r"sqlite:///C:\x"]}, "windows_path"),
        ({"command": "npx", "args": [r"C:\a;C:\b"]}, "windows_path"),
        ({"command": "docker", "args": [r"type=bind,src=C:\a,dst=C:\b"]}, "windows_path"),
        ({"command": "npx", "sandbox": {"filesystem.denyRead": [r"\\server\x"]}}, "windows_path"),
        ({"command": "npx", "env": {"DIR": r"\\server\x\y"}}, "windows_path"),
        ({"command": "npx", "args": ["%APPDATA%/x"]}, "windows_variable"),
        ({"command": "npx", "env": {"DIR": "%UserProfile%"}}, "windows_variable"),
        ({"command": "npx", "pass_env": ["HOME"]}, "windows_variable"),
        ({"command": "npx", "args": ["%APPDATA%"], "env": {"AppData": r"C:\x"}}, "windows_variable"),
    ],
)
def test_server_that_only_windows_can_start_stays_there(entry: dict[str, Any], code: str) -> None:
    with pytest.raises(Unresolved) as refused:
        linux_server(entry, DRIVES, lambda key, said: None, lambda key, said: None)
    assert refused.value.code == code


def test_sandbox_of_a_client_on_windows_has_paths_of_linux() -> None:
    entry = {"command": "npx", "sandbox": {"filesystem.allowWrite": [r"C:\work", "x"], "network.allowedDomains": ["h"]}}
    renamed: list[str] = []
    done = linux_server(entry, DRIVES, lambda key, said: renamed.append(f"{key}: {said}"), lambda key, said: None)
    assert done["sandbox"] == {"filesystem.allowWrite": ["/mnt/c/work", "x"], "network.allowedDomains": ["h"]}
    assert renamed == [r"sandbox.filesystem.allowWrite: C:\work becomes /mnt/c/work"]


@pytest.mark.processes
def test_desktop_application_on_windows_is_seen_by_its_name(
    windows: WindowsDrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = windows.folder / "bin/tasklist.exe"
    monkeypatch.setenv("PATH", f"{windows.folder}/bin:/bin")
    seen = []
    for lines in ('"Claude.exe","1","Console"', '"claude.exe","1","Console"', '"J\\351.exe","1","Console"'):
        program.write_text(f"#!/bin/sh\nprintf '{lines}\\r\\n'\n")
        program.chmod(0o755)
        seen.append([look(("Claude",), "windows") for look in (programs.is_running, programs.is_unclear)])
    assert seen == [[True, False], [False, True], [False, False]]
    program.unlink()
    assert not programs.is_running(("Claude",), "windows") and programs.is_unclear(("Claude",), "windows")
    assert not programs.is_unclear(("Claude",), "linux")
