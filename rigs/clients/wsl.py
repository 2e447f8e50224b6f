"""Clients on Windows and the hub in WSL, with a made drive: `make clients` runs it as a chapter of the story.

`cmd.exe` and `wsl.exe` are stand-ins. The one for `wsl.exe` joins and splits its command line as Windows does, runs the
rest without a shell in another environment and folder, and ends the lines for the program in CRLF. It is not Windows:
what no stand-in can show is named in docs/windows.md.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from mcp import Client, StdioServerParameters

from mcp_hub.edit.entries import read_data
from rigs.attach.place import GONE, expect, processes_of
from tests.upstreams.child import until
from tests.upstreams.launch import argv

DISTRIBUTION: Final = "Ubuntu-24.04"
SECRET: Final = "ghp_CANARY0of0windows0123456789abcdef"
_SECONDS: Final = 120.0
_HOME: Final = "AppData/Roaming"
STORE, DESKTOP, CURSOR, VSCODE, CODEX = FILES = (
    "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json",
    f"{_HOME}/Claude/claude_desktop_config.json",
    ".cursor/mcp.json",
    f"{_HOME}/Code/User/mcp.json",
    ".codex/config.toml",
)
_CODE: Final = '{\n  // mine\n  "servers": {\n    "vault": VAULT, // with a comma\n  },\n}\n'
_LAUNCH: Final = """import sys
from pathlib import Path
from mcp_hub.cli import main
from mcp_hub.onboarding.clients import wsl
root, usual = Path(sys.argv.pop(1)), wsl._Machine.here()
wsl._Machine.here = classmethod(lambda cls: cls(root, usual.user, usual.run))
sys.argv[0] = "mcp-hub"
main()
"""
_CMD: Final = """#!/bin/sh
# in a folder of Linux it would say so and go elsewhere
[ "$*" = "/c set USERPROFILE" ] && [ "$PWD" = "%s" ] && printf 'USERPROFILE=C:\\\\Users\\\\J\\224rg\\r\\n'
"""
_WSL: Final = '''#!%(python)s
"""A stand-in for wsl.exe."""
import os, re, subprocess, sys, threading
line = subprocess.list2cmdline(sys.argv[1:])
options = {}
while True:
    word, _, line = line.lstrip(" ").partition(" ")
    if word == "-e":
        break
    if word not in ("-d", "-u", "--cd"):
        sys.exit("Invalid command line argument: " + word)
    options[word], _, line = line.lstrip(" ").partition(" ")
if options != {"-d": %(distribution)r, "-u": %(user)r, "--cd": "~"}:
    sys.exit("There is no distribution with the supplied name. " + repr(options))
words, at = [], 0
while (line := line.lstrip(" ")):
    word, quoted, at = "", False, 0
    while at < len(line) and (quoted or line[at] != " "):
        slashes = len(re.match(r"\\\\*", line[at:])[0])
        if slashes and line[at + slashes : at + slashes + 1] == '"':
            word, at = word + "\\\\" * (slashes // 2), at + slashes
            if slashes %% 2:
                word, at = word + '"', at + 1
            continue
        if slashes:
            word, at = word + "\\\\" * slashes, at + slashes
            continue
        if line[at] == '"':
            quoted, at = not quoted, at + 1
            continue
        word, at = word + line[at], at + 1
    words, line = [*words, word], line[at:]
env = {"HOME": %(home)r, "USER": %(user)r, "PATH": %(path)r, "WSL_DISTRO_NAME": %(distribution)r, "WSLENV": ""}
env["MCP_HUB_ATTACH"] = %(attach)r
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
child = subprocess.Popen(words, **pipes, env=env, cwd=%(home)r)
def forward():
    while data := os.read(0, 65536):
        child.stdin.write(data.replace(b"\\n", b"\\r\\n"))
        child.stdin.flush()
    child.stdin.close()
threading.Thread(target=forward, daemon=True).start()
while data := os.read(child.stdout.fileno(), 65536):
    os.write(1, data)
sys.exit(child.wait())
'''


class WslHome:
    """A home of Linux in WSL, and the profile of the Windows user with five files of clients, which have servers."""

    def __init__(self, folder: Path, *, has_servers: bool = True, attach: str = "never") -> None:
        self.folder, self.home, self.bin = folder, folder / "home", folder / "bin"
        self.profile = folder / "drives/c/Users/Jörg"
        self.config = self.home / ".config/mcp-hub/servers.yaml"
        for path in (self.home, self.bin, self.profile / _HOME, folder / "etc", folder / "project"):
            path.mkdir(parents=True)
        (folder / "etc/wsl.conf").write_text("[automount]\nroot = /drives/\n")
        (folder / "project/servers.yaml").write_text("servers: {evil: {command: touch, args: [evil], start: eager}}\n")
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        self.path = os.pathsep.join((str(self.home / "bin"), "/usr/bin", "/bin"))
        names = {"python": sys.executable, "distribution": DISTRIBUTION, "user": user, "home": str(self.home)}
        npx = f"#!/bin/sh\nexec {shlex.join(argv(name='tokens', journal=self.home / 'tokens.journal'))}\n"
        programs = {
            self.bin / "cmd.exe": _CMD % self.profile.parents[1],
            self.bin / "wsl.exe": _WSL % {**names, "path": self.path, "attach": attach},
            self.home / "bin/npx": npx,
        }
        for path, text in programs.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        self.before = self._contents() if has_servers else {CURSOR: b"{}\r\n"}
        for name, content in self.before.items():
            (self.profile / name).parent.mkdir(parents=True, exist_ok=True)
            (self.profile / name).write_bytes(content)

    def server(self, name: str, **more: object) -> dict[str, Any]:
        """The entry of a reference server, as `wsl.exe` starts it for a client on Windows."""
        words = argv(name=name, journal=self.home / f"{name}.journal")
        return {"command": "wsl.exe", "args": ["-d", DISTRIBUTION, "-e", *words], **more}

    def _contents(self) -> dict[str, bytes]:
        notes, vault = self.server("notes"), self.server("vault")
        npx = {"command": "cmd", "args": ["/c", "npx", "-y", "@example/tokens"], "env": {"GITHUB_TOKEN": SECRET}}
        files = {"command": "npx.cmd", "args": ["@example/files", "C:\\Users\\Jörg\\docs"]}
        tool, variable = (
            {"command": "C:\\Tools\\tool.exe"},
            {"command": "uvx", "args": ["x"], "env": {"K": "${env:PATH}"}},
        )
        code = _CODE.replace("VAULT", json.dumps(vault))
        codex = (
            f"# mine\nmodel = 'o3'\n\n[mcp_servers.notes]\ncommand = 'wsl.exe'\nargs = {json.dumps(notes['args'])}\n"
        )
        return {
            STORE: json.dumps({"mcpServers": {"tokens": npx}}, indent=2).replace("\n", "\r\n").encode(),
            DESKTOP: b"\xef\xbb\xbf" + json.dumps({"mcpServers": {"tool": tool}, "théme": 1}).encode(),
            CURSOR: json.dumps({"mcpServers": {"files": files, "variable": variable}}, indent="\t").encode(),
            VSCODE: b"\xef\xbb\xbf" + code.replace("\n", "\r\n").encode(),
            CODEX: codex.replace("\n", "\r\n").encode(),
        }

    @property
    def env(self) -> dict[str, str]:
        """The environment of a shell in WSL."""
        path = os.pathsep.join((str(self.bin), self.path))
        return {"HOME": str(self.home), "PATH": path, "WSL_DISTRO_NAME": DISTRIBUTION, "NO_COLOR": "1",
                "K": SECRET, "PYTHONPATH": os.getcwd()}  # fmt: skip

    def hub(self, *args: str, code: int = 0) -> str:
        """The output of `mcp-hub` with these arguments. Raises `Fault` for another exit code, or a secret in it."""
        done = subprocess.run(
            [sys.executable, "-c", _LAUNCH, str(self.folder), *args], env=self.env, cwd=self.home, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS,
        )  # fmt: skip
        text = done.stdout + done.stderr
        expect(done.returncode == code, f"mcp-hub {' '.join(args)} ended with {done.returncode}", text[-900:])
        expect(SECRET not in text, f"mcp-hub {' '.join(args)} shows a secret")
        return text

    def servers(self, name: str) -> dict[str, Any]:
        """The servers in the file of a client."""
        data: Any = read_data((self.profile / name).read_bytes().decode("utf-8-sig"), Path(name).name)
        return dict(data.get({VSCODE: "servers", CODEX: "mcp_servers"}.get(name, "mcpServers"), {}))

    @asynccontextmanager
    async def opened(self, name: str) -> AsyncIterator[Client]:
        """The Python SDK with the hub's entry of this client, in a project that has a configuration of its own."""
        entry = self.servers(name)["mcp-hub"]
        env = {"PATH": os.pathsep.join((str(self.bin), "/usr/bin", "/bin")), "FROM_WINDOWS": SECRET}
        server = StdioServerParameters(
            command=entry["command"], args=entry["args"], env=env, cwd=self.folder / "project"
        )
        async with Client(server, mode="auto") as client:
            yield client

    def check_bytes(self, names: Sequence[str] = FILES) -> None:
        """Raises `Fault` unless these files have their first bytes."""
        changed = [name for name in names if (self.profile / name).read_bytes() != self.before[name]]
        expect(not changed, "files on Windows are not as they were", changed)


