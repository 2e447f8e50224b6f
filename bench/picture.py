"""The picture of a terminal session in README.md, from a real session with servers.yaml.

`make picture` (`python -m bench.picture docs/session.svg`) starts a hub over HTTP, runs the commands of `SESSION` in a
terminal and writes the screen as SVG. The last command is captured while it runs. Needs port 8765 and a package index
for the servers that `uvx` and `npx` fetch. Linux and macOS only.
"""

import fcntl
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
URL = "http://127.0.0.1:8765"
WIDTH = 104
SESSION = (
    f"mcp-hub list --url {URL}",
    "mcp-hub search what time is it in Tokyo",
    f"mcp-hub call time_get_current_time --arg timezone=Asia/Tokyo --url {URL}",
    f"mcp-hub call jobs_run_job --arg seconds=20 --detach --url {URL}",
    f"mcp-hub resume {{stream}} --url {URL}",
)
LAST_SECONDS = 6.0
"""For which the last command runs before the picture is taken."""
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
        os.chdir(ROOT)
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


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/session.svg")
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as state, open(os.devnull, "w") as nowhere:
        env = {**os.environ, "MCP_HUB_STATE_DIR": state, "TERM": "xterm-256color"}
        env["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
        stream = ""
        with hub(env):
            for command in SESSION:
                typed = command.format(stream=stream)
                console.print(Text.assemble(("$ ", "green"), (typed, "bold")))
                for line in run(typed, env, LAST_SECONDS if command is SESSION[-1] else None):
                    console.print(Text.from_ansi(line))
                    stream = line.strip() if line.startswith("st_") else stream
                console.print()
        picture = console.export_svg(title="mcp-hub", unique_id="session")
        target.write_text(_FONTS.sub("", picture), "utf-8")


if __name__ == "__main__":
    main()
