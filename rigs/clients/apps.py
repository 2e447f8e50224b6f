"""`make clients`: real applications take the entry that `mcp-hub install` writes, and connect to the hub by it.

Codex, Claude Code and Gemini CLI come from the package index (100 to 400 MB each) and run in a home of their own, once
with a hub of their own and once with the background hub. Nobody logs in: only their commands about MCP servers are
used. Exit code 1 if one of them does not take the entry.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from rigs import report
from rigs.clients.install import ROOT, NotInstalled, node, node_package, node_version

SECONDS = 120
SERVERS = 'hub: {attach: %s}\nservers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}\n'
ATTACH = ("never", "always")


class Fault(Exception):
    """An application does not do what it should; the message says what was seen."""


class Home:
    """A home folder with the configuration of a hub, and the programs that are run in it."""

    def __init__(self, folder: Path, programs: Path, attach: str) -> None:
        self.folder = folder
        (folder / "servers.yaml").write_text(SERVERS % attach)
        path = [str(programs), str(node().parent), "/usr/bin", "/bin"]
        self.env = {
            **{"HOME": str(folder), "PATH": os.pathsep.join(path), "TERM": "dumb", "PYTHONPATH": str(ROOT)},
            **{"MCP_HUB_STATE_DIR": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder), "NO_COLOR": "1"},
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the background hub, if there is one."""
        self.run(sys.executable, "-m", "mcp_hub", "stop")

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """The program, run to its end, with these variables beside those of the home."""
        return subprocess.run(
            argv, cwd=self.folder, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=SECONDS,
        )  # fmt: skip

    @contextmanager
    def started(self, *argv: str) -> Iterator["subprocess.Popen[str]"]:
        """The program while it runs; at the end its stdin is closed and it is ended, after `SECONDS` in any case."""
        with subprocess.Popen(
            argv, cwd=self.folder, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as program:  # fmt: skip
            late = threading.Timer(SECONDS, program.kill)
            late.start()
            try:
                yield program
            finally:
                late.cancel()
                program.terminate()
                program.communicate()

    def hub(self, *args: str) -> None:
        """`mcp-hub` with these arguments, which must succeed."""
        done = self.run(sys.executable, "-m", "mcp_hub", *args)
        if done.returncode:
            raise Fault(f"mcp-hub {' '.join(args)}: {done.stderr.strip()}")

    def write(self, name: str, text: str) -> Path:
        """A file in the home."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


def expect(is_so: bool, said: str, seen: object = "") -> None:
    """Raises `Fault` if it is not so."""
    if not is_so:
        raise Fault(f"{said}: {seen}" if seen else said)


def codex(home: Home) -> None:
    """It lists the entry, and refuses a file with an address and a command in one entry."""
    before = '# mine\nmodel = "o3"\n'
    path = home.write(".codex/config.toml", before)
    home.hub("install", "codex")
    (entry,) = json.loads(home.run("codex", "mcp", "list", "--json").stdout)
    expect(entry["name"] == "mcp-hub" and "serve" in entry["transport"]["args"], "not the entry", entry)
    good = path.read_text()
    path.write_text(good + 'url = "http://127.0.0.1:1/mcp"\n')
    expect(home.run("codex", "mcp", "list", "--json").returncode != 0, "it took a command and a url in one entry")
    path.write_text(good)
    home.hub("uninstall", "codex")
    expect(path.read_text() == before, "uninstall left something", path.read_text())


def claude(home: Home) -> None:
    """Its own command adds the entry, and it connects to the hub."""
    home.hub("install", "claude-code")
    connected(home.run("claude", "mcp", "list"))
    home.hub("uninstall", "claude-code")
    held = json.loads((home.folder / ".claude.json").read_text()).get("mcpServers")
    expect(not held, "uninstall left something", held)


def gemini(home: Home) -> None:
    """Its own command makes a new file; one that is there keeps every byte. It connects to the hub."""
    path = home.folder / ".gemini" / "settings.json"
    path.parent.mkdir()
    home.hub("install", "gemini")
    expect("mcp-hub" in json.loads(path.read_text())["mcpServers"], "no entry in a new file", path.read_text())
    before = '{\n  // mine\n  "security": {"folderTrust": {"enabled": false}},\n  "mcpServers": {}\n}\n'
    path.write_text(before)
    home.hub("install", "gemini")
    connected(home.run("gemini", "mcp", "list"))
    home.hub("uninstall", "gemini")
    expect(path.read_text() == before, "uninstall left something", path.read_text())


def connected(listed: subprocess.CompletedProcess[str]) -> None:
    """Raises `Fault` unless the list says that the hub is connected."""
    text = listed.stdout + listed.stderr
    line = next((line for line in text.splitlines() if "mcp-hub" in line), "")
    expect("Connected" in line and "Disconnected" not in line, "not connected", line or text[-300:])


@dataclass(frozen=True)
class App:
    """An application: its npm package, the script that completes the installation, and the check of it."""

    package: str
    check: Callable[[Home], None]
    script: str | None = None

    def installed(self) -> Path:
        """The folder of the package. Raises `NotInstalled`."""
        package = node_package(self.package)
        if self.script is not None:  # scripts of packages are not run by npm
            done = subprocess.run([str(node()), self.script], cwd=package, capture_output=True, timeout=SECONDS)
            if done.returncode:
                raise NotInstalled(f"{self.script} ended with {done.returncode}")
        return package


APPS: Mapping[str, App] = {
    "codex": App("@openai/codex@0", codex),
    "claude": App("@anthropic-ai/claude-code@2", claude, "install.cjs"),
    "gemini": App("@google/gemini-cli@0", gemini),
}


def main() -> int:
    parser = report.arguments("clients.apps", __doc__)
    parser.add_argument("--only", action="append", choices=list(APPS), help="only this one")
    lines, faults = [], []
    for name in parser.parse_args().only or APPS:
        app = APPS[name]
        report.say(f"{name} …")
        try:
            package = app.installed()
            programs = next(one for one in package.parents if one.name == "node_modules") / ".bin"
            for attach in ATTACH:
                with TemporaryDirectory() as folder, Home(Path(folder), programs, attach) as home:
                    app.check(home)
        except NotInstalled as problem:
            faults.append(f"not installed: {name}: {problem}")
        except (Fault, subprocess.TimeoutExpired) as problem:
            faults.append(f"{name}, attach {attach}: {problem}")
        else:
            lines.append(f"{node_version(package)}: takes the entry of mcp-hub install, attach {' and '.join(ATTACH)}")
    return report.reported(lines, faults)


if __name__ == "__main__":
    sys.exit(main())
