"""How `mcp-hub tokens`, `tools export` and `search` look, and what they take."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.cli import main
from mcp_hub.cli.commands.search import explanation
from mcp_hub.cli.commands.tools import print_account
from mcp_hub.cli.render import tables
from mcp_hub.protocol.rest.servers import ModeTokens, ServerTokens, TokenAccount, Tokens, ToolTokens
from tests.unit.cli.command import JOBS, hub

AUTO = ModeTokens("auto", "search", 3, 238)
FULL = ModeTokens("full", "full", 2, 5001)
LONG, SHORT = Tokens(5000, 4000, 30, 4), Tokens(1, 1, 1, 1)


def account(**members: object) -> TokenAccount:
    usual: dict[str, object] = {
        "client": "unknown",
        "profile": None,
        "current": AUTO,
        "modes": (FULL, AUTO),
        "budget": 8000,
        "max_tools": 240,
        "defers": False,
        "starting": (),
        "total": LONG + SHORT,
        "servers": (ServerTokens("git", 1, LONG), ServerTokens("bad\x1b[2J", 1, SHORT)),
        "heaviest": ("git_log",),
        "tools": (ToolTokens("git_log", "git", LONG), ToolTokens("x", "bad\x1b[2J", SHORT)),
    }
    return TokenAccount(**{**usual, **members})  # type: ignore[arg-type]  # by name


def shown(capsys: pytest.CaptureFixture[str], **members: object) -> list[list[str]]:
    print_account(account(**members))
    return [line.split() for line in capsys.readouterr().out.splitlines() if line and "─" not in line]


def test_account_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    head, second, *_ = shown(capsys, apps=ModeTokens("auto", "search", 5, 400))
    assert " ".join(second) == "Where it shows apps, its model gets 5 tools (400 tokens)."
    one, deferred, *_ = shown(capsys, client="code", defers=True, current=ModeTokens("full", "full", 1, 1))
    assert " ".join(one) == "code gets 1 tool: 1 token in each session (full)"
    assert " ".join(deferred) == "These clients show their model a definition only when it is asked for."
    own = shown(capsys, servers=(ServerTokens("git", 1, LONG),), heaviest=())
    assert not [row for row in own if row[0] in ("together", "heaviest")]
    print_account(account(servers=(), tools=(), heaviest=()))
    assert capsys.readouterr().err == "no tools\n"


def test_ways_to_list_servers_and_heaviest_tools_are_shown_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = shown(capsys)
    said = "A client that the hub does not recognize gets 3 tools: 238 tokens in each session (auto → search)"
    assert " ".join(head) == said
    forms = ["full", "compact", "signature", "names"]
    assert rows == [
        ["expose", "comes", "to", "listed", "tokens"],
        ["full", "full", "2", "5,001"],
        ["auto", "search", "3", "238"],
        "These lists have the hub's own tools too. The tables below count whole tools of servers only.".split(),
        ["server", "tools", *forms],
        ["git", "1", "5,000", "4,000", "30", "4"],
        ["bad\\x1b[2J", "1", "1", "1", "1", "1"],
        ["together", "2", "5,001", "4,001", "31", "5"],
        ["heaviest", *forms],
        ["git_log", "5,000", "4,000", "30", "4"],
    ]


@pytest.mark.parametrize("command", [["tokens"], ["search", "x"]], ids=["tokens", "search"])
@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--profile", "smal", 'no profile "smal". Did you mean "small"?'),
        ("--profile", "q\x1b[2J", 'no profile "q\\x1b[2J". Configured: small'),
        ("--server", "jos", 'no server "jos". Did you mean "jobs"?'),
    ],
    ids=["profile", "hostile", "server"],
)
def test_what_is_not_there_is_a_mistake_of_the_caller(
    tmp_path: Path, command: list[str], option: str, value: str, said: str
) -> None:
    config = {"servers": {"jobs": {"local": "mcp_hub.examples.jobs:registry"}}, "profiles": {"small": {}}}
    (tmp_path / "servers.yaml").write_text(json.dumps(config))
    done = CliRunner().invoke(main, [*command, option, value, "-c", str(tmp_path / "servers.yaml")])
    assert done.exit_code == 2 and said in done.stderr and done.stdout == ""
    done = CliRunner().invoke(main, ["tokens", "--client", "claude-cod", "-c", str(tmp_path / "servers.yaml")])
    assert done.exit_code == 2 and 'unknown client "claude-cod". Did you mean "claude-code"?' in done.stderr
    assert "-1 is not in the range" in CliRunner().invoke(main, ["tokens", "--top", "-1"]).stderr


@pytest.mark.processes
def test_help_names_the_commands_among_the_others(tmp_path: Path) -> None:
    done = hub(tmp_path, "--help")
    commands = done.stdout.partition("--help  Show")[2].splitlines()[1:]
    lines = [line.split() for line in commands if line.startswith("  ")]
    names = main.list_commands(click.Context(main))
    assert [line[0] for line in lines] == names and not [line for line in lines if line[-1].endswith("...")]
    assert {len(line) <= 80 for line in commands} == {True}
    context = click.Context(main)
    own = {name: main.get_command(context, name) for name in names}
    assert {line.strip().partition(" ")[0]: line[14:].strip() for line in commands if line.startswith("  ")} == {
        name: command.get_short_help_str(200) for name, command in own.items() if command is not None
    }, "the line of the help is the beginning of the command's own"
    headings = [line for line in commands if line and not line.startswith(" ")]
    assert headings == ["Start:", "Servers:", "Tools and calls:", "Configuration:", "Operate:"]
    assert {CliRunner().invoke(main, [name, "--help"]).exit_code for name in names} == {0}
    done = hub(tmp_path, "exprt")
    assert done.returncode == 2 and 'no command "exprt". Did you mean "export"?' in done.stderr


NAMES = ["jobs_run_job", "jobs_count_words", "jobs_wait"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    settings = {"servers": {"jobs": JOBS}, "profiles": {"small": {"tools": {"allow": ["jobs_wait"]}}}}
    (tmp_path / "servers.yaml").write_text(json.dumps({**settings, "hub": {"expose": "full"}}))
    return tmp_path


def printed(folder: Path, *args: str) -> Any:
    done = hub(folder, *args)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


@pytest.mark.processes
def test_tools_connectors_and_hits_are_printed_in_the_format(folder: Path) -> None:
    tools = printed(folder, "tools", "export", "anthropic", "--defer", "--strict")["tools"]
    assert [tool["name"] for tool in tools] == ["find_tools", *NAMES]
    assert all(tool["strict"] and tool["defer_loading"] for tool in tools[1:])
    chosen = printed(folder, "tools", "export", "openai", "--tools", "jobs_wait,jobs_run_job", "--server", "jobs")
    assert [tool["function"]["name"] for tool in chosen["tools"]] == [NAMES[0], NAMES[2]]
    (space,) = printed(folder, "tools", "export", "openai-responses", "--group")["tools"]
    assert space["name"] == "jobs" and [tool["name"] for tool in space["tools"]] == NAMES
    line = ("tools", "export", "openai-mcp", "--public-url", "https://hub.example.com", "--profile", "small")
    (entry,) = printed(folder, *line)["tools"]
    assert entry["server_url"] == "https://hub.example.com/mcp/p/small" and entry["authorization"] == "${HUB_TOKEN}"
    assert "jobs_wait" in entry["allowed_tools"]["tool_names"] and NAMES[0] not in entry["allowed_tools"]["tool_names"]
    answer = printed(folder, "search", "--format", "anthropic", "--limit", "1", "count", "words")
    assert answer == {"content": [{"type": "tool_reference", "tool_name": "jobs_count_words"}]}
    done = hub(folder, "search", "--format", "gemini", "zzqqx")
    assert (done.returncode, done.stdout) == (1, '{"tools":[]}\n')


@pytest.mark.processes
def test_request_that_the_hub_refuses_says_why(folder: Path) -> None:
    for args, said in ((("openai-mcp",), "hub.http.public_url"), (("openai", "--tools", "nothing"), "nothing")):
        done = hub(folder, "tools", "export", *args)
        assert done.returncode == 2 and said in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["tools", "export", "claude"], "'claude' is not one of"),
        (["tools", "export"], "FORMAT"),
        (["tools", "--strict"], "--strict"),
        (["tools", "export", "mcp", "--full"], "--full"),
        (["search", "x", "--format", "openai-mcp"], "is not one of"),
        (["search"], "Missing argument 'QUERY...'"),
        (["search", "x", "--limit", "0"], "0 is not in the range 1<=x<=50"),
        (["search", "x", "--limit", "51"], "51 is not in the range 1<=x<=50"),
        (["search", "x", "--detail", "some"], "'some' is not one of"),
    ],
)
def test_options_that_do_not_fit_are_a_mistake_of_the_caller(line: list[str], said: str) -> None:
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 2 and said in done.stderr and done.stdout == ""


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
    assert rows((), capsys) == [["tool", "score", "also"]]
