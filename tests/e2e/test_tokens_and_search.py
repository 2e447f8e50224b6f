"""`tokens` and `search` as they are really run: the account of a running hub, and what its model would read."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.client import HttpClient, Hub
from tests.e2e.terminal import terminal
from tests.interaction.fronts import http_hub
from tests.unit.cli.command import JOBS, hub
from tests.upstreams.launch import entry

pytestmark = pytest.mark.anyio

PROFILES = {"few": {"tools": {"allow": ["jobs_*"]}}}


def configure(folder: Path, **servers: dict[str, Any]) -> str:
    text = json.dumps({"servers": servers, "profiles": PROFILES})
    (folder / "servers.yaml").write_text(text)
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration of Python functions and a real child process."""
    made = tmp_path_factory.mktemp("tokens")
    configure(made, jobs=JOBS, good=entry())
    return made


@pytest.fixture(scope="module")
async def running(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    async with http_hub(
        (folder / "servers.yaml").read_text(), tmp_path_factory.mktemp("hub"), relays_all=False
    ) as started:
        yield started


async def asked(running: Hub, path: str, body: object = None) -> Any:
    async with httpx2.AsyncClient(trust_env=False, timeout=240, verify=False) as http:
        url = running.url.removesuffix("/mcp") + path
        response = await (http.get(url) if body is None else http.post(url, json=body))
        assert response.status_code == 200, response.text
        return response.json()


@pytest.mark.parametrize("options", [{}, {"client": "claude-code", "profile": "few"}], ids=["all", "narrow"])
async def test_account_of_the_command_is_that_of_a_running_hub(
    folder: Path, running: Hub, options: dict[str, str]
) -> None:
    line = [word for name, value in options.items() for word in (f"--{name}", value)]
    done = hub(folder, "tokens", "--json", *line)
    assert (done.returncode, done.stderr) == (0, "")
    query = "&".join(f"{name}={value}" for name, value in options.items())
    assert json.loads(done.stdout) == await asked(running, f"/v1/tokens?{query}")


def test_tables_have_every_mode_every_server_and_as_many_tools_as_are_asked_for(folder: Path) -> None:
    done = hub(folder, "tokens", "--top", "2")
    assert (done.returncode, done.stderr) == (0, "")
    firsts = [line.split()[0] for line in done.stdout.splitlines() if line and "─" not in line]
    assert firsts[:10] == ["A", "The", "expose", "full", "search", "names", "auto", "These", "server", "jobs"]
    assert firsts[10:13] == ["good", "together", "heaviest"] and len(firsts) == 15
    own = hub(folder, "tokens", "--server", "good").stdout.partition("heaviest")[2].splitlines()[2:]
    assert len(own) > 10 and all(line.startswith("good_") for line in own), "all of its tools, and no others"


def test_a_server_that_is_not_ready_is_named_and_makes_3(tmp_path: Path) -> None:
    configure(tmp_path, jobs=JOBS, gone={"command": "no-such-program-anywhere"})
    done = hub(tmp_path, "tokens")
    assert done.returncode == 3 and "jobs" in done.stdout
    assert "gone has failed: " in done.stderr and "no-such-program-anywhere" in done.stderr
    nothing = hub(tmp_path, "search", "zebra")
    assert nothing.returncode == 3 and "gone has failed" in nothing.stderr


async def told(running: Hub, **arguments: object) -> str:
    """What `find_tools` tells a model."""
    async with HttpClient(running.url) as client:
        await client.initialize()
        answer = await client.request("tools/call", {"name": "find_tools", "arguments": arguments})
    return str(answer.last["result"]["content"][0]["text"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "echo a text", "limit": 3, "detail": "full"},
        {"query": "wait", "server": "jobs"},
        {"query": "jobs_wait"},
        {"query": "wait " * 2000},
        {"query": "the of and a"},
        {"query": "等待任务完成"},
        {"query": "\U0001f9ea\u202e zebra"},
    ],
    ids=["full", "server", "name", "long", "stop words", "chinese", "odd"],
)
@pytest.mark.first(3)
async def test_search_prints_what_find_tools_tells_a_model(
    folder: Path, running: Hub, arguments: dict[str, Any]
) -> None:
    given = {"detail": "brief", **arguments}
    line = [word for name in ("server", "limit", "detail") if name in given for word in (f"--{name}", given[name])]
    done = hub(folder, "search", *map(str, line), "--", arguments["query"])
    text = await told(running, **arguments)
    assert done.stdout == text + "\n"
    assert done.returncode == text.startswith("No tool fits")
    cost, _, hits = done.stderr.removesuffix("\n").partition(" tokens, ")
    assert int(cost) > 0 and hits.endswith(("hit", "hits")) and hits.startswith("0") == (done.returncode == 1)


def test_search_shows_one_line_a_hit_and_full_the_rest(folder: Path) -> None:
    lines = hub(folder, "search", "run a job").stdout.splitlines()
    assert lines[0].startswith("jobs_run_job(steps?:int") and not any(line.startswith(" ") for line in lines)
    full = hub(folder, "search", "run a job", "--full", "--limit", "1").stdout.splitlines()
    assert full[0] == "jobs_run_job (jobs)" and "  Run a simulated job that reports each step while it works." in full
    assert "    steps?:int: into how many steps the job is divided" in full
    with terminal(folder, "search", "run a job") as person:
        assert person.end() == 0
        shown = [line for line in person.text.splitlines() if "(" in line and ":" in line]
        assert shown and all(len(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line)) <= 100 for line in shown)


def test_search_as_json_has_the_answer_its_cost_and_the_hits(folder: Path) -> None:
    done = hub(folder, "search", "--json", "count words", "--limit", "2")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["query"] == "count words" and found["answer"].startswith("jobs_count_words(text:str)")
    assert found["tokens"] > 0 and found["weak"] is False
    assert found["hits"][0]["id"] == "jobs_count_words" and len(found["hits"]) <= 2
    assert set(found["hits"][0]) == {"id", "score", "also", "parts", "weak"}
    (exact,) = json.loads(hub(folder, "search", "--json", "jobs_wait", "--server", "good").stdout)["hits"]
    assert exact["id"] == "jobs_wait"


def test_a_profile_s_search_knows_its_tools_only(folder: Path) -> None:
    others = hub(folder, "search", "--profile", "few", "echo")
    assert others.returncode == 1 and others.stdout == "No tool fits. Servers: jobs (3).\n"
    hidden = hub(folder, "search", "--profile", "few", "echo", "--server", "good")
    assert (hidden.returncode, hidden.stdout) == (1, "find_tools: There is no server 'good'. Servers: jobs.\n")


def test_a_query_that_is_no_text_is_searched_for_all_the_same(folder: Path) -> None:
    done = hub(folder, "search", "wait \udcff\udcfe")
    assert done.returncode == 0 and "jobs_wait(" in done.stdout and "Traceback" not in done.stderr
