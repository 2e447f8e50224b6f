"""The moving picture in README.md: Claude Code is quit while a tool runs, and has its result when it comes back.

`make picture` (`python -m bench.background_picture`) plays it with the real Claude Code in a terminal, at a model on
this machine (`rigs.clients.background`), and writes `docs/background.svg` from what the terminal showed. Needs the
package indexes. Linux only.
"""

import base64
import json
import subprocess
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from rigs.clients.claude import ClaudeHome, Project
from rigs.clients.install import ROOT, python_with
from rigs.clients.terminal import COLUMNS, ROWS, Terminal, until

FILE: Final = ROOT / "docs" / "background.svg"
MOST: Final = 60_000
"""Bytes of the picture."""
_DRIVER: Final = ROOT / "rigs" / "clients" / "drivers" / "screens.py"
_WIDTH, _HEIGHT, _LEFT, _TOP = 8.4, 19, 16, 44
_COLOURS: Final = {"default": "#c5c8c6", "white": "#c5c8c6", "black": "#292929", "blue": "#608ab1", "red": "#cc555a"}
_COLOURS_MORE: Final = {"green": "#98a84b", "brown": "#d0b344", "magenta": "#98729f", "cyan": "#68a0b3"}

Line: TypeAlias = Sequence[tuple[str, str, bool]]


class Scene(NamedTuple):
    """What is shown for so many seconds: how much of the output of a terminal, of which command, and a caption."""

    seconds: float
    terminal: Terminal
    until: int
    typed: str
    says: str


def play(home: ClaudeHome, work: Project) -> list[Scene]:
    """Plays it in the terminal."""
    scenes: list[Scene] = []

    def show(seconds: float, claude: Terminal, says: str) -> None:
        claude.settled()
        is_first = not scenes or scenes[0].terminal is claude
        typed = "$ claude" if is_first else "$ claude --continue"
        scenes.append(Scene(seconds, claude, len(claude.output), typed, says))

    with work.claude() as claude:
        claude.type("please build web")
        show(1.5, claude, "A tool that takes minutes, of a server that knows no tasks.")
        claude.type("\r")
        until(lambda: len(work.said("hub", "notifications/progress")) > 2, "progress")
        show(2, claude, "Claude Code waits for the call …")
        claude.has("working")
        until(lambda: "server-side task" in "".join(home.model.results), "an answer to the model")
        show(3, claude, "… and after 5 s it is a background task: mcp-hub makes it one.")
        claude.ask("are you there?")
        until(lambda: home.model.was_asked("are you there?"), "a question to the model")
        show(2.5, claude, "You and the model work on while the build runs.")
        claude.type("\x04\x04")
        claude.until("to confirm")
        show(3, claude, "Quit: only Claude Code's asking stops. In mcp-hub the build continues.")
        claude.type("\r")
        claude.ended()
    with work.claude("--continue") as claude:
        claude.polled(2)
        show(3, claude, "claude --continue asks the hub for the same task …")
        work.release("web")
        claude.has("completed")
        until(lambda: home.model.heard, "news for the model")
        show(5, claude, "… and the model has the result.")
        claude.quit()
    return scenes


def screens(scenes: Sequence[Scene]) -> list[list[Line]]:
    """What each scene shows; those of one terminal come one after the other."""
    found: list[list[Line]] = []
    for terminal in dict.fromkeys(scene.terminal for scene in scenes):
        ends = [scene.until for scene in scenes if scene.terminal is terminal]
        pieces = [terminal.output[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        portions = [base64.b64encode(b"".join(chunk for _, chunk in piece)).decode() for piece in pieces]
        asked = json.dumps({"rows": ROWS, "columns": COLUMNS, "portions": portions})
        python = python_with("pyte==0.8.2", "pyte")
        done = subprocess.run([str(python), str(_DRIVER)], input=asked, capture_output=True, text=True, check=True)
        found += json.loads(done.stdout)
    return found


def drawn(scenes: Sequence[Scene], shown: Sequence[Sequence[Line]]) -> str:
    """The SVG: one group for each scene, of which one is visible at a time."""
    rows = max(at + 1 for screen in shown for at, line in enumerate(screen) if _text(line).strip())
    width, height = round(COLUMNS * _WIDTH + 2 * _LEFT), _TOP + rows * _HEIGHT + 50
    total = sum(scene.seconds for scene in scenes)
    style, groups, begin = [_STYLE], [], 0.0
    for number, (scene, screen) in enumerate(zip(scenes, shown, strict=True)):
        starts, ends = (round(100 * moment / total, 2) for moment in (begin, begin + scene.seconds))
        begin += scene.seconds
        style.append(
            f"@keyframes s{number}{{0%{{opacity:0}}{starts}%{{opacity:1}}{ends}%{{opacity:0}}100%{{opacity:0}}}}"
            f".s{number}{{animation:s{number} {total:g}s step-end infinite}}"
        )
        lines = "".join(_line(at, line) for at, line in enumerate(screen))
        says = f'<text class="says" x="{_LEFT}" y="{height - 17}">{escape(scene.says)}</text>'
        says += f'<text class="b" x="90" y="25">{scene.typed}</text>'
        groups.append(f'<g class="s{number}">{lines}{says}</g>')
    bar = f'<rect y="{height - 44}" width="{width}" height="44" fill="#1f3247"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><style>{"".join(style)}</style>'
        f'<rect width="{width}" height="{height}" rx="8" fill="#292929"/>{_LIGHTS}{bar}{"".join(groups)}</svg>\n'
    )


_GLYPHS: Final = str.maketrans("⏸⎿", "‖└")
"""Characters that few fonts have."""
_STYLE: Final = (
    "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:#c5c8c6}"
    ".b{font-weight:bold}.says{font:16px system-ui,'DejaVu Sans',sans-serif;fill:#fff}"
    "g{opacity:0}@media (prefers-reduced-motion:reduce){g{animation:none!important}g:last-of-type{opacity:1}}"
)
_LIGHTS: Final = "".join(
    f'<circle cx="{x}" cy="20" r="6" fill="{fill}"/>' for x, fill in ((22, "#ff5f57"), (42, "#febc2e"), (62, "#28c840"))
)


def _line(at: int, line: Line) -> str:
    """A line of the terminal; runs stand at their columns, whatever font is used."""
    column, parts = 0, []
    for text, colour, is_bold in line:
        if text.strip():
            lead = len(text) - len(text.lstrip())
            look = f' fill="{_colour(colour)}"' if _colour(colour) != _COLOURS["default"] else ""
            x = round(_LEFT + (column + lead) * _WIDTH, 1)
            look += ' class="b"' if is_bold else ""
            parts.append(f'<tspan x="{x:g}"{look}>{escape(text.strip().translate(_GLYPHS))}</tspan>')
        column += len(text)
    return f'<text y="{_TOP + at * _HEIGHT + 14}">{"".join(parts)}</text>' if parts else ""


def _text(line: Line) -> str:
    return "".join(text for text, _, _ in line)


def _colour(name: str) -> str:
    return {**_COLOURS, **_COLOURS_MORE}.get(name.removeprefix("bright"), f"#{name}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ClaudeHome(Path(folder), "stdio") as home:
        work = Project(home, "work")
        with work.opened():
            scenes = play(home, work)
        picture = drawn(scenes, screens(scenes)).replace(folder, "/home/me")
    assert len(picture.encode()) <= MOST, f"the picture has {len(picture)} bytes"
    FILE.write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
