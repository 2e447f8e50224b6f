"""The lint of English: phrases that are not plain English, or stand for a term of the field.

It searches comments and strings of `mcp_hub`, the pages at the root and those in docs/. Code does not count: names,
text in backticks, fenced blocks. A phrase may continue on the next line.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.source import Offence, sources

PHRASES = {
    "is-no": (r"is\s+no(?!\s+(?:longer|more\s+than)\b)", '"is not a"'),
    "has-none": (r"has\s+none", '"does not have"'),
    "told": (r"told", "say who says, sends or asks what"),
    "mend": (r"mend(?:s|ed|ing)?", '"fix"'),
    "goes-on": (r"goes\s+on", '"continues"'),
    "for-good": (r"for\s+good", '"permanently"'),
}
"""Name → pattern, and what to write instead."""

_FOUND = re.compile(
    "|".join(rf"(?<![\w-])(?P<{name.replace('-', '_')}>{pattern})(?![\w-])" for name, (pattern, _) in PHRASES.items()),
    re.I,
)
_THERE = re.compile(r"\bthere\s+$", re.I)
_FENCED = re.compile(r"^(\s*)(```|~~~).*?^\s*\2", re.M | re.S)
_CODE = re.compile(r"(`+)(?:[^`\0\n]|\n(?!\s*\n))+?\1")


def english(root: Path) -> Iterator[Offence]:
    for shown, text in _texts(root):
        for found in _FOUND.finditer(text):
            name = (found.lastgroup or "").replace("_", "-")
            if name != "is-no" or not _THERE.search(text[: found.start()][-40:]):
                line = text.count("\n", 0, found.start()) + 1
                yield Offence(shown, line, name, f'"{" ".join(found[0].split())}": write {PHRASES[name][1]}')


@cache
def _texts(root: Path) -> list[tuple[str, str]]:
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    texts = [(page.relative_to(root).as_posix(), _FENCED.sub(_blank, _read(page))) for page in pages]
    texts += [(source.shown, source.prose) for source in sources(root)]
    return [(shown, _CODE.sub(_blank, text)) for shown, text in texts]


def _read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _blank(code: re.Match[str]) -> str:
    """As long as the code was, with its line breaks, so that offsets stay."""
    return re.sub(r"[^\n]", "\0", code[0])
