"""The pictures of terminal sessions in README.md, from real sessions.

`make picture` (`python -m bench.picture [NAME]…`) runs the commands of each of `PICTURES` in a terminal and writes the
screen as `docs/NAME.svg`. Those of `first` run in a home of their own, in which two clients have four servers; in the
picture it is `/home/me`. The others ask a hub over HTTP with servers.yaml. Needs port 8765 and a package index for the
servers that `uvx` and `npx` fetch. Linux and macOS only.
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
URL = "http://127.0.0.1:8765"
WIDTH = 110
PICTURES = {
    "first": ("mcp-hub init --yes", "mcp-hub install --all --import"),
    "session": (
        "mcp-hub list",
        "mcp-hub search what time is it in Tokyo",
        "mcp-hub call time_get_current_time timezone=Asia/Tokyo",
    ),
    "stream": (
        "mcp-hub call jobs_run_job seconds=20 --detach",
        "mcp-hub resume {stream}",
    ),
}
"""Name of a picture → its commands, without a shell. `{stream}` is the id that the command before has printed."""
CLIENTS = {
    ".config/Claude/claude_desktop_config.json": {
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]},
    },
    ".cursor/mcp.json": {
        "clock": {"command": "uvx", "args": ["mcp-server-time"]},
        "everything": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-everything"],
            "env": {"API_KEY": "sk-0123456789abcdefghij"},
        },
    },
}
"""Files of clients in the home of the first picture, and their servers."""
LAST_SECONDS = 6.0
"""For which `resume` runs before the picture is taken."""
LONGEST = 120.0

_CODES = re.compile(r"\x1b\[(\d*)A|(\x1b\[2K)|(\r)|(\n)|\x1b\[\?25[hl]")
"""The codes that move the cursor or clear a line; colours stay in the text."""

_FONTS = re.compile(r"^\s*@font-face \{.*?\}\n", re.DOTALL | re.MULTILINE)
"""Fonts that a browser would fetch; every browser has a fixed-width one."""


class Screen:
    """The lines of a terminal that scrolls; knows what `rich` sends, not more."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = 0

    def feed(self, text: str) -> None:
        at = 0
        for code in _CODES.finditer(text):
            self.lines[self._row] += text[at : code.start()]
            at = code.end()
            if code[1] is not None:
                self._row = max(0, self._row - int(code[1] or 1))
            elif code[2]:
                self.lines[self._row] = ""
            elif code[4]:
                self._row += 1
                self.lines += [""] * (self._row + 1 - len(self.lines))
        self.lines[self._row] += text[at:]


def run(command: str, env: dict[str, str], seconds: float | None = None) -> list[str]:
    """The lines that a command leaves on the screen; after `seconds` those that it shows at that moment."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("mcp-hub", command.split(), env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    output, end = b"", time.monotonic() + (seconds or LONGEST)
    while (left := end - time.monotonic()) > 0 and select.select([terminal], [], [], left)[0]:
        try:
            output += os.read(terminal, 65536)
        except OSError:  # the command has ended
            break
    os.kill(pid, signal.SIGINT)
    os.waitpid(pid, 0)
    os.close(terminal)
    screen = Screen()
    screen.feed(output.decode("utf-8", "replace"))
    return [line.rstrip() for line in screen.lines if Text.from_ansi(line).plain.strip()]


@contextmanager
def hub(env: dict[str, str]) -> Iterator[None]:
    """A hub over HTTP whose servers are all up."""
    command = (sys.executable, "-m", "mcp_hub", "serve", "--http")
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        end = time.monotonic() + LONGEST
        while "starting" in _servers() and time.monotonic() < end:
            time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait()


def _servers() -> str:
    try:
        with urlopen(f"{URL}/v1/servers", timeout=10) as answer:
            return str(answer.read(), "utf-8")
    except (URLError, OSError):
        return "starting"


def first_home(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a person with clients and servers, and no hub; what uvx and npx have fetched is shared."""
    for name, servers in CLIENTS.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(json.dumps({"mcpServers": servers}, indent=2))
    old = Path.home()
    shared = {"UV_CACHE_DIR": str(old / ".cache/uv"), "npm_config_cache": str(old / ".npm")}
    kept = {name: value for name, value in env.items() if not name.startswith(("XDG_", "MCP_HUB_"))}
    return {**kept, **shared, "HOME": str(folder)}


def record(name: str, env: dict[str, str], home: Path) -> None:
    """Runs the commands of a picture in the current folder, and writes it."""
    shown = {str(home): "/home/me", os.path.dirname(sys.executable): "/home/me/.local/bin"}
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
        stream = ""
        for command in PICTURES[name]:
            typed = command.format(stream=stream)
            console.print(Text.assemble(("$ ", "green"), (typed, "bold")))
            for line in run(typed, env, LAST_SECONDS if " resume " in command else None):
                stream = line.strip() if line.startswith("st_") else stream
                for path, instead in shown.items():
                    line = line.replace(path, instead)
                console.print(Text.from_ansi(line))
            console.print()
    picture = console.export_svg(title="mcp-hub", unique_id=name)
    (ROOT / "docs" / f"{name}.svg").write_text(_FONTS.sub("", picture), "utf-8")


def main() -> None:
    names = sys.argv[1:] or PICTURES
    with tempfile.TemporaryDirectory() as folder:
        state, home = Path(folder) / "state", Path(folder) / "home"
        env = {**os.environ, "MCP_HUB_STATE_DIR": str(state), "TERM": "xterm-256color"}
        env["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
        home.mkdir()
        if "first" in names:
            os.chdir(home)
            record("first", first_home(home, env), home)
        os.chdir(ROOT)
        if others := [name for name in names if name != "first"]:
            with hub(env):
                for name in others:
                    record(name, env, home)


if __name__ == "__main__":
    main()
