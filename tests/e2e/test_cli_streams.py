"""`call --detach`, `resume`, `streams`, `cancel`: durable calls from the command line, with `--url` and `--local`."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from tests.e2e.bad_input import ALICE, TOKENS
from tests.e2e.client import Hub
from tests.e2e.cutting_proxy import cutting_proxy
from tests.e2e.rest_client import RestClient
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub
from tests.unit.cli.command import SECONDS, command_env
from tests.upstreams.child import until
from tests.upstreams.launch import entry, received

pytestmark = pytest.mark.anyio

NOBODY = "st_" + "0" * 26


@dataclass
class Place:
    """A hub, and commands that share its configuration and state."""

    hub: Hub
    root: Path

    async def run(self, *args: str, url: bool = False) -> CompletedProcess[bytes]:
        more = ["--url", self.hub.url] if url else ["--local"]
        with anyio.fail_after(SECONDS):
            return await anyio.run_process([*forked_command(), *args, *more], check=False, env=self.env, cwd=self.root)

    async def detached(self, tool: str, **arguments: object) -> str:
        """The stream of a call that nobody follows, made without a command."""
        async with RestClient(self.hub) as client:
            return await client.started(tool, arguments)

    @asynccontextmanager
    async def running(self, *args: str) -> AsyncIterator[Process]:
        with anyio.fail_after(SECONDS):
            async with await anyio.open_process([*forked_command(), *args], env=self.env, cwd=self.root) as process:
                yield process

    @property
    def env(self) -> dict[str, str]:
        return {**command_env(self.root)}


@asynccontextmanager
async def placed(root: Path, **settings: object) -> AsyncIterator[Place]:
    servers = {"jobs": {"local": "mcp_hub.examples.jobs:registry"}, "fix": entry(journal=root / "journal")}
    config = {"servers": servers, "hub": settings}
    async with http_hub(json.dumps(config), root) as hub:
        yield Place(hub, root)


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with placed(tmp_path_factory.mktemp("streams")) as running:
        yield running


def kinds(done: CompletedProcess[bytes]) -> list[str]:
    return [json.loads(line)["type"] for line in done.stdout.splitlines()]


async def first_line(process: Process) -> Any:
    assert process.stdout is not None
    return json.loads((await process.stdout.receive()).splitlines()[0])


async def ended(process: Process) -> tuple[int, str]:
    """The exit code, and all of stderr."""
    assert process.stdout is not None and process.stderr is not None
    async for _ in process.stdout:
        pass
    said = b"".join([part async for part in process.stderr])
    return await process.wait(), said.decode()


@pytest.mark.first(1)
@pytest.mark.parametrize("url", [True, False], ids=["url", "store"])
async def test_detached_call_is_followed_to_its_end(place: Place, url: bool) -> None:
    job = json.dumps({"steps": 3, "seconds": 1.5})
    begun = await place.run("call", "jobs_run_job", "--args-json", job, "--detach", url=True)
    assert (begun.returncode, begun.stderr) == (0, b"")
    stream = begun.stdout.decode().removesuffix("\n")
    done = await place.run("resume", stream, "--json", url=url)
    assert (done.returncode, done.stderr) == (0, b"")
    assert kinds(done) == ["progress", "delta"] * 3 + ["end"]
    rest = await place.run("resume", stream, "--json", "--after", "3", url=url)
    assert rest.stdout.splitlines() == done.stdout.splitlines()[2:]
    text = await place.run("resume", stream, url=url)
    steps = b"step 1 done\nstep 2 done\nstep 3 done\n"
    assert (text.returncode, text.stdout) == (0, steps + b'{"steps":3,"seconds":1.5,"status":"done"}\n')
    over = await place.run("resume", stream, "--after", "8", url=url)
    assert (over.returncode, over.stdout) == (0, b"")
    assert over.stderr.decode() == f"{stream} has ended; event 8 is its last\n"
    beyond = await place.run("resume", stream, "--after", "9", url=url)
    assert beyond.returncode == 2
    said = beyond.stderr.decode()
    assert said.startswith(f"{stream}: ") and "9" in said and said.endswith(", 8 [invalid_cursor]\n")


async def test_detached_call_says_its_stream_as_json_too(place: Place) -> None:
    done = await place.run("call", "jobs_wait", "--json", '{"seconds": 0}', "--detach", url=True)
    assert list(json.loads(done.stdout)) == ["stream"]


async def test_failure_of_a_detached_call_is_its_follower_s(place: Place) -> None:
    stream = await place.detached("fix_error", code=-5, message="no")
    for url in (True, False):
        done = await place.run("resume", stream, url=url)
        assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"error -5: no\n")
    stream = await place.detached("fix_tool_error", text="sorry")
    done = await place.run("resume", stream)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, b"sorry\n", 1)


@pytest.mark.parametrize("url", [True, False], ids=["url", "store"])
async def test_call_is_cancelled_by_its_stream(place: Place, url: bool) -> None:
    nonce = f"cancelled with url {url}"
    stream = await place.detached("fix_progress", n=100_000, delay=0.01, nonce=nonce)
    async with place.running(
        "resume", stream, "--json", *(["--url", place.hub.url] if url else ["--local"])
    ) as process:
        assert (await first_line(process))["type"] == "progress"
        done = await place.run("cancel", stream, url=url)
        assert (done.returncode, done.stdout) == (0, b"")
        assert done.stderr.decode() == f"{stream} is being cancelled\n"
        assert await ended(process) == (130, "The call was cancelled on request.\n")
    again = await place.run("cancel", stream, url=url)
    assert (again.returncode, again.stderr.decode()) == (0, f"{stream} had already ended: cancelled\n")
    calls = received(place.root / "journal", "tools/call")
    [asked] = [call["id"] for call in calls if call["params"]["arguments"].get("nonce") == nonce]

    def told() -> bool:
        notices = received(place.root / "journal", "notifications/cancelled")
        return asked in [notice["params"]["requestId"] for notice in notices]

    await until(told)


@pytest.mark.parametrize("url", [True, False], ids=["url", "store"])
@pytest.mark.first(1)
async def test_interrupt_of_a_follower_leaves_the_call_alone(place: Place, url: bool) -> None:
    stream = await place.detached("fix_progress", n=100_000, delay=0.01)
    async with place.running(
        "resume", stream, "--json", *(["--url", place.hub.url] if url else ["--local"])
    ) as process:
        await first_line(process)
        process.send_signal(signal.SIGINT)
        code, said = await ended(process)
    assert code == 130
    words, _, cursor = said.removesuffix("\n").rpartition(" ")
    place_of_hub = f" --url {place.hub.url}" if url else ""
    assert words == f"Stopped following {stream}. The call continues: mcp-hub resume {stream}{place_of_hub} --after"
    async with place.running("resume", stream, "--json", "--after", cursor) as process:
        event = await first_line(process)
        assert event["type"] == "progress"
        assert event["progress"] > 1
        await place.run("cancel", stream)
        assert (await ended(process))[0] == 130


async def test_streams_are_listed(tmp_path: Path) -> None:
    async with placed(tmp_path) as own:
        for url in (True, False):
            assert (await own.run("streams", url=url)).stdout == b"No durable calls are stored.\n"
        first = await own.detached("jobs_run_job", steps=2, seconds=0)
        await own.run("resume", first)
        second = await own.detached("jobs_wait", seconds=60)
        for url in (True, False):
            await check_list(own, first, second, url=url)


async def check_list(own: Place, first: str, second: str, *, url: bool) -> None:
    """Of one job that has ended, and one behind it that waits."""
    done = await own.run("streams", url=url)
    assert done.returncode == 0
    head, *rows = [line.split() for line in done.stdout.decode().splitlines() if "─" not in line]
    assert head == ["stream", "tool", "status", "age", "message"]
    assert [row[:3] for row in rows] == [[second, "jobs_wait", "working"], [first, "jobs_run_job", "completed"]]
    assert rows[1][5:] == ["step", "2", "done"], "its partial text is newer than its last progress message"
    [newest] = json.loads((await own.run("streams", "--json", "--limit", "1", url=url)).stdout)["streams"]
    assert {"stream": second, "status": "working", "name": "jobs_wait", "server": "jobs"}.items() <= newest.items()
    assert {"created", "updated", "first", "last"} <= newest.keys()


@pytest.mark.parametrize("url", [True, False], ids=["url", "store"])
@pytest.mark.first(1)
async def test_what_is_not_there_is_an_error_that_names_it(place: Place, url: bool) -> None:
    for command in ("resume", "cancel"):
        for stream in (NOBODY, "../x y"):
            done = await place.run(command, stream, url=url)
            assert (done.returncode, done.stdout) == (2, b"")
            said = done.stderr.decode()
            assert said.startswith(f"{stream}: ") and said.endswith(" [unknown_stream]\n")


async def test_options_that_do_not_fit_are_usage_errors(place: Place, tmp_path: Path) -> None:
    done = await place.run("call", "jobs_wait", "--detach")
    assert done.returncode == 2
    assert b"--detach" in done.stderr and b"--local" in done.stderr
    done = await place.run("resume", NOBODY, "--after", "-1")
    assert done.returncode == 2
    done = await place.run("resume", NOBODY, "--config", "x", url=True)
    assert done.returncode == 2 and b"--config" in done.stderr
    done = await place.run("call", "no_such_tool", "--detach", url=True)
    assert (done.returncode, done.stdout) == (2, b"")
    memory = tmp_path / "memory.yaml"
    memory.write_text("{servers: {}, hub: {store: {type: memory}}}")
    for command in (["streams"], ["resume", NOBODY], ["cancel", NOBODY]):
        done = await place.run(*command, "--config", str(memory))
        assert done.returncode == 2
        assert b"[store_in_memory]" in done.stderr and b"--url" in done.stderr


async def test_looking_makes_no_store(place: Place, tmp_path: Path) -> None:
    env = {**place.env, "MCP_HUB_STATE_DIR": str(tmp_path / "none")}
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process([*forked_command(), "streams"], env=env, cwd=place.root)
    assert done.stdout == b"No durable calls are stored.\n"
    assert not (tmp_path / "none").exists()


async def test_streams_of_a_token_are_not_those_of_the_machine(tmp_path: Path) -> None:
    async with placed(tmp_path, tokens=TOKENS) as own:
        done = await own.run("call", "jobs_wait", "--json", '{"seconds": 0}', "--detach", "--token", ALICE, url=True)
        stream = json.loads(done.stdout)["stream"]
        assert (await own.run("resume", stream, "--token", ALICE, url=True)).returncode == 0
        assert (await own.run("resume", stream)).returncode == 2
        assert (await own.run("streams")).stdout == b"No durable calls are stored.\n"
        refused = await own.run("streams", url=True)
        assert refused.returncode == 2
        assert b"[unauthorized]" in refused.stderr


@pytest.mark.proof
async def test_streams_outlive_their_hub(tmp_path: Path) -> None:
    async with placed(tmp_path) as own:
        done = await own.detached("jobs_run_job", steps=2, seconds=0)
        assert (await own.run("resume", done)).returncode == 0
        stopped = await own.detached("jobs_wait", seconds=600)
    for stream, code, kind in ((done, 0, "end"), (stopped, 3, "error")):
        after = await own.run("resume", stream, "--json")
        assert (after.returncode, kinds(after)[-1]) == (code, kind)


async def test_stream_that_was_trimmed_is_shown_from_where_it_is_kept(tmp_path: Path) -> None:
    async with placed(tmp_path, limits={"stream_events": 20}) as own:
        await own.run("call", "jobs_run_job", "--args-json", '{"steps": 60, "seconds": 1}', url=True)
        [row] = json.loads((await own.run("streams", "--json")).stdout)["streams"]
        assert row["first"] > 1
        for url in (True, False):
            done = await own.run("resume", row["stream"], "--json", url=url)
            assert (done.returncode, done.stderr.decode()) == (
                0,
                f"events 1 to {row['first'] - 1} are no longer kept\n",
            )
            assert len(kinds(done)) == row["last"] - row["first"] + 1
            gone = await own.run("resume", row["stream"], "--after", "1", url=url)
            assert (gone.returncode, gone.stdout) == (2, b"")
            said = gone.stderr.decode()
            assert said.startswith(f"{row['stream']}: ") and said.endswith(f" {row['first']}. [events_gone]\n")


@pytest.mark.first(1)
@pytest.mark.parametrize("command", ["resume", "cancel"])
async def test_call_of_a_hub_that_was_killed_is_given_its_ending(tmp_path: Path, command: str) -> None:
    async with placed(tmp_path) as own:
        stream = await own.detached("jobs_wait", seconds=600)
        await own.hub.kill_alone()
        done = await own.run(command, stream)
        if command == "cancel":
            assert (done.returncode, done.stderr.decode()) == (0, f"{stream} had already ended: failed\n")
            done = await own.run("resume", stream)
        assert done.returncode == 3 and b"[hub_restarted]" in done.stderr
        again = await own.run("resume", stream, "--json")
        assert kinds(again) == ["log", "error"]


@pytest.mark.proof
async def test_follower_in_the_store_sees_its_hub_go(tmp_path: Path) -> None:
    async with placed(tmp_path) as own:
        stream = await own.detached("jobs_run_job", steps=1000, seconds=100)
        async with own.running("resume", stream, "--json", "--local") as process:
            await first_line(process)
            await own.hub.kill_alone()
            assert process.stdout is not None
            seen = b"".join([part async for part in process.stdout])
            assert await process.wait() == 3
        assert json.loads(seen.splitlines()[-1])["code"] == 1006


# -- call --url


async def through(place: Place, cuts: list[int], *args: str) -> tuple[CompletedProcess[bytes], list[int]]:
    """One run of a command over connections that are cut there, and how many bytes each of them brought."""
    with anyio.fail_after(SECONDS):
        async with cutting_proxy(place.hub.url, iter(cuts)) as proxy:
            command = [*forked_command(), *args, "--url", proxy.url]
            done = await anyio.run_process(command, check=False, env=place.env, cwd=place.root)
    return done, proxy.passed


async def test_call_survives_cuts_of_its_connection(place: Place) -> None:
    job = ["call", "jobs_run_job", "--args-json", '{"steps": 20, "seconds": 2}', "--json", "--verbose"]
    done, passed = await through(place, [700, 0, 900, 1500], *job)
    assert done.returncode == 0
    stream = done.stderr.decode().removeprefix("stream ").removesuffix("\n")
    assert done.stdout == (await place.run("resume", stream, "--json")).stdout
    assert done.stdout.count(b" done\\n") == 20
    assert kinds(done)[-1] == "end"
    assert passed[:4] == [700, 0, 900, 1500]
    assert len(passed) == 5


@pytest.mark.proof
async def test_verbose_call_names_its_stream(place: Place) -> None:
    there = await place.run("call", "jobs_run_job", "--json", '{"steps": 1, "seconds": 0}', "-v", url=True)
    [line] = there.stderr.decode().splitlines()
    assert (await place.run("resume", line.removeprefix("stream "), "--json")).stdout == there.stdout
    own = await place.run("call", "jobs_run_job", "--json", '{"steps": 1, "seconds": 0.5}', "-v")
    [stream] = [line.removeprefix("stream ") for line in own.stderr.decode().splitlines() if line.startswith("stream ")]
    assert (await place.run("resume", stream, "--json")).stdout == own.stdout


@pytest.mark.parametrize("url", [True, False])
async def test_question_to_a_command_is_declined_at_once(place: Place, url: bool) -> None:
    done = await place.run("call", "fix_ask_form", "--json", "{}", url=url)
    assert done.stderr.decode().startswith("declined what the tool asks: elicitation/create (the user cannot be")
    assert kinds(done)[:2] == ["input-required", "input-received"]
    assert "-32601" in done.stdout.decode()
