"""The goals of docs/search.md on the evaluation sets (data outside the repository)."""

import json
from statistics import fmean
from typing import Any

import pytest

from mcp_hub.catalog.search.ranker import build
from tests.captured import DATA, needs_queries

SETS = DATA / "toolsearch"

pytestmark = needs_queries


def lines(name: str, file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SETS / name / file).read_bytes().splitlines() if line.strip()]


def recall(groups: list[list[str]], ranked: list[str], k: int) -> float:
    return fmean(not set(group).isdisjoint(ranked[:k]) for group in groups)


# recall@5, recall@8, hit@1 on dev queries
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