def windows_in(home: WslHome) -> None:
    """The hub goes into five files on Windows; what Linux can start moves, and the command says what does not."""
    said = home.hub("install", "--all", "--import", "--dry-run")
    home.check_bytes()
    expect("Claude Desktop (Windows)" in said, "the clients are not named", said[-600:])
    said = home.hub("install", "--all", "--import", "--no-sandbox")
    for part in ("tool.exe is a program of Windows", "PATH} is a variable of Windows", "nobody could be asked"):
        expect(part in said, f'it does not say "{part}"', said[-1500:])
    start = ["-d", DISTRIBUTION, "-u"]
    for name in FILES:
        entry, left = home.servers(name).pop("mcp-hub"), home.servers(name).keys() - {"mcp-hub"}
        expect(entry["command"] == "wsl.exe" and entry["args"][:3] == start, f"another entry in {name}", entry)
        expect(entry["args"][4:7] == ["--cd", "~", "-e"], f"another entry in {name}", entry)
        expect("WSLENV" not in json.dumps(entry), f"variables cross in {name}", entry)
        expect(left == {DESKTOP: {"tool"}, CURSOR: {"files", "variable"}}.get(name, set()), f"others in {name}", left)
        content = (home.profile / name).read_bytes()
        expect(content.startswith(b"\xef\xbb\xbf") == home.before[name].startswith(b"\xef\xbb\xbf"), f"mark of {name}")
        is_crlf = b"\r\n" in home.before[name]
        expect(not is_crlf or content.count(b"\n") == content.count(b"\r\n"), f"line ends of {name}")
    config: Mapping[str, Any] = dict(read_data(home.config.read_text(), "servers.yaml"))  # type: ignore[call-overload]
    expect({*config["servers"]} == {"tokens", "vault", "notes"}, "other servers moved", [*config["servers"]])
    expect(config["servers"]["tokens"]["command"] == "npx", "npx is not one of Linux", config["servers"]["tokens"])


