"""Servers of clients on Windows as Linux in WSL starts them: programs, paths and variables."""

from typing import Any

import pytest

from mcp_hub.config.load.foreign_windows import Drives, linux_path, linux_server
from mcp_hub.config.load.interpolate import Unresolved


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (r"C:\Users\a b\x.json", "/mnt/c/Users/a b/x.json"),
        ("d:/data/", "/mnt/d/data/"),
        (r"\\?\C:\x", "/mnt/c/x"),
        (r"\\wsl.localhost\ubuntu\home\me", "/home/me"),
        (r"\\WSL$\Ubuntu", "/"),
        (r"\\wsl$\Debian\home", None),
        (r"\\server\share\x", None),
        ("C:x", None),
        ("/home/me", None),
        ("C:\\a\0b", None),
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
        ({"command": "wsl.exe", "args": ["-d", "Ubuntu", "-e", "/home/me/x", "C:\\y"]}, ["/home/me/x", "C:\\y"]),
        ({"command": "wsl", "args": ["npx", "-y", "x"]}, ["npx", "-y", "x"]),
        (
            {"command": "npx", "args": ["%KEY%", "100%", "https://x/%AB%CD"], "env": {"KEY": "v"}},
            ["npx", "%KEY%", "100%", "https://x/%AB%CD"],
        ),
    ],
)  # fmt: skip
def test_server_of_windows_is_one_of_linux(entry: dict[str, Any], words: list[str]) -> None:
    done = linux_server(entry, DRIVES, lambda key, said: None)
    assert [done["command"], *done.get("args", [])] == words


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"command": r"C:\x\server.exe"}, "windows_program"),
        ({"command": "C:/x/python.exe"}, "windows_program"),
        ({"command": "server.EXE"}, "windows_program"),
        ({"command": r".\server"}, "windows_program"),
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
        ({"command": "npx", "env": {"DIR": r"\\server\x\y"}}, "windows_path"),
        ({"command": "npx", "args": ["%APPDATA%/x"]}, "windows_variable"),
        ({"command": "npx", "env": {"DIR": "%UserProfile%"}}, "windows_variable"),
        ({"command": "npx", "pass_env": ["HOME"]}, "windows_variable"),
    ],
)
def test_server_that_only_windows_can_start_stays_there(entry: dict[str, Any], code: str) -> None:
    with pytest.raises(Unresolved) as refused:
        linux_server(entry, DRIVES, lambda key, said: None)
    assert refused.value.code == code
