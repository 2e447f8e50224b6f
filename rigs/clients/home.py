"""A home in which five clients have eight servers of their own, and the ways in which these clients rewrite files."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from mcp_hub.edit.entries import read_data
from rigs.attach.place import GONE, expect, processes_of
from tests.upstreams.child import until
from tests.upstreams.launch import argv

SECRETS: Final = ("ghp_CANARY0of0the0story0123456789abcd", "sk-CANARY-of-the-story-9876543210", "CANARYpassw0rd!ofit")
TOKEN: Final = "xoxb-CANARY-of-the-shell-0123456789"
"""The value of a variable that the person has set."""
SECONDS: Final = 120.0
DESKTOP, CODE, CURSOR, VSCODE, CODEX = FILES = (
    ".config/Claude/claude_desktop_config.json",
    ".claude.json",
    ".cursor/mcp.json",
    ".config/Code/User/mcp.json",
    ".codex/config.toml",
)
CLIENTS: Final = dict(zip(FILES, ("claude-desktop", "claude-code", "cursor", "vscode", "codex"), strict=True))
_KEYS: Final = {VSCODE: "servers", CODEX: "mcp_servers"}
"""The key of servers where it is not `mcpServers`."""
MOVED: Final = {"notes", "broken", "vault", "team", "missing", "files", "db"}
"""Those that move; `off` is disabled."""


class StoryHome:
    """A home in which five clients have eight servers of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / ".config/mcp-hub/servers.yaml"
        (folder / "project").mkdir()
        (folder / "run").mkdir(mode=0o700)
        self.before = self._contents()
        for name, content in self.before.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.env = {
            "HOME": str(folder),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin")),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "MCP_HUB_ATTACH": "always",  # in a container, too
            "TEAM_TOKEN": TOKEN,
            "NO_COLOR": "1",
        }

    def server(self, name: str, **more: object) -> dict[str, Any]:
        """The entry of a reference server, as clients write it."""
        command, *args = argv(name=name, journal=self.folder / f"{name}.journal")
        return {"command": command, "args": args, **more}

    def _contents(self) -> dict[str, bytes]:
        """The files as these clients and people write them."""
        notes, team = self.server("notes"), self.server("team", env={"TEAM_TOKEN": "${env:TEAM_TOKEN}"})
        missing = self.server("missing", env={"KEY": "${env:STORY_VARIABLE_NOT_SET}"})
        vault = self.server("vault", env={"API_KEY": SECRETS[1], "MODE": "production"})
        projects = {str(self.folder / "project"): {"allowedTools": [], "history": [{"display": "naïve 日本"}]}}
        files, off = self.server("files", cwd=str(self.folder / "project")), self.server("off", enabled=False)
        database = self.server("db", env={"DB_PASSWORD": SECRETS[2]}, tool_timeout_sec=90)
        database["args"] += ["--instructions", "fill in ${table}"]
        claude = {"numStartups": 41, "mcpServers": {"vault": {"type": "stdio", **vault}}, "projects": projects}
        desktop = {"mcpServers": {"notes": notes, "broken": {"command": "/nowhere/such-server", "args": []}}}
        cursor = {"mcpServers": {"my notes": notes, "team": team, "missing": missing}}
        vscode = _VSCODE_TEXT % json.dumps({"type": "stdio", **files, "env": {"GITHUB_TOKEN": SECRETS[0]}})
        return {
            DESKTOP: json.dumps(desktop, indent=4).encode(),
            CODE: (json.dumps(claude, indent=2, ensure_ascii=False)).encode(),
            CURSOR: (json.dumps(cursor, indent="\t") + "\n").encode(),
            VSCODE: b"\xef\xbb\xbf" + vscode.replace("\n", "\r\n").encode(),
            CODEX: (_CODEX_TEXT + _toml("db", database) + "\n# switched off for now\n" + _toml("off", off)).encode(),
        }

    def hub(self, *args: str, code: int = 0) -> str:
        """What `mcp-hub` prints with these arguments, stderr behind stdout. Raises `Fault` for another exit code."""
        done = subprocess.run(
            [Path(sys.executable).with_name("mcp-hub"), *args], env=self.env, cwd=self.folder, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS,
        )  # fmt: skip
        text = done.stdout + done.stderr
        expect(done.returncode == code, f"mcp-hub {' '.join(args)} ended with {done.returncode}", text[-600:])
        shown = [secret for secret in (*SECRETS, TOKEN) if secret in text]
        expect(not shown, f"mcp-hub {' '.join(args)} shows secrets", len(shown))
        return text

    def content(self, name: str) -> bytes:
        """A file of a client as it is now."""
        return (self.folder / name).read_bytes()

    def servers(self, name: str) -> dict[str, Any]:
        """The servers in the file of a client."""
        data = parsed(name, self.content(name))
        return dict(data.get(_KEYS.get(name, "mcpServers"), {}))

    def files(self) -> list[Path]:
        """Every file that is here beside those of the clients and servers."""
        clients = [self.folder / name for name in FILES]
        every = (path for path in self.folder.rglob("*") if path.is_symlink() or not path.is_dir())
        return sorted(path for path in every if path not in clients and path.suffix != ".journal")

    async def gone(self) -> None:
        """Waits for the end of all processes. Raises `Fault` for one that is left."""
        with suppress(TimeoutError):
            await until(lambda: not processes_of(self.folder), GONE)
        left = processes_of(self.folder).values()
        expect(not left, f"still there after {GONE:g} s", "; ".join(map(str, left)))


