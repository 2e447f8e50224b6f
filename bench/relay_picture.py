"""The relays of a run as a picture: `python -m bench.relay_picture bench.json docs/relays.svg`.

CPU of a call for each relay over stdio and over HTTP, one in flight and 32: bars on a scale of powers of ten, so that
each step to the right is ten times as much.
"""

import json
import math
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

CHARTS = (("calls-stdio", "over stdio"), ("calls-http", "over HTTP"))
DEPTHS = ("1 in flight", "32 in flight")
LEFT_OUT = ("direct", "before")
NAMES = {
    "limit": "limit",
    "hub": "mcp-hub",
    "history off": "mcp-hub, history off",
    "sdk": "mcp SDK",
    "fastmcp": "FastMCP",
}
COLOURS = ("#2f6fb2", "#9cc3e6")
WIDTH, LABELS, BAR, GAP, TOP = 760, 190, 11, 9, 64


class Row(msgspec.Struct):
    """A result of the document."""

    case: str
    variant: str
    side: str
    figures: dict[str, float]
    failed: int = 0


class Document(msgspec.Struct):
    machine: dict[str, str]
    results: list[Row]


def costs(document: Document, case: str) -> dict[str, dict[str, float]]:
    """Relay → depth → CPU µs a call; relays that failed or were not measured are left out."""
    found: dict[str, dict[str, float]] = {}
    for row in document.results:
        if row.case == case and row.variant in DEPTHS and row.side not in LEFT_OUT and not row.failed:
            if (cpu := row.figures.get("cpu_us")) is not None and cpu > 0:
                found.setdefault(row.side, {})[row.variant] = cpu
    return found


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def chart(title: str, found: dict[str, dict[str, float]], top: int) -> tuple[list[str], int]:
    """One chart, and where the next one begins."""
    values = [cpu for depths in found.values() for cpu in depths.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    room = WIDTH - LABELS - 70
    parts, y = [text(12, top, title, ' font-weight="bold"')], top + 14
    for name, depths in found.items():
        parts.append(text(LABELS - 10, y + BAR + 4, NAMES.get(name, name), anchor="end"))
        for depth, colour in zip(DEPTHS, COLOURS, strict=True):
            if depth in depths:
                length = room * (math.log10(depths[depth]) - low) / max(1, high - low)
                parts.append(f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>')
                parts.append(text(LABELS + length + 6, y + BAR - 1, shown(depths[depth]), ' font-size="11"'))
            y += BAR + 1
        y += GAP
    return parts, y + 26


def picture(document: Document) -> str:
    """The SVG. Raises ValueError when the document has no call of either front."""
    parts, top = [], TOP
    for case, where in CHARTS:
        if found := costs(document, case):
            more, top = chart(f"CPU of the relay, µs a call, {where}", found, top)
            parts += more
    if not parts:
        raise ValueError("the document has no calls")
    legend = [text(12, 24, "CPU of a call through each relay", ' font-size="16" font-weight="bold"')]
    for n, (depth, colour) in enumerate(zip(DEPTHS, COLOURS, strict=True)):
        legend.append(f'<rect x="{LABELS + n * 130}" y="34" width="{BAR}" height="{BAR}" fill="{colour}"/>')
        legend.append(text(LABELS + n * 130 + 17, 44, depth))
    cpu, cores, python = (document.machine.get(key, "") for key in ("cpu", "cores", "python"))
    foot = f"{cpu}, {cores} cores, Python {python}. The scale is in powers of ten."
    box = f'viewBox="0 0 {WIDTH} {top + 8}" font-family="sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    ground = f'<rect width="{WIDTH}" height="{top + 8}" fill="#ffffff"/>'
    return "\n".join([head, ground, *legend, *parts, text(12, top - 6, foot, ' font-size="11"'), "</svg>", ""])


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    document = msgspec.convert(json.loads(Path(sys.argv[1]).read_text()), Document)
    Path(sys.argv[2]).write_text(picture(document), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
