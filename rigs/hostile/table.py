"""What a run came to, as a table in Markdown."""

from collections.abc import Iterable, Sequence

from rigs.hostile.run import Outcome

_MARK = "<!-- python -m rigs.hostile --write docs/hostile.md -->"
COLUMNS = ("fault", "transport", "era", "the caller got", "after", "healthy p99", "worst", "memory", "left behind")


def markdown(outcomes: Iterable[Outcome]) -> list[str]:
    """The lines; figures are those of the row's whole hub."""
    rows = [COLUMNS, ["---"] * len(COLUMNS), *map(_cells, outcomes)]
    return ["| " + " | ".join(cells) + " |" for cells in rows]


def _cells(one: Outcome) -> Sequence[str]:
    return (
        one.row.case.name,
        one.row.transport,
        one.row.era or "either",
        one.ending + ("" if not one.wrongs else " **wrong**"),
        f"{one.seconds:.2f} s",
        f"{one.p99:.0f} ms",
        f"{one.worst:.0f} ms",
        f"{one.memory:.0f} MiB",
        ", ".join(one.leftovers) or "nothing",
    )


def failures(outcomes: Iterable[Outcome]) -> list[str]:
    """Each promise that was not kept."""
    return [
        f"{one.row.case.name} over {one.row.transport}, {one.row.era or 'either era'}: {wrong}"
        for one in outcomes
        for wrong in one.wrongs
    ]


def with_table(page: str, lines: Iterable[str]) -> str:
    """The page with this table in place of the one that it has; a page without one gets it at its end."""
    kept = [line for line in page.splitlines() if not line.startswith("| ")]
    at = kept.index(_MARK) + 1 if _MARK in kept else len(kept)
    return "\n".join([*kept[:at], *lines, *kept[at:], ""])
