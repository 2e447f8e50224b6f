"""The goals of docs/search.md on the evaluation sets (data outside the repository)."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from mcp_hub.catalog.search.ranker import build
from tests.captured import DATA, captured, needs_lists, needs_queries

SETS = DATA / "toolsearch"
TYPED = Path(__file__).with_name("typed_requests.txt")
KEPT_WHOLE, TUNED_WHOLE = 4, 3
"""Drafts of the typed requests without halves."""


def lines(name: str, file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SETS / name / file).read_bytes().splitlines() if line.strip()]


def recall(groups: list[list[str]], ranked: list[str], k: int) -> float:
    return fmean(not set(group).isdisjoint(ranked[:k]) for group in groups)


def typed(*, is_kept: bool) -> list[tuple[str, str, list[str]]]:
    """The language, words and right tools of each request that is kept away from tuning, or is not."""
    requests: list[tuple[str, str, list[str]]] = []
    drafts = TYPED.read_text("utf-8").split("# Draft ")[1:]
    for number, draft in enumerate(drafts, 1):
        rows = [line.split("\t") for line in draft.splitlines()[1:]]
        if number in (KEPT_WHOLE, TUNED_WHOLE):
            rows = rows if is_kept == (number == KEPT_WHOLE) else []
        else:
            rows = rows[is_kept::2]
        requests += [(language, text, tools.split()) for language, text, tools in rows]
    return requests


@needs_lists
def test_the_typed_requests_name_captured_tools() -> None:
    requests = typed(is_kept=True) + typed(is_kept=False)
    names = {f"{server}/{tool['name']}" for server, tools in captured().items() for tool in tools}
    assert len(requests) == len({text for _, text, _ in requests}) == 636
    assert len({language for language, _, _ in requests}) == 13
    assert names.issuperset(name for _, _, tools in requests for name in tools)


# recall@5 in English, and in the other languages
@needs_lists
@pytest.mark.parametrize(("is_kept", "goals"), [(True, (0.86, 0.90)), (False, (0.90, 0.95))])
def test_the_goals_are_met_on_requests_as_people_type_them(is_kept: bool, goals: tuple[float, float]) -> None:
    ranker = build(
        {**tool, "server": server, "id": f"{server}/{tool['name']}"}
        for server, tools in captured().items()
        for tool in tools
    )
    english: list[bool] = []
    others: list[bool] = []
    for language, text, tools in typed(is_kept=is_kept):
        (english if language == "en" else others).append(not set(tools).isdisjoint(ranker.rank(text, 5)))
    reached = fmean(english), fmean(others)
    assert all(figure >= goal for figure, goal in zip(reached, goals, strict=True)), reached


# recall@5, recall@8, hit@1 on dev queries
@needs_queries
@pytest.mark.parametrize(
    ("name", "goals"), [("mcp", (0.59, 0.63, 0.51)), ("api", (0.82, 0.86, 0.77)), ("bfcl", (0.90, 0.93, 0.69))]
)
def test_the_goals_are_met_on_dev_queries(name: str, goals: tuple[float, float, float]) -> None:
    ranker = build(lines(name, "tools.jsonl"))
    rows = [(query["gold_groups"], ranker.rank(query["text"], 10)) for query in lines(name, "dev.jsonl")]
    reached = (
        *(fmean(recall(groups, ranked, k) for groups, ranked in rows) for k in (5, 8)),
        fmean(any(ranked[:1] == [one] for group in groups for one in group) for groups, ranked in rows),
    )
    assert all(figure >= goal for figure, goal in zip(reached, goals, strict=True)), reached
