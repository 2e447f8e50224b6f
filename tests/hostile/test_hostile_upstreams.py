"""Every way to be a bad server, four of them beside a good one: each promise of the hub holds while they are at it."""

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.hostile.cases import CASES
from tests.hostile.plan import TOGETHER, every_row, groups, usual_rows
from tests.hostile.run import Outcome, Row, run_together
from tests.hostile.table import COLUMNS, failures, markdown, with_table
from tests.upstreams.launch import SERVER

pytestmark = pytest.mark.anyio

GROUPS = groups(usual_rows(), TOGETHER)
PAIRS = [GROUPS[at : at + 2] for at in range(0, len(GROUPS), 2)]
PAGE = Path(__file__).parents[2] / "docs" / "hostile.md"

_MODES = f"""
import json, sys
sys.path.insert(0, {str(SERVER.parent)!r})
import faults
print(json.dumps([list(faults.MODES), list(faults.GARBAGE)]))
"""  # the fixture is a program of its own, whose modules stand side by side


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0][0].case.name)
async def test_bad_servers_change_nothing_for_a_good_one(pair: list[list[Row]], tmp_path: Path) -> None:
    outcomes: list[Outcome] = []

    async def run(number: int, rows: list[Row]) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        outcomes.extend(await run_together(rows, folder))

    with anyio.fail_after(90):
        async with anyio.create_task_group() as tasks:
            for number, rows in enumerate(pair):
                tasks.start_soon(run, number, rows)
    assert failures(outcomes) == []
    assert len(outcomes) == sum(map(len, pair))


def test_every_mode_and_every_sort_of_garbage_is_a_row() -> None:
    command = [sys.executable, "-c", _MODES]
    modes_there, garbage_there = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    options = [case.options for case in CASES]
    modes = {one[one.index("--mode") + 1] for one in options if "--mode" in one}
    assert modes == set(modes_there) - {"normal"}
    garbage = {case.arguments["variant"] for case in CASES if case.tool == "garble"}
    assert garbage == set(garbage_there)


def test_no_hub_has_more_than_four_bad_servers_and_one_heavy_one() -> None:
    for group in GROUPS:
        assert len({row.server for row in group}) <= TOGETHER
        assert len({row.server for row in group if row.case.is_heavy}) <= 1


def test_all_combinations_are_every_case_in_each_of_its_eras_over_each_of_its_transports() -> None:
    names = [(row.case.name, row.transport, row.era) for row in every_row()]
    assert len(names) == len(set(names))
    assert {name for name, _, _ in names} == {case.name for case in CASES}


def test_documented_table_has_these_rows() -> None:
    text = PAGE.read_text("utf-8")
    shown = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    assert shown == [COLUMNS[0], "---", *(row.case.name for row in usual_rows())]


def test_a_promise_that_was_broken_is_in_the_table() -> None:
    outcome = Outcome(usual_rows()[0], "result", wrongs=["a healthy call took 3.0 s"])
    assert "**wrong**" in markdown([outcome])[-1]
    assert "a healthy call took 3.0 s" in failures([outcome])[0]


def test_a_page_keeps_its_text_and_gets_the_new_table() -> None:
    page = PAGE.read_text("utf-8")
    fresh = with_table(page, ["| a | b |", "| --- | --- |"])
    assert [line for line in fresh.splitlines() if line.startswith("| ")] == ["| a | b |", "| --- | --- |"]
    old = [line for line in page.splitlines() if line.startswith("| ")]
    assert with_table(fresh, old) == page
