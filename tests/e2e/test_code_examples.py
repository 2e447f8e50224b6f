"""The scripts of `examples/desk` as a reader runs them, and those of docs/code.md."""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.cli.command import hub

pytestmark = pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples" / "desk", tmp_path / "desk"))


def called(folder: Path, name: str, *arguments: str) -> str:
    done = hub(folder, "call", name, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_thirty_calls_give_one_line_for_each_team(desk: Path) -> None:
    assert json.loads(called(desk, "desk_owners")) == {"team 1": 8, "team 2": 8, "team 3": 7, "team 0": 7}
    lines = hub(desk, "run", "scripts/owners.py", "--json").stdout.splitlines()
    assert sum('"type":"tool-call"' in line for line in lines) == 30


def test_five_hundred_records_give_ten_lines(desk: Path) -> None:
    lines = called(desk, "desk_open_tickets").splitlines()
    assert len(lines) == 10 and lines[0] == "87 days: Printer 51 is on fire"


def test_server_that_fails_does_not_take_the_others_along(desk: Path) -> None:
    printed, _, result = called(desk, "desk_everywhere", "words=fire", "ticket=900").partition("\n")
    assert printed == "ticket: there is no ticket 900"
    assert {name: len(lines) for name, lines in json.loads(result).items()} == {"wiki": 2, "chat": 1, "ticket": 0}


def test_script_that_waits_is_tested_without_waiting(desk: Path) -> None:
    done = hub(desk, "run", "scripts/permission.py", "question=May I restart printer 7?", "--dry", "permission.jsonl")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "yes (after 2 min)"
    assert done.stderr.count('asyncio.sleep {"seconds":60') == 2


def test_hints_are_those_of_the_tools_that_the_scripts_use(desk: Path) -> None:
    listed = {each["name"]: each.get("annotations") for each in json.loads(hub(desk, "tools", "--json").stdout)}
    reads = {name for name, hints in listed.items() if name.startswith("desk_") and hints == {"readOnlyHint": True}}
    assert reads == {"desk_owners", "desk_open_tickets", "desk_everywhere"} and listed["desk_permission"] is None


def test_scripts_of_the_page_run(desk: Path) -> None:
    whole, tool = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "code.md").read_text("utf-8"), re.DOTALL)
    done = hub(desk, "run", "-", stdin=whole)
    assert done.returncode == 0 and done.stdout.startswith("200 open\n"), done.stdout + done.stderr
    (desk / "scripts" / "page.py").write_text(tool)
    assert len(called(desk, "desk_page", "most=3").splitlines()) == 3
