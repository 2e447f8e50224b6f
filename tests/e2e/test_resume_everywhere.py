"""A job of ten minutes whose client is gone somewhere in the middle, read on from there by whoever has its id."""

import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.three_hubs import STEPS, Fleet, Job, config, ending, fleet, said, whole
from tests.e2e.ways_to_read import Shown, Way, check_rest, every_way, wander
from tests.e2e.ways_to_start import ENDS, GOES_ON, TAKES, Begun, Start, asked_over_stdio, modern_http, over_stdio
from tests.interaction.fronts import http_hub
from tests.upstreams.child import HttpUpstream
from tests.upstreams.launch import received
from tests.upstreams.messages import Message, modern

pytestmark = pytest.mark.anyio

TEXT = "".join(f"{step}\n" for step in range(1, STEPS + 1))
SEEDS = range(2)
RESTARTED = 1006
ANSWER = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture(scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with fleet(tmp_path_factory.mktemp("fleet"), config()) as running:
        yield running


async def resumed(hubs: Fleet, start: Start, name: str, *, goes_on: bool = True) -> tuple[Job, Begun, list[bytes]]:
    """The job, its client's share, and the whole stream, which everybody who read the rest agrees with."""
    chance = random.Random(name)
    job = hubs.job(name.replace(" ", "-"), hold=chance.randint(20, STEPS // 2))
    async with start(hubs, job, chance.randint(1, job.hold - 1)) as begun, every_way(hubs) as ways:
        if goes_on:
            job.go()
        mixed = [way for way in ways if not way.is_whole]
        rest = await together(begun, [*begun.own, *ways], chance)
        rest.append((mixed[0], await wander(mixed, begun.stream, begun.cursor, chance)))
        lines = await whole(hubs.b, begun.stream)
        assert lines == await whole(hubs.a, begun.stream)
        check_share(begun, lines)
        for way, shown in rest:
            check_rest(shown, lines, begun.cursor, way.shows)
    return job, begun, lines


async def together(begun: Begun, ways: list[Way], chance: random.Random) -> list[tuple[Way, list[Shown]]]:
    """What each of these ways brings, all at once."""
    rest: list[tuple[Way, list[Shown]]] = []

    async def read(way: Way, seed: int) -> None:
        rest.append((way, await wander(way, begun.stream, begun.cursor, random.Random(seed))))

    async with anyio.create_task_group() as tasks:
        for way in ways:
            tasks.start_soon(read, way, chance.randrange(10**6))
    return rest


def check_share(begun: Begun, lines: list[bytes]) -> None:
    """What the client saw before it was gone is what is stored; the start is only shown where stored lines are."""
    assert 0 < begun.cursor < len(lines)
    check_rest(begun.shown, lines[: begun.cursor], 0 if isinstance(begun.shown[0], bytes) else 1, begun.shows)


async def each_seed(one: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    async with anyio.create_task_group() as tasks:
        for seed in SEEDS:
            tasks.start_soon(one, seed)


@pytest.mark.first(1)
@pytest.mark.parametrize("name", GOES_ON)
async def test_job_that_continues_is_read_on_to_its_result(hubs: Fleet, name: str) -> None:
    async def one(seed: int) -> None:
        job, begun, lines = await resumed(hubs, GOES_ON[name], f"{name} {seed}")
        end = ending(lines)
        assert (end["outcome"], end["result"]["isError"]) == ("ok", False)
        assert json.loads(end["result"]["content"][0]["text"]) == job.result
        assert said(lines) == TEXT
        task = await task_of(hubs, begun.stream)
        mark = task["result"].pop("_meta").popitem()[1]
        assert mark == {"stream": begun.stream, "cursor": str(len(lines)), "status": "completed"}
        assert (task["status"], task["result"]) == ("completed", {**end["result"], "resultType": "complete"})

    await each_seed(one)


async def task_of(hubs: Fleet, stream: str) -> Message:
    """What each hub answers to `tasks/get`."""
    params = modern({"taskId": stream}, capabilities=TAKES)
    answers = [await hubs.c.request("tasks/get", params)]
    for hub in (hubs.a, hubs.b):
        async with HttpClient(hub.url) as client:
            answers.append((await client.request("tasks/get", params)).last)
    assert answers[0]["result"] == answers[1]["result"] == answers[2]["result"]
    task: Message = answers[0]["result"]
    return task


async def test_call_that_is_no_task_is_cancelled_with_its_connection_and_so_the_rest_ends(hubs: Fleet) -> None:
    async def one(seed: int) -> None:
        _, begun, lines = await resumed(hubs, modern_http, f"modern {seed}", goes_on=False)
        assert ending(lines)["outcome"] == "cancelled" and TEXT.startswith(said(lines))
        assert (await task_of(hubs, begun.stream))["status"] == "cancelled"

    await each_seed(one)


STDIO = {
    "handshake, client killed": (over_stdio("killed", is_modern=False), "hub_stopped"),
    "modern, client closes": (over_stdio("closed", is_modern=True), "hub_stopped"),
    "modern, hub killed": (over_stdio("hub killed", is_modern=True), "hub_restarted"),
}


@pytest.mark.first(1)
@pytest.mark.parametrize("name", STDIO)
async def test_rest_of_a_job_over_stdio_says_what_became_of_its_hub(hubs: Fleet, name: str) -> None:
    start, code = STDIO[name]

    async def one(seed: int) -> None:
        _, begun, lines = await resumed(hubs, start, f"stdio {name} {seed}", goes_on=False)
        error = ending(lines)
        assert (error["code"], error["outcome"]) == (code, "unknown") and TEXT.startswith(said(lines))
        task = await task_of(hubs, begun.stream)
        assert (task["status"], task["error"]["code"]) == ("failed", error["jsonrpc"]["code"])

    await each_seed(one)


# -- a hub over HTTP that is killed, and work that is not the hub's own


def far(upstream: HttpUpstream) -> dict[str, Any]:
    return {"far": {"url": upstream.url, "per_tool": {"task_asks": {"task": "always"}}}}


async def answered(hub: Hub, stream: str) -> Message:
    """What the call came to once the hub has told it the answer to its open question."""
    async with RestClient(hub) as client:
        (question,) = (await client.until(stream, "input_required"))["questions"]
        told = await client.ask("POST", f"/streams/{stream}/input", {"key": question["key"], **ANSWER})
        assert told.status_code == 202, told.text
        result: Message = (await client.until(stream, "completed", "failed", "cancelled"))["result"]
        return result


@pytest.mark.proof
async def test_task_of_a_server_outlives_a_hub_that_stops(tmp_path: Path) -> None:
    """Whoever has called it, and however that one is to be asked."""
    journal = tmp_path / "journal"
    ask: Message = {"name": "task_asks", "arguments": {"nonce": "n"}}
    async with (
        HttpUpstream("--tasks-extension", era="modern", journal=journal) as upstream,
        fleet(tmp_path, config(far(upstream))) as hubs,
        HttpClient(hubs.a.url) as client,
        RestClient(hubs.a) as rest,
    ):
        asking = [await rest.started("task_asks", ask["arguments"])]
        created = await client.request("tools/call", modern(ask, capabilities=TAKES))
        asking.append(created.last["result"]["taskId"])
        await client.initialize(capabilities={"elicitation": {}})
        async with client.stream(client.message("tools/call", ask)) as stream:
            await stream.wait_for(lambda message: message.get("method") == "elicitation/create")
            asking.append(str(stream.last_id).partition(":")[0])
            for one in asking:
                await rest.until(one, "input_required")
            assert await hubs.a.terminate() == 0
        for one in asking:
            result = await answered(hubs.b, one)
            assert result["structuredContent"]["answers"]["form"]["result"] == ANSWER
            await whole(hubs.b, one)
        assert len(received(journal, "tools/call")) == 3 and not received(journal, "tasks/cancel")


async def test_jobs_of_a_killed_hub_end_once_and_the_task_of_a_server_continues(tmp_path: Path) -> None:
    chance = random.Random("kill")
    journal, text = tmp_path / "journal", ""
    async with (
        HttpUpstream("--tasks-extension", era="modern", journal=journal) as upstream,
        fleet(tmp_path, text := config(far(upstream))) as hubs,
        AsyncExitStack() as stack,
    ):
        jobs = [(hubs.job(name.replace(" ", "-"), STEPS), start) for name, start in GOES_ON.items()]
        begun = [await stack.enter_async_context(start(hubs, job, chance.randint(1, 200))) for job, start in jobs]
        async with RestClient(hubs.a) as client:
            asking = await client.started("task_asks", {"nonce": "n"})
            await client.until(asking, "input_required")
        _, *ways = await stack.enter_async_context(every_way(hubs))
        rest: list[tuple[Begun, list[tuple[Way, list[Shown]]]]] = []

        async def read(one: Begun, seed: int) -> None:
            rest.append((one, await together(one, ways, random.Random(seed))))

        async with anyio.create_task_group() as tasks:
            for one in [*begun, Begun(asking, [])]:
                tasks.start_soon(read, one, chance.randrange(10**6))
            await hubs.a.kill_alone()
            result = await answered(hubs.b, asking)
        assert result["structuredContent"]["answers"]["form"]["result"] == ANSWER
        for one, share in rest:
            lines = await whole(hubs.b, one.stream)
            for way, shown in share:
                check_rest(shown, lines, one.cursor, way.shows)
            if one.stream != asking:
                check_share(one, lines)
                assert (ending(lines)["code"], ending(lines)["outcome"]) == ("hub_restarted", "unknown")
        assert len(received(journal, "tools/call")) == 1 and not received(journal, "tasks/cancel")
        async with http_hub(text, tmp_path) as again:
            assert await whole(again, asking) == await whole(hubs.b, asking)
            (back,) = [one for one in begun if one.client is not None]
            assert back.client is not None
            back.client.url = again.url
            (own,) = back.own
            lines = await whole(again, back.stream)
            check_rest(await wander(own, back.stream, back.cursor, chance), lines, back.cursor, own.shows)
            assert ending(lines)["jsonrpc"]["code"] == RESTARTED


@pytest.mark.first(1)
@pytest.mark.parametrize("end", ENDS)
async def test_task_of_a_server_outlives_the_hub_of_a_stdio_client(tmp_path: Path, end: str) -> None:
    journal = tmp_path / "journal"
    async with (
        HttpUpstream("--tasks-extension", era="modern", journal=journal) as upstream,
        fleet(tmp_path, config(far(upstream))) as hubs,
        asked_over_stdio(hubs, end) as begun,
    ):
        result = await answered(hubs.b, begun.stream)
        assert result["structuredContent"]["answers"]["form"]["result"] == ANSWER
        lines = await whole(hubs.b, begun.stream)
        check_share(begun, lines)
        assert await whole(hubs.a, begun.stream) == lines
        assert len(received(journal, "tools/call")) == 1 and not received(journal, "tasks/cancel")
