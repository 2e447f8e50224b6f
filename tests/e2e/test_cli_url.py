"""`list`, `tools` and `call` with `--url`: the same command, the same results, against a hub that runs already."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.bad_input import ALICE, TOKENS
from tests.e2e.client import Hub
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub
from tests.unit.cli.command import SECONDS
from tests.upstreams.child import until
from tests.upstreams.launch import entry, received

pytestmark = pytest.mark.anyio

REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
WRONG = {"type": "object", "properties": {"region": {"type": "number", "x-mcp-header": "Region"}}}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "journal"


@pytest.fixture(scope="module")
async def hub(journal: Path) -> AsyncIterator[Hub]:
    """Wants a token; what reaches its server `fix` is in the journal."""
    odd = [{"name": "in", "inputSchema": REGION}, {"name": "unfit", "inputSchema": WRONG}]
    (journal.parent / "tools.json").write_text(json.dumps(odd))
    servers: dict[str, Any] = {
        "fix": entry(journal=journal),
        "own": entry(tools_json=journal.parent / "tools.json"),
        "doomed": entry(),
        "jobs": {"local": "mcp_hub.examples.jobs:registry"},
    }
    (journal.parent / "own.yaml").write_text(json.dumps({"servers": servers}))
    config = {"servers": servers, "hub": {"tokens": TOKENS}}
    async with http_hub(json.dumps(config), journal.parent) as running:
        with anyio.fail_after(SECONDS):  # a tool of a server that still starts has no schema yet
            while b'"fix_echo"' not in (await run("tools", "--json", "--url", running.url)).stdout:  # noqa: ASYNC110
                await anyio.sleep(0.1)
        yield running


@pytest.fixture(params=["with url", "without"])
def where(request: pytest.FixtureRequest, hub: Hub, journal: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of a command that asks this hub, or one of its own with the same servers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(journal.parent / "state of commands"))
    return ["--url", hub.url] if request.param == "with url" else ["-c", str(journal.parent / "own.yaml")]


def environment(token: str | None) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MCP_HUB_")}
    proxy = {"HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"}  # must not matter
    return {**env, **proxy, **({} if token is None else {"MCP_HUB_TOKEN": token})}


async def run(*args: str, token: str | None = ALICE) -> subprocess.CompletedProcess[bytes]:
    """One run of the command, without any configuration."""
    with anyio.fail_after(SECONDS):
        return await anyio.run_process([*forked_command(), *args], check=False, env=environment(token), cwd="/")


def lines(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("ending", ["", "/mcp"])
async def test_tools_are_those_of_the_hub(hub: Hub, ending: str) -> None:
    done = await run("tools", "--json", "--url", hub.url.removesuffix("/mcp") + ending)
    assert done.returncode == 0, done.stderr
    listed = {tool["name"]: tool for tool in json.loads(done.stdout)}
    assert {"fix_echo", "own_in", "jobs_wait"} <= set(listed)
    assert listed["own_in"]["inputSchema"] == REGION


@pytest.mark.first(1)
async def test_pipe_gets_the_result_and_nothing_else(where: list[str]) -> None:
    done = await run("call", "fix_echo", "--arg", "text=5", *where)
    assert (done.returncode, done.stdout, done.stderr) == (0, b'{"text": "5"}\n', b"")
    done = await run("call", "fix_echo", "--json", '{"text": "a"}', "--output", "json", *where)
    assert "resultType" not in json.loads(done.stdout)


@pytest.mark.first(1)
async def test_arguments_follow_the_name_and_are_checked_by_the_tools_schema(where: list[str]) -> None:
    done = await run("call", "fix_echo", "text=5", "nonce=a=b", *where)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"text": "5", "nonce": "a=b"})
    done = await run("call", "fix_echo", "txt=5", *where)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b'"txt". Did you mean "text"?' in done.stderr and b"[unknown_parameter]" in done.stderr
    done = await run("call", "fix_echo", *where)
    assert done.returncode == 2 and b"fix_echo needs text=" in done.stderr
    assert (await run("call", "fix_echo", "--json", '{"txt": 5}', *where)).returncode == 0


@pytest.mark.first(1)
async def test_progress_content_and_logs_come_as_json_lines(where: list[str]) -> None:
    done = await run("call", "fix_progress", "--arg", "n=3", "--json", *where)
    assert done.returncode == 0
    *progress, result = lines(done)
    assert progress == [
        {"type": "progress", "seq": n + 1, "progress": n, "total": 3, "message": str(n)} for n in (1, 2, 3)
    ]
    assert (result["type"], result["outcome"]) == ("end", "ok")
    assert result["result"]["content"][0]["text"] == '{"n": 3, "nonce": ""}'
    job = lines(await run("call", "--json", "jobs_run_job", "--arg", "steps=2", "--arg", "seconds=0", *where))
    assert [line["type"] for line in job] == ["progress", "delta", "progress", "delta", "end"]
    assert job[1]["content"] == [{"type": "text", "text": "step 1 done\n"}]
    [log, _] = lines(await run("call", "jobs_wait", "--json", '{"seconds": 0}', *where))
    assert log == {"type": "log", "seq": 2, "level": "info", "data": {"waiting_seconds": 0.0}}


async def test_arguments_travel_in_the_headers_that_the_tool_wants(hub: Hub) -> None:
    done = await run("call", "own_in", "--arg", "region=ü", "--url", hub.url)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"region": "ü"})


@pytest.mark.first(1)
async def test_errors_of_a_tool_end_with_1(where: list[str]) -> None:
    done = await run("call", "fix_tool_error", "--arg", "text=sorry", *where)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"sorry\n", b"The tool reported an error.\n")
    failed = ["call", "fix_error", "--arg", "code=-5", "--arg", "message=no", *where]
    done = await run(*failed)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"error -5: no\n")
    assert lines(await run(*failed, "--json")) == [{"type": "error", "seq": 2, "code": -5, "message": "no"}]
    done = await run("call", "fix_error", "--arg", "code=-32602", "--arg", "message=no", *where)
    assert (done.returncode, done.stderr) == (1, b"error -32602: no\n")


@pytest.mark.first(1)
async def test_unknown_tool_ends_with_2_and_names_the_nearest(where: list[str]) -> None:
    done = await run("call", "fix_ecko", *where)
    assert done.returncode == 2
    assert done.stderr.startswith(b"Unknown tool: fix_ecko. Did you mean fix_echo")


@pytest.mark.first(1)
async def test_server_that_dies_ends_with_3(where: list[str]) -> None:
    done = await run("call", "doomed_crash", "--json", *where)
    assert done.returncode == 3
    assert [line["code"] for line in lines(done)] == [1002]


@pytest.mark.parametrize("command", [["tools"], ["call", "fix_echo", "--json"]])
async def test_token_is_wanted_and_is_taken_from_option_or_environment(hub: Hub, command: list[str]) -> None:
    for token in (None, "", "wrong-token"):
        done = await run(*command, "--url", hub.url, token=token)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"--token" in done.stderr and b"[unauthorized]" in done.stderr
        assert b"wrong-token" not in done.stderr
    if command == ["tools"]:
        done = await run(*command, "--url", hub.url, "--token", ALICE, token="wrong-token")
        assert b"fix_echo" in done.stdout and b"[unauthorized]" not in done.stderr, "a server may have died before"


async def test_hub_that_does_not_run_ends_with_3_and_says_how_to_start_one(free_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{free_tcp_port}"
    for command in (["tools"], ["list"], ["call", "fix_echo"], ["reload"], ["restart", "fix"]):
        done = await run(*command, "--url", url)
        assert (done.returncode, done.stdout) == (3, b"")
        assert done.stderr.startswith(f"No hub answers at {url}/mcp (".encode())
        assert b"mcp-hub serve --http" in done.stderr


async def test_list_is_of_the_servers_of_the_hub(hub: Hub) -> None:
    done = await run("list", "--json", "--url", hub.url)
    servers = {own["server"]: own for own in json.loads(done.stdout)["servers"]}
    assert {"fix", "own", "doomed", "jobs"} <= set(servers)
    jobs = servers["jobs"]
    assert (jobs["state"], jobs["era"], jobs["tools"], jobs["prompts"]) == ("ready", "handshake", 3, 0)
    assert servers["fix"]["pid"] > 0 and servers["fix"]["listedAt"] is not None
    done = await run("list", "--url", hub.url)
    rows = {line.split()[0]: line.split() for line in done.stdout.decode().splitlines()}
    assert rows["jobs"] == ["jobs", "ready", "handshake", "3", "0", "0"]
    fix = servers["fix"]
    assert rows["fix"][:4] == ["fix", "ready", fix["version"], f"({fix['era']})"]


async def test_list_of_a_hub_says_why_a_server_is_down_and_ends_with_3(tmp_path: Path) -> None:
    servers = {"jobs": {"local": "mcp_hub.examples.jobs:registry"}, "gone": {"command": "no-such-program -x"}}
    async with http_hub(json.dumps({"servers": servers}), tmp_path) as running:
        listed = await run("list", "--url", running.url, token=None)
        tools = [await run("tools", "--server", name, "--url", running.url, token=None) for name in ("gone", "gon")]
        called = [await run("call", name, "--url", running.url, token=None) for name in ("gone_x", "none_x")]
    assert [done.returncode for done in called] == [3, 2], called
    assert listed.returncode == 3
    assert b'gone has failed: command not found: no-such-program -x. "command" is the program alone' in listed.stdout
    assert [done.returncode for done in tools] == [3, 2]
    assert b"gone has failed: command not found" in tools[0].stderr
    assert b'no server "gon". Did you mean "gone"?' in tools[1].stderr


async def test_tools_of_one_server_of_the_hub(hub: Hub) -> None:
    done = await run("tools", "--server", "own", "--url", hub.url)
    assert [line.split()[:2] for line in done.stdout.splitlines()][2:] == [[b"own_in", b"own"], [b"own_unfit", b"own"]]
    done = await run("tools", "--server", "jobs", "--json", "--url", hub.url)
    assert {tool["name"] for tool in json.loads(done.stdout)} == {"jobs_run_job", "jobs_count_words", "jobs_wait"}
    assert (done.returncode, done.stderr) == (0, b"")


async def test_file_is_not_used_for_another_hub(hub: Hub) -> None:
    done = await run("tools", "--config", "x", "--url", hub.url)
    assert (done.returncode, done.stderr) == (0, b"Note: --config is not used with --url: the hub there has its own.\n")


async def test_options_about_own_servers_are_refused(hub: Hub) -> None:
    done = await run("tools", "--wait", "5", "--url", hub.url)
    assert done.returncode == 2
    assert b"--wait is about servers that the command starts itself" in done.stderr
    done = await run("tools", "--token", ALICE)
    assert (done.returncode, b"--token belongs to --url" in done.stderr) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupt_cancels_the_call_upstream(hub: Hub, journal: Path, number: signal.Signals) -> None:
    nonce = f"by {number.name}"
    arguments = json.dumps({"n": 100_000, "delay": 0.01, "nonce": nonce})
    command = [*forked_command(), "call", "fix_progress", "--json", arguments, "--url", hub.url]
    with anyio.fail_after(SECONDS):
        async with await anyio.open_process(command, env=environment(ALICE)) as process:
            assert process.stdout is not None
            first = json.loads((await process.stdout.receive()).splitlines()[0])
            assert first == {"type": "progress", "seq": 2, "progress": 1, "total": 100_000, "message": f"{nonce} 1"}
            process.send_signal(number)
            async for _ in process.stdout:
                pass
            assert await process.wait() == 130
            assert process.stderr is not None
            said = b"".join([part async for part in process.stderr]).decode()
            assert said.startswith("cancelled (stream st_") and len(said.splitlines()) == 1
    [asked] = [call for call in received(journal, "tools/call") if call["params"]["arguments"].get("nonce") == nonce]
    await until(lambda: asked["id"] in [c["params"]["requestId"] for c in received(journal, "notifications/cancelled")])


async def test_hub_that_stops_answers_the_call_first(tmp_path: Path) -> None:
    servers = {"jobs": {"local": "mcp_hub.examples.jobs:registry"}}
    async with http_hub(json.dumps({"servers": servers}), tmp_path) as running:
        job = ["jobs_run_job", "--json", '{"steps": 100, "seconds": 600}', "--url", running.url]
        command = [*forked_command(), "call", *job]
        with anyio.fail_after(SECONDS):
            async with await anyio.open_process(command, env=environment(None)) as process:
                assert process.stdout is not None
                seen = await process.stdout.receive()
                running.send_signal(signal.SIGTERM)
                async for part in process.stdout:
                    seen += part
                assert await process.wait() == 3
    last = json.loads(seen.splitlines()[-1])
    assert (last["type"], last["code"]) == ("error", 1005)
