"""`make clients`: the first minute of a person with four clients and twelve servers, timed, and every step taken back.

Claude Desktop, Claude Code, Cursor and Codex have twelve servers in a home of their own: two are doubles, one is
broken, one has a secret. `mcp-hub import --all` and `mcp-hub install --all` make of them one hub with ten servers;
`install --undo` restores every byte. The servers are fetched by uvx and npx in a first round, which is not timed. Exit
code 1 if it takes longer than `MOST` seconds, or goes wrong.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mcp_hub.types import JsonObject
from rigs import report
from rigs.clients.install import ROOT, node

MOST: Final = 60.0
"""Seconds for both commands, once the servers are fetched."""
SECRET: Final = "sk-CANARY-of-the-first-minute-0123456789"
_SECONDS: Final = 300
_NPX: Final = ("npx", "-y")
_OFFICIAL: Final = "@modelcontextprotocol/server-"


def entry(*line: str, **env: str) -> JsonObject:
    """A server that is started by a command line."""
    return {"command": line[0], "args": [*line[1:]], **({"env": env} if env else {})}


SERVERS: Final[Mapping[str, JsonObject]] = {
    "time": entry("uvx", "mcp-server-time"),
    "files": entry(*_NPX, f"{_OFFICIAL}filesystem", "/tmp"),
    "memory": entry(*_NPX, f"{_OFFICIAL}memory"),
    "git": entry("uvx", "mcp-server-git"),
    "thinking": entry(*_NPX, f"{_OFFICIAL}sequential-thinking"),
    "broken": entry("/nowhere/such-server"),
    "vault": entry(*_NPX, f"{_OFFICIAL}everything", API_KEY=SECRET),
    "utc": entry("uvx", "mcp-server-time", "--local-timezone", "UTC"),
    "fetch": entry("uvx", "mcp-server-fetch"),
    "everything": entry(*_NPX, f"{_OFFICIAL}everything"),
}
"""Ten servers; `vault` has the secret."""


class FirstHome:
    """A home folder in which four clients have these ten servers, two of them twice."""

    def __init__(self, folder: Path, servers: Mapping[str, JsonObject], path: Sequence[str]) -> None:
        self.folder = folder
        one, two, three, *rest = servers.items()
        self.before = {
            folder / ".config/Claude/claude_desktop_config.json": _json(dict([one, two, three])),
            folder / ".claude.json": '{"numStartups": 3, ' + _json(dict(rest[:3]))[1:],
            folder / ".cursor/mcp.json": "// mine\n" + _json({"double": one[1], **dict(rest[3:5])}),
            folder / ".codex/config.toml": '# mine\nmodel = "o3"\n' + "".join(map(_toml, [three, *rest[5:]])),
        }
        for file, text in self.before.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self._env = {"HOME": str(folder), "PATH": os.pathsep.join(path), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}

    @property
    def config(self) -> Path:
        """The configuration that the hub makes."""
        return self.folder / ".config/mcp-hub/servers.yaml"

    def hub(self, *args: str, stdin: str = "") -> str:
        """What `mcp-hub` with these arguments prints on stdout. Raises `CalledProcessError`."""
        return self.run([sys.executable, "-m", "mcp_hub", *args], stdin)

    def run(self, line: Sequence[str], stdin: str = "") -> str:
        """The output of a command in this home. Raises `CalledProcessError`."""
        done = subprocess.run(
            line, input=stdin, text=True, env=self._env, cwd=self.folder, check=True, timeout=_SECONDS,
            capture_output=True,
        )  # fmt: skip
        assert SECRET not in done.stdout + done.stderr
        return done.stdout

    def connect(self) -> float:
        """Imports and installs everything; the seconds that it took."""
        begun = time.monotonic()
        self.hub("import", "--all", "--yes", "--no-count")
        self.hub("install", "--all")
        return time.monotonic() - begun

    def entries(self) -> list[list[str]]:
        """The command line of the hub in each client's file."""
        found = []
        for file in self.before:
            text = file.read_text().removeprefix("// mine\n")
            held = json.loads(text)["mcpServers"]["mcp-hub"] if file.suffix == ".json" else _table(text)
            found.append([held["command"], *held["args"]])
        return found

    def undo(self) -> list[Path]:
        """Takes the installation back; the files that are not as they were."""
        self.hub("install", "--undo")
        return [file for file, text in self.before.items() if file.read_bytes() != text.encode()]


def _json(servers: Mapping[str, JsonObject]) -> str:
    return json.dumps({"mcpServers": servers}, indent=2) + "\n"


def _toml(server: tuple[str, JsonObject]) -> str:
    name, own = server
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in own.items() if key != "env"]
    return "".join([f"\n[mcp_servers.{name}] # mine\n", *lines])


def _table(text: str) -> JsonObject:
    lines = text.partition("[mcp_servers.mcp-hub]\n")[2].split("\n[")[0].splitlines()
    return {key: json.loads(value) for key, _, value in (line.partition(" = ") for line in lines) if value}


def main() -> int:
    report.arguments("clients.first", __doc__).parse_args()
    path = [str(Path(sys.executable).parent), str(node().parent), "/usr/bin", "/bin"]
    faults: list[str] = []
    took = 0.0
    with TemporaryDirectory() as folder:
        home = FirstHome(Path(folder), SERVERS, path)
        report.say("fetching the servers …")
        home.connect()
        faults += [f"not restored: {file}" for file in home.undo()]
        home.config.unlink()
        report.say("import --all && install --all …")
        took = home.connect()
        listed = home.hub("check", "--json")
        if (count := len(json.loads(listed)["servers"])) != len(SERVERS):
            faults.append(f"{count} servers instead of {len(SERVERS)}")
        faults += [f"not the hub: {line}" for line in home.entries() if "serve" not in line]
        faults += [f"not restored: {file}" for file in home.undo()]
    if took > MOST:
        faults.append(f"took {took:.1f} s, more than {MOST:.0f} s")
    return report.reported([f"12 servers of 4 clients: one hub with 10 in {took:.1f} s, and back again"], faults)


if __name__ == "__main__":
    sys.exit(main())