async def windows_use(home: WslHome) -> None:
    """Three clients share a hub and each server through `wsl.exe`; the project's configuration is not read."""
    for name in (STORE, VSCODE, CODEX):
        async with home.opened(name) as client:
            for server in ("notes", "vault", "tokens"):
                result = await client.call_tool(f"{server}_echo", {"text": f"naïve {server}"})
                expect(f"naïve {server}" in str(result), f"{server} does not answer through {name}", result)
    lines = [one for one in processes_of(home.home).values() if "--name vault " in one.line]
    expect(len(lines) == 1, "the clients do not share a server", [*map(str, lines)])
    expect([path.name for path in (home.folder / "project").iterdir()] == ["servers.yaml"], "a project's server ran")


async def windows_out(home: WslHome) -> None:
    """Every way out gives the files their bytes, and the last one ends the hub."""
    home.hub("doctor", "--json", "notes", "vault")
    home.hub("install", "--undo")
    home.check_bytes()
    home.hub("install", "--all", "--import", "--no-sandbox")
    home.hub("uninstall", "--all", "--restore")
    home.check_bytes()
    home.hub("install", "--undo")
    home.hub("leave", "--yes")
    home.check_bytes()
    await until(lambda: not processes_of(home.home), GONE)
    shown = home.hub("paths", "--json")
    expect(str(home.profile) in json.loads(shown)["windows"]["path"], "paths does not show the profile", shown)