_VSCODE_TEXT: Final = """{
  // servers of all my projects
  "servers": {
    /* do not touch */
    "files": %s, // mine
  },
  "inputs": [],
}
"""
_CODEX_TEXT: Final = """# my settings
model = "o3"   # the good one

[projects."/home/me/work"]
trust_level = "trusted"

"""


def _toml(name: str, server: Mapping[str, Any]) -> str:
    lines = [f"[mcp_servers.{name}]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in server.items() if key != "env"]
    env = [f"{key} = {json.dumps(value)}" for key, value in server.get("env", {}).items()]
    return "\n".join([*lines, *([f"[mcp_servers.{name}.env]", *env] if env else [])]) + "\n"


def parsed(name: str, content: bytes) -> dict[str, Any]:
    """The data of a client's file."""
    data: Any = tomllib.loads(content.decode()) if name == CODEX else read_data(content.decode(), Path(name).name)
    return dict(data)


# How clients rewrite their files


def _claude_code(content: bytes, home: StoryHome) -> bytes:
    """Counts a start, notes a project, takes a server that the person adds, and writes all of it anew in its order."""
    data = json.loads(content)
    projects = {str(home.folder / "new"): {"allowedTools": ["Bash(ls)"]}, **data.pop("projects")}
    servers = {**data.pop("mcpServers", {}), "added": {"type": "stdio", **home.server("added")}}
    data |= {"numStartups": data["numStartups"] + 1, "tipsHistory": {"new": 1}}
    return json.dumps({"projects": projects, **data, "mcpServers": servers}, indent=2, ensure_ascii=False).encode()


def _claude_desktop(content: bytes, home: StoryHome) -> bytes:
    """Notes a preference, and writes all of it anew."""
    return json.dumps({**json.loads(content), "preferences": {"sidebar": "open"}}, indent=2).encode()


def _vscode(content: bytes, home: StoryHome) -> bytes:
    """Adds a server and an input, and keeps comments, line ends and the byte order mark."""
    server = f'    "added": {json.dumps({"type": "stdio", **home.server("added")})},\r\n'
    inputs = b'"inputs": [{"type": "promptString", "id": "key", "description": "Key", "password": true}],'
    start = b'  "servers": {\r\n'
    return content.replace(b'"inputs": [],', inputs).replace(start, start + server.encode())


def _codex(content: bytes, home: StoryHome) -> bytes:
    """Adds tables at the end: a project, a server, and an approval of a tool of the hub, which goes with it."""
    added = f'\n[projects."{home.folder / "new"}"]\ntrust_level = "trusted"\n\n'
    added += _toml("added", home.server("added"))
    if b"[mcp_servers.mcp-hub]" in content:
        added += '\n[mcp_servers.mcp-hub.tools.notes_echo]\napproval_mode = "approve"\n'
    return content + added.encode()


REWRITES: Final[Mapping[str, Callable[[bytes, StoryHome], bytes]]] = {
    CODE: _claude_code,
    DESKTOP: _claude_desktop,
    VSCODE: _vscode,
    CODEX: _codex,
}
"""Cursor leaves its file alone."""
ANEW: Final = (CODE, DESKTOP)
"""Clients that write a whole file anew: it comes back with the same data, not always in the same order."""


def rewrite(home: StoryHome) -> None:
    """Lets the clients rewrite their files."""
    for name, write in REWRITES.items():
        (home.folder / name).write_bytes(write(home.content(name), home))
