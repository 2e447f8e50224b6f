"""`mcp-hub tools export` and `search --format`, as they are really run."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mcp_hub.cli import main
from tests.unit.cli.command import JOBS, hub

NAMES = ["jobs_run_job", "jobs_count_words", "jobs_wait"]


processes = pytest.mark.processes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    settings = {"servers": {"jobs": JOBS}, "profiles": {"small": {"tools": {"allow": ["jobs_wait"]}}}}
    (tmp_path / "servers.yaml").write_text(json.dumps({**settings, "hub": {"expose": "full"}}))
    return tmp_path


def printed(folder: Path, *args: str) -> Any:
    done = hub(folder, *args)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


@processes
def test_tools_are_printed_in_the_format(folder: Path) -> None:
    tools = printed(folder, "tools", "export", "anthropic", "--defer", "--strict")["tools"]
    assert [tool["name"] for tool in tools] == ["find_tools", *NAMES]
    assert all(tool["strict"] and tool["defer_loading"] for tool in tools[1:])
    chosen = printed(folder, "tools", "export", "openai", "--tools", "jobs_wait,jobs_run_job", "--server", "jobs")
    assert [tool["function"]["name"] for tool in chosen["tools"]] == [NAMES[0], NAMES[2]]
    (space,) = printed(folder, "tools", "export", "openai-responses", "--group")["tools"]
    assert space["name"] == "jobs" and [tool["name"] for tool in space["tools"]] == NAMES


@processes
def test_connector_of_a_profile_is_printed(folder: Path) -> None:
    line = ("tools", "export", "openai-mcp", "--public-url", "https://hub.example.com", "--profile", "small")
    (entry,) = printed(folder, *line)["tools"]
    assert entry["server_url"] == "https://hub.example.com/mcp/p/small" and entry["authorization"] == "${HUB_TOKEN}"
    assert "jobs_wait" in entry["allowed_tools"]["tool_names"] and NAMES[0] not in entry["allowed_tools"]["tool_names"]


@processes
def test_request_that_the_hub_refuses_says_why(folder: Path) -> None:
    for args, said in ((("openai-mcp",), "hub.http.public_url"), (("openai", "--tools", "nothing"), "nothing")):
        done = hub(folder, "tools", "export", *args)
        assert done.returncode == 2 and said in done.stderr and done.stdout == ""


@processes
def test_search_is_printed_in_the_format(folder: Path) -> None:
    answer = printed(folder, "search", "--format", "anthropic", "--limit", "1", "count", "words")
    assert answer == {"content": [{"type": "tool_reference", "tool_name": "jobs_count_words"}]}
    done = hub(folder, "search", "--format", "gemini", "zzqqx")
    assert (done.returncode, done.stdout) == (1, '{"tools":[]}\n')


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["tools", "export", "claude"], "'claude' is not one of"),
        (["tools", "export"], "FORMAT"),
        (["tools", "--strict"], "--strict"),
        (["tools", "export", "mcp", "--full"], "--full"),
        (["search", "x", "--format", "openai-mcp"], "is not one of"),
    ],
)
def test_options_that_do_not_fit_are_a_mistake_of_the_caller(line: list[str], said: str) -> None:
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 2 and said in done.stderr and done.stdout == ""
