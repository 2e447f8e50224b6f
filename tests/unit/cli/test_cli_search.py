"""How `mcp-hub search` explains an order of hits, and what it takes."""

from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.cli import main
from mcp_hub.cli.commands.search import explanation
from mcp_hub.cli.render import tables

FIRST = Hit("git_log", 3.256, ("git_log_2", "x\x1b[2J"), {"words": 2.25, "server": 1.006})
SECOND = Hit("git_show", 0.0, (), {"words": 0.0, "server": 0.0})


def rows(hits: Sequence[Hit], capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    tables.print_table(explanation(hits))
    return [line.split() for line in capsys.readouterr().out.splitlines() if "─" not in line]


def test_each_hit_has_a_row_with_the_parts_of_its_score(capsys: pytest.CaptureFixture[str]) -> None:
    assert rows((FIRST, SECOND), capsys) == [
        ["tool", "score", "words", "server", "also"],
        ["git_log", "3.26", "2.25", "1.01", "git_log_2,", "x\\x1b[2J"],
        ["git_show", "0.00", "0.00", "0.00"],
    ]


def test_nothing_is_explained_as_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert rows((), capsys) == [["tool", "score", "also"]]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "Missing argument 'QUERY...'"),
        (["x", "--limit", "0"], "0 is not in the range 1<=x<=50"),
        (["x", "--limit", "51"], "51 is not in the range 1<=x<=50"),
        (["x", "--detail", "some"], "'some' is not one of"),
    ],
)
def test_what_cannot_be_asked_is_a_mistake_of_the_caller(line: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["search", *line])
    assert done.exit_code == 2 and said in done.stderr and done.stdout == ""
