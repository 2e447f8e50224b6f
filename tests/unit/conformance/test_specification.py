"""The specification's text, its rules and their vectors agree: each MUST and SHOULD is tested, or says why not.

`python -m tests.unit.conformance.test_specification` writes docs/specification/traceability.yaml again, which keeps its
reasons. Its form is that of SEP-2484, with the vectors besides.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_hub.conformance.vectors import Scenario, read_all

SPECIFICATION = Path(__file__).parents[3] / "docs/specification"
TABLE = SPECIFICATION / "traceability.yaml"
URL = "https://modelcontextprotocol.io/seps/0000-streams"
RULE = re.compile(r"^\* \*\*([A-Z]{2}-\d+)\*\* (.*(?:\n  .*)*)", re.MULTILINE)
TESTED = re.compile(r"\b(?:MUST|SHALL|SHOULD|REQUIRED|RECOMMENDED)\b")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SECTIONS = [
    "Abstract", "Motivation", "Specification", "Rationale", "Backward Compatibility", "Security Implications",
    "Reference Implementation", "Testing Plan", "Open Questions",
]  # fmt: skip
PREAMBLE = ("Status", "Type", "Created", "Author(s)", "Sponsor", "PR")
NEIGHBOURS = (
    "SEP-2694",
    "Task Event Sources",
    "SEP-2998",
    "SEP-2679",
    "SEP-1905",
    "SEP-1699",
    "Durable Streams",
    "OpenAI",
)
Row = dict[str, Any]


@cache
def text() -> str:
    return FENCED.sub("", (SPECIFICATION / "streams.md").read_text())


def section(name: str) -> str:
    return text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]


@cache
def rules() -> dict[str, str]:
    """Id → what it says, on one line."""
    return {found[1]: " ".join(found[2].split()) for found in RULE.finditer(section("Specification"))}


@cache
def scenarios() -> dict[str, Scenario]:
    """By the place of their file; those of clients are in a folder of their own."""
    folders = {"": SPECIFICATION / "vectors", "clients/": SPECIFICATION / "vectors/clients"}
    return {f"{prefix}{scenario.name}": scenario for prefix, folder in folders.items() for scenario in read_all(folder)}


def traced(reasons: dict[str, str]) -> list[Row]:
    """A row for each rule that has to have one."""
    rows: list[Row] = []
    for rule, says in rules().items():
        vectors = [name for name, scenario in scenarios().items() if rule in scenario.rules]
        row: Row = {"check": f"sep-0000-{rule.lower()}", "text": says, "vectors": vectors}
        if not vectors:
            row = {"rule": rule, "text": says, "excluded": reasons.get(rule, "")}
        rows.append(row)
    return rows


def written(rows: list[Row]) -> str:
    lines = ["sep: 0", f"spec_url: {URL}", "requirements:"]
    for row in rows:
        members = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in row.items()]
        lines += [f"{'    ' if n else '  - '}{member}" for n, member in enumerate(members)]
    return "\n".join(lines) + "\n"


def kept() -> list[Row]:
    rows: list[Row] = yaml.safe_load(TABLE.read_text())["requirements"]
    return rows


def reasons() -> dict[str, str]:
    return {row["rule"]: row["excluded"] for row in kept() if "excluded" in row}


def test_the_text_has_the_parts_of_a_proposal() -> None:
    whole = text()
    assert re.findall(r"^## (.*)", whole, re.MULTILINE) == SECTIONS
    assert re.findall(r"^\* \*\*([^*]+)\*\*: ", whole.partition("\n## ")[0], re.MULTILINE)[: len(PREAMBLE)] == [
        *PREAMBLE
    ]
    assert "**Type**: Extensions Track" in whole and len(section("Abstract").split()) < 250
    assert all(name in section("Rationale") for name in NEIGHBOURS)


def test_whatever_is_required_has_an_id_of_its_own() -> None:
    ids = [found[1] for found in RULE.finditer(text())]
    assert len(ids) == len(set(ids)) == len(rules())
    beside = RULE.sub("", section("Specification")).partition("### 1. ")[2]
    assert [line for line in beside.splitlines() if TESTED.search(line)] == []
    assert [rule for rule, says in rules().items() if not TESTED.search(says)] == []


def test_rules_name_no_implementation_and_say_after() -> None:
    part = section("Specification").replace("dev.mcp-hub/", "")
    assert "mcp-hub" not in part
    assert [rule for rule, says in rules().items() if "behind" in says] == []


def test_every_rule_is_tested_or_says_why_not() -> None:
    known = rules()
    for name, scenario in scenarios().items():
        assert scenario.rules, name
        assert set(scenario.rules) <= known.keys(), name
    assert TABLE.read_text() == written(traced(reasons()))
    assert [row for row in kept() if not (row.get("vectors") or len(row.get("excluded", "")) > 20)] == []


@pytest.mark.parametrize("scenario", [pytest.param(one, id=name) for name, one in scenarios().items()])
def test_a_vector_names_the_sections_of_its_rules(scenario: Scenario) -> None:
    whole = section("Specification")
    places = {}
    for found in RULE.finditer(whole):
        places[found[1]] = re.findall(r"^### (\d+)\. ", whole[: found.start()], re.MULTILINE)[-1]
    assert scenario.steps
    assert {places[rule] for rule in scenario.rules} <= set(scenario.section.split(", "))


if __name__ == "__main__":
    TABLE.write_text(written(traced(reasons() if TABLE.exists() else {})))
