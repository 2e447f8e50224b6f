"""What a run came to, as a table in Markdown: one line for each kind of escape, or for each escape."""

from collections import Counter
from collections.abc import Iterable

from rigs.sandbox.run import Outcome, Row

_MARK = "<!-- python -m rigs.sandbox --write docs/escapes.md -->"
_LANGUAGES = ("Python", "Node", "C")
COLUMNS = ("escapes", "rules", *_LANGUAGES)
_HEADS = {"none": "`net: none`", "hosts": "`net: [hosts]`", "on": "`on`", "sockets": "`sockets`"}


def table(outcome: Outcome) -> list[str]:
    """One line for each kind: under which rules it was tried, and how many of its escapes each language had."""
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    for kind in dict.fromkeys(row.kind.title for row in outcome.rows):
        rows = [row for row in outcome.rows if row.kind.title == kind]
        rules = ", ".join(_HEADS[rule] for rule in rows[0].kind.rules)
        lines.append(_line([kind, rules, *(_cell(row for row in rows if row.language == one) for one in _LANGUAGES)]))
    words = {None: "–", True: "**hole**", False: "refused"}
    return lines + [_line([one.name, "`on`", words[one.inside], "–", "–"]) for one in outcome.played]


def _cell(rows: Iterable[Row]) -> str:
    counts = Counter(row.state for row in rows)
    words = [f"{counts['refused']} refused"] if counts["refused"] else []
    words += [f"**{counts[state]} {state}**" for state in ("hole", "open", "broken") if counts[state]]
    return ", ".join(words) or "–"


def each_row(outcome: Outcome) -> list[str]:
    """One line for each escape in each language."""
    lines = []
    for row in outcome.rows + outcome.passing:
        inside = ", ".join(f"{rule}: {one.verdict} ({one.detail[:110]})" for rule, one in row.inside.items())
        control = f"{row.control.verdict} ({row.control.detail[:60]})"
        state = row.state if row in outcome.rows else "said"
        lines.append(f"{state:9} {row.language:7} {row.name:28} outside: {control}; {inside}")
    return ["".join(char if char.isprintable() else "?" for char in line) for line in lines]


def totals(outcome: Outcome) -> str:
    """How many escapes there were, and which could not be tried here."""
    names = {row.name for row in outcome.rows if row.state != "not here"}
    counts = Counter(row.state for row in outcome.rows)
    absent = sorted({row.name for row in outcome.rows} - names)
    passing = sorted({row.name for row in outcome.passing if row.state == "hole"})
    parts = [
        f"{len(names)} escapes, {len(outcome.rows) - counts['not here']} with their languages: "
        f"{', '.join(f'{counts[state]} {state}' for state in ('refused', 'open', 'hole', 'broken'))}",
        f"not possible on this machine even without a sandbox: {', '.join(absent) or 'none'}",
        f"not stopped, as documented: {', '.join(passing) or 'none'}",
    ]
    return "\n".join(parts)


def with_table(page: str, lines: Iterable[str]) -> str:
    """The page with this table in place of the one behind its mark."""
    before, mark, behind = page.partition(f"{_MARK}\n")
    rest = behind.split("\n")
    while rest and rest[0].startswith("| "):
        rest.pop(0)
    return "\n".join([f"{before}{mark}".rstrip("\n"), *lines, *rest]) if mark else page


def missing(page: str, lines: Iterable[str]) -> list[str]:
    """The kinds with their rules that a page does not have; figures differ from machine to machine."""
    heads = [" | ".join(line.split(" | ")[:2]) for line in lines]
    return [head for head in heads if f"{head} | " not in page]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
