"""What a run came to, as tables in Markdown, one for each list of attacks."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rigs.attacks.cases import Source, Verdict
from rigs.attacks.run import Outcome, Result

COLUMNS = ("attack", "how it is played", "by default", "strictly", "what changes it")
_ORDER: tuple[Verdict, ...] = ("stopped", "shown", "passed on")
_MOST_NAMES = 2


def tables(outcomes: Iterable[Outcome]) -> dict[Source, list[str]]:
    """The lines of each table."""
    found: dict[Source, list[str]] = {}
    for one in outcomes:
        lines = found.setdefault(one.attack.source, [_line(COLUMNS), _line(["---"] * len(COLUMNS))])
        cells = (one.attack.name, one.attack.form, _cell(one.default), _cell(one.strict), _setting(one))
        lines.append(_line(cells))
    return found


def totals(outcomes: Iterable[Outcome]) -> str:
    """How often each verdict was reached."""
    every = list(outcomes)
    parts = []
    for title, results in (("by default", [one.default for one in every]), ("strictly", [one.strict for one in every])):
        counts = [f"{sum(own.verdicts.get(verdict, 0) for own in results)} {verdict}" for verdict in _ORDER]
        parts.append(f"{title}: {', '.join(counts)}")
    return "; ".join(parts)


def with_tables(page: str, found: Mapping[Source, list[str]]) -> str:
    """The page with these tables in place of those after the marks of their lists."""
    lines, kept = page.splitlines(), []
    inside = False
    for line in lines:
        inside = inside and line.startswith("| ")
        if not inside:
            kept.append(line)
        for source, table in found.items():
            if line == f"<!-- {source} -->":
                kept += table
                inside = True
    return "\n".join([*kept, ""])


def _cell(own: Result) -> str:
    counts = [(verdict, own.verdicts[verdict]) for verdict in _ORDER if own.verdicts.get(verdict)]
    if sum(count for _, count in counts) > 1:
        return ", ".join(f"{verdict} {count}" for verdict, count in counts)
    ((verdict, _),) = counts
    return f"{verdict} ({', '.join(sorted(own.findings))})" if verdict == "shown" else verdict


def _setting(one: Outcome) -> str:
    if one.attack.setting:
        return f"`{', '.join(_flow(key, value) for key, value in one.attack.setting.items())}`"
    return one.attack.advice or "–"


def _flow(key: str, value: Any) -> str:
    """A key of a server as `servers.yaml` has it, long lists cut."""
    if isinstance(value, Mapping):
        return f"{key}: {{{', '.join(_flow(name, own) for name, own in value.items())}}}"
    if isinstance(value, list):
        return f"{key}: [{', '.join([*value[:_MOST_NAMES], '…'] if len(value) > _MOST_NAMES else value)}]"
    return f"{key}: {value if isinstance(value, str) else json.dumps(value)}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
