"""Driver: what a terminal shows after each portion of a program's output; needs pyte.

Reads `{rows, columns, portions}` with portions in base64, and writes a list of screens. A screen is a list of lines,
and a line a list of `[text, colour, is_bold]`.
"""

import base64
import json
import sys
from itertools import groupby
from typing import Any

import pyte


def lines(screen: Any) -> list[list[tuple[str, str, bool]]]:
    """What the screen shows now."""
    shown = []
    for row in range(screen.lines):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        runs = groupby(cells, key=lambda cell: (cell.bg if cell.reverse else cell.fg, cell.bold))
        shown.append([("".join(cell.data for cell in run), *look) for look, run in runs])
    return shown


def main() -> None:
    given = json.load(sys.stdin)
    screen = pyte.Screen(given["columns"], given["rows"])
    stream = pyte.ByteStream(screen)
    screens = []
    for portion in given["portions"]:
        stream.feed(base64.b64decode(portion))
        screens.append(lines(screen))
    json.dump(screens, sys.stdout)


if __name__ == "__main__":
    main()
