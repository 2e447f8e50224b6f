"""A home folder with four clients and twelve servers: two doubles, one that is broken, one with secrets, odd names."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result

from mcp_hub import masking
from mcp_hub.cli import main
from mcp_hub.onboarding.clients.wsl import WindowsSide, _Machine, side_of

DISTRIBUTION, WINDOWS_USER = "Ubuntu-24.04", "me"
CANARIES: Final = ("ghp_CANARYcanary1234567890", "CANARY.header.9876543210", "CANARYpassw0rd!")
ODD_NAME: Final = "we\"ird' & ; \n $(x) é"
DESKTOP: Final[Any] = {
    "mcpServers": {
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "github": {"command": "npx", "args": ["-y", "@x/github"], "env": {"GITHUB_TOKEN": CANARIES[0]}},
        ODD_NAME: {"command": "sh", "args": ["-c", "echo 'a \"b\"'; x & é"]},
        "mcp-hub": {"command": "/opt/mcp-hub", "args": ["serve"]},
    }
}
CURSOR: Final = """{
  // mine
  "mcpServers": {
    "clock": {"command": "uvx", "args": ["mcp-server-time"]}, // the same as time
    "github": {"command": "npx", "args": ["-y", "@x/github"], "env": {"GITHUB_TOKEN": "${env:GH2}"}},
    "team": {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer %s"}},
    "off": {"command": "x", "disabled": true},
  },
}
"""
CODEX: Final = """[mcp_servers.team]
url = "https://mcp.example.com/mcp/"
http_headers = { Authorization = "Bearer %s" }
[mcp_servers.db]
command = "uvx"
args = ["db-mcp", "--password", "%s"]
tool_timeout_sec = 60
[mcp_servers.broken]
command = "/nowhere/such-server"
"""
GEMINI: Final[Any] = {
    "theme": "x",
    "mcp": {"excluded": ["left-out"]},
    "mcpServers": {
        "everything": {"command": "npx", "args": ["-y", "everything"], "env": {"K": "$GEM_KEY"}, "trust": True},
        "remote": {"httpUrl": "https://r.example.com/mcp"},
        "jobs": {"command": "jobs-server", "timeout": 60000},
        "left-out": {"command": "x"},
    },
}
FILES: Final = {
    ".config/Claude/claude_desktop_config.json": json.dumps(DESKTOP),
    ".cursor/mcp.json": CURSOR % CANARIES[1],
    ".codex/config.toml": CODEX % CANARIES[1:],
    ".gemini/settings.json": json.dumps(GEMINI),
}


def make_home(home: Path) -> None:
    """Writes the files of the four clients."""
    for name, text in FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def run(*args: str, code: int = 0, answers: str | None = None) -> Result:
    """The command, run to its end in this process; its output holds no canary."""
    done = CliRunner().invoke(main, args, input=answers)
    assert done.exit_code == code and not any(canary in done.output for canary in CANARIES), done.output
    return done


class Moved:
    """A home whose four clients have moved into the hub, and the bytes of their files before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / ".config/mcp-hub/servers.yaml"
        self.before = self.contents()

    def contents(self) -> dict[str, bytes | None]:
        files = {name: self.folder / name for name in FILES}
        return {name: path.read_bytes() if path.exists() else None for name, path in files.items()}

    def run(self, *args: str, code: int = 0, stdin: str | None = None) -> Result:
        try:
            return run(*args, code=code, answers=stdin)
        finally:
            masking.forget()

    def edit(self, number: int, old: str, new: str) -> None:
        path = self.folder / [*FILES][number]
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))


class WindowsDrive:
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

    def machine(self) -> _Machine:
        return _Machine(self.folder, WINDOWS_USER, self.run)

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
            return run(*args, code=code)
        finally:
            masking.forget()

    def contents(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
