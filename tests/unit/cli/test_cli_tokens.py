"""How `mcp-hub tokens` looks, and what it takes."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mcp_hub.cli import main
from mcp_hub.cli.commands.tools import print_account
from mcp_hub.protocol.rest.tokens import ModeTokens, ServerTokens, TokenAccount, Tokens, ToolTokens
from tests.unit.cli.command import hub

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


def test_the_list_of_clients_that_show_apps_is_named_where_it_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    head, second, *_ = shown(capsys, apps=ModeTokens("auto", "search", 5, 400))
    assert " ".join(second) == "Where it shows apps, its model gets 5 tools (400 tokens)."


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


def test_one_server_has_no_sum_and_no_tools_no_tables(capsys: pytest.CaptureFixture[str]) -> None:
    own = shown(capsys, servers=(ServerTokens("git", 1, LONG),), heaviest=())
    assert not [row for row in own if row[0] in ("together", "heaviest")]
    print_account(account(servers=(), tools=(), heaviest=()))
    assert capsys.readouterr().err == "no tools\n"


def test_what_is_listed_now_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    one, deferred, *_ = shown(capsys, client="code", defers=True, current=ModeTokens("full", "full", 1, 1))
    assert " ".join(one) == "code gets 1 tool: 1 token in each session (full)"
    assert " ".join(deferred) == "These clients show their model a definition only when it is asked for."


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
