"""The allow-list: offences of today, which may become fewer and never more.

`allowed.txt` has a section for each rule and a line for each file: `file: name name=count …`, the count being the sum
of the sizes of all offences of that name (one if it is left out). A comment after `#` gives a reason: of one entry, or
of all in the section if it stands after the name of the rule. A budget is an entry of a room in place of a file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from tests.architecture.source import Offence

PLACE = Path(__file__).with_name("allowed.txt")

SLACK = {"dialect": 0.25, "docstring_openings": 0.25, "modules": 0.01, "public_classes": 0.01, "unchecked_types": 0.03}
"""Budgets by rule, and how far one may be above what there is, so that not every change has to lower it."""

Counts: TypeAlias = Counter[tuple[str, str]]
"""By file and name."""


def counted(offences: Iterable[Offence]) -> Counts:
    counts: Counts = Counter()
    for offence in offences:
        counts[offence.entry] += offence.size
    return counts


def read(text: str) -> dict[str, Counts]:
    """The allow-list by rule."""
    allowed: dict[str, Counts] = {}
    rule = ""
    for line in text.splitlines():
        content = line.partition("#")[0].strip()
        if content.startswith("["):
            rule = content.rstrip().strip("[]")
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
    """The offences of every name that has more of them than the list allows; one for each budget that is exceeded."""
    listed = list(offences)
    counts = counted(listed)
    over = [offence for offence in listed if counts[offence.entry] > allowed[offence.entry]]
    rooms = {offence.entry for offence in over if offence.room}
    return [offence for offence in over if not offence.room] + [
        Offence(room, 1, name, f"{counts[room, name]} {name}, {allowed[room, name]} at most; see --list")
        for room, name in sorted(rooms)
    ]


def stale(offences: Iterable[Offence], allowed: Counts, slack: float = 0.0) -> list[str]:
    """Entries that allow more than there is, budgets with their slack and three."""
    counts = counted(offences)
    return [
        f"{file}: {name}={limit}, found {counts[file, name]}"
        for (file, name), limit in allowed.items()
        if counts[file, name] < limit - (max(3, int(limit * slack)) if slack else 0)
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
    """Entries without a reason, in sections without one."""
    lines = []
    has_reason = False
    for line in text.splitlines():
        if line.startswith("["):
            has_reason = "  # " in line
        elif ": " in line and not line.startswith("#") and "  # " not in line and not has_reason:
            lines.append(line)
    return lines


def lines_for(counts: Counts) -> Iterator[str]:
    """What the list would say of these offences."""
    for file in sorted({file for file, _ in counts}):
        names = sorted((name, count) for (place, name), count in counts.items() if place == file)
        yield f"{file}: " + " ".join(_written(name, count) for name, count in names)


def _written(name: str, count: int) -> str:
    return name if count == 1 else f"{name}={count}"
