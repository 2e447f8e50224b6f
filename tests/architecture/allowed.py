"""The allow-list: offences of today, which may become fewer and never more.

`allowed.txt` has a section for each rule and a line for each file: `file: name name=count …`, the count being the sum
of the sizes of all offences of that name (one if it is left out). A comment after `#` gives a reason.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from tests.architecture.source import Offence

PLACE = Path(__file__).with_name("allowed.txt")

Counts: TypeAlias = Counter[tuple[str, str]]
"""By file and name."""


def counted(offences: Iterable[Offence]) -> Counts:
    counts: Counts = Counter()
    for offence in offences:
        counts[offence.file, offence.name] += offence.size
    return counts


def read(text: str) -> dict[str, Counts]:
    """The allow-list by rule."""
    allowed: dict[str, Counts] = {}
    rule = ""
    for line in text.splitlines():
        content = line.partition("#")[0].strip()
        if content.startswith("["):
            rule = content.strip("[]")
            allowed[rule] = Counter()
        elif content:
            file, _, names = content.partition(": ")
            for name, count in map(_entry, names.split()):
                allowed[rule][file, name] = count
    return allowed


def _entry(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    return name, int(count or 1)


def exceeding(offences: Iterable[Offence], allowed: Counts) -> list[Offence]:
    """The offences of every name that has more of them than the list allows."""
    found = list(offences)
    counts = counted(found)
    return [offence for offence in found if counts[offence.file, offence.name] > allowed[offence.file, offence.name]]


def stale(offences: Iterable[Offence], allowed: Counts) -> list[str]:
    """Entries that allow more than there is."""
    counts = counted(offences)
    return [
        f"{file}: {name}={most}, found {counts[file, name]}"
        for (file, name), most in allowed.items()
        if counts[file, name] < most
    ]


def shortened(text: str, found: dict[str, Counts]) -> str:
    """The list without what is stale; comments stay with their lines."""
    lines = []
    rule = ""
    for line in text.splitlines():
        content, hash_, reason = line.partition("#")
        if content.startswith("["):
            rule = content.strip().strip("[]")
        elif content.strip():
            file, _, names = content.strip().partition(": ")
            entries = ((name, min(count, found[rule][file, name])) for name, count in map(_entry, names.split()))
            kept = " ".join(_written(name, count) for name, count in entries if count)
            if not kept:
                continue
            line = f"{file}: {kept}" + (f"  #{reason}" if hash_ else "")
        lines.append(line)
    return "\n".join(lines) + "\n"


def unexplained(text: str) -> list[str]:
    """Entries without a reason."""
    return [line for line in text.splitlines() if ": " in line and not line.startswith("#") and "  # " not in line]


def lines_for(counts: Counts) -> Iterator[str]:
    """What the list would say of these offences."""
    for file in sorted({file for file, _ in counts}):
        names = sorted((name, count) for (place, name), count in counts.items() if place == file)
        yield f"{file}: " + " ".join(_written(name, count) for name, count in names)


def _written(name: str, count: int) -> str:
    return name if count == 1 else f"{name}={count}"
