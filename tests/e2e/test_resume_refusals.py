"""Places that cannot be read on from, whose a stream is, and calls that are steered from another hub."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.e2e.bad_input import ALICE, BOB, TOKENS
from tests.e2e.client import HttpClient
from tests.e2e.rest_client import RestClient
from tests.e2e.three_hubs import STREAMS, Fleet, config, ending, fleet, whole
from tests.e2e.ways_to_read import check_rest, every_way, read_page
from tests.e2e.ways_to_start import TAKES
from tests.fork_server import forked_command
from tests.unit.cli.command import SECONDS
from tests.upstreams.launch import entry
from tests.upstreams.messages import Message, modern

pytestmark = pytest.mark.anyio

UNKNOWN = "st_" + "0" * 26
INVALID = -32602
ANSWER: Message = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture(scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with fleet(tmp_path_factory.mktemp("refusals"), config({"fixture": entry(era="modern")})) as running:
        yield running


@pytest.fixture
async def a(hubs: Fleet) -> AsyncIterator[RestClient]:
    async with RestClient(hubs.a) as client:
        yield client


@pytest.fixture
async def b(hubs: Fleet) -> AsyncIterator[RestClient]:
    async with RestClient(hubs.b) as client:
        yield client


@pytest.fixture
async def done(a: RestClient) -> tuple[str, int]:
    """A stream that has ended, and the number of its last event."""
    id_ = await a.started("job", {"nonce": "done", "steps": 20, "hold": 0})
    return id_, (await a.until(id_, "completed"))["last"]


async def resume(hubs: Fleet, *args: str, token: str | None = None) -> tuple[int, str, str]:
    env = hubs.env if token is None else {**hubs.env, "MCP_HUB_TOKEN": token}
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process([*forked_command(), "resume", *args], check=False, env=env)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("cursor", ["+1", "1e3", "1 2"])
async def test_malformed_cursor_is_refused(hubs: Fleet, b: RestClient, done: tuple[str, int], cursor: str) -> None:
    for url, headers in ((f"/streams/{done[0]}/events", {}), (f"/streams/{done[0]}/events", {"after": "1"})):
        more = {"last_event_id": cursor} if headers else {}
        path = f"{url}?{httpx2.QueryParams({'after': '1' if headers else cursor})}"
        refused = await b.ask("GET", path, **more)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor"), refused.text
    async with HttpClient(hubs.b.url) as client:
        for wire in (hubs.c, client):
            answer = await read_page(wire, {"stream": done[0], "cursor": cursor})
            assert answer["error"]["code"] == INVALID, answer


# -- whose a stream is


async def test_stream_of_another_principal_is_as_unknown_as_one_that_never_was(tmp_path: Path) -> None:
    text = config(tokens=TOKENS)
    async with fleet(tmp_path, text) as hubs, RestClient(hubs.a, ALICE) as alice, RestClient(hubs.b, BOB) as bob:
        job = hubs.job("foreign", hold=5)
        id_ = await alice.started("job", job.arguments)
        requests: list[tuple[str, str, Any]] = [
            ("GET", "", None),
            ("DELETE", "", None),
            ("GET", "/events?after=1", None),
            ("GET", "/events?after=999", None),
            ("POST", "/input", {"key": "q1", "action": "accept"}),
        ]
        for method, rest, body in requests:
            foreign, never = [await bob.ask(method, f"/streams/{each}{rest}", body) for each in (id_, UNKNOWN)]
            assert (foreign.status_code, foreign.content) == (404, never.content)
        async with HttpClient(hubs.b.url, BOB) as thief:
            for method in ("tasks/get", "tasks/update", "tasks/cancel", f"{STREAMS}.read"):
                told = []
                for each in (id_, UNKNOWN):
                    params = {"taskId": each, "inputResponses": {}, "stream": each, "cursor": "1"}
                    answer = await thief.request(method, modern(params, capabilities=TAKES), id=1)
                    told.append((answer.status, answer.text))
                    on_stdio = await hubs.c.request(method, modern(params, capabilities=TAKES))
                    assert on_stdio["error"] == answer.last["error"]
                assert told[0] == told[1] and answer.last["error"]["code"] == INVALID
            await thief.initialize()
            refusals = []
            for each in (id_, UNKNOWN):
                async with thief.listen(f"{each}:1") as stream:
                    refusals.append(((await stream.rest()).status, stream.text))
            assert refusals[0] == refusals[1] and refusals[0][0] == 400
        code, out, told_ = await resume(hubs, id_, token=BOB)
        assert (code, out) == (2, "") and told_.startswith(f"{id_}: ") and told_.endswith(" [unknown_stream]\n")
        assert (await alice.ask("GET", f"/streams/{id_}")).json()["status"] == "working"
        job.go()
        assert (await alice.until(id_, "completed", "failed", "cancelled"))["status"] == "completed"


# -- another hub than the one that runs the call


@pytest.mark.parametrize("by", ["REST", "task over HTTP", "task over stdio", "command"])
async def test_call_is_cancelled_from_another_hub(hubs: Fleet, a: RestClient, b: RestClient, by: str) -> None:
    id_ = await a.started("job", hubs.job(f"cancel {by}", hold=5).arguments)
    params = modern({"taskId": id_}, capabilities=TAKES)
    match by:
        case "REST":
            assert (await b.ask("DELETE", f"/streams/{id_}")).status_code == 202
        case "task over HTTP":
            async with HttpClient(hubs.b.url) as client:
                assert "result" in (await client.request("tasks/cancel", params)).last
        case "task over stdio":
            assert "result" in await hubs.c.request("tasks/cancel", params)
        case "command":
            with anyio.fail_after(SECONDS):
                await anyio.run_process([*forked_command(), "cancel", id_], env=hubs.env)
    assert ending(await whole(hubs.b, id_))["outcome"] == "cancelled"
    assert (await a.ask("GET", f"/streams/{id_}")).json()["status"] == "cancelled"
    assert (await b.ask("DELETE", f"/streams/{id_}")).status_code == 200


@pytest.mark.parametrize("by", ["REST", "task over HTTP", "task over stdio"])
@pytest.mark.first(2)
async def test_question_is_answered_from_another_hub(hubs: Fleet, a: RestClient, b: RestClient, by: str) -> None:
    id_ = await a.started("ask_form", {"nonce": f"asks {by}"})
    (question,) = (await b.until(id_, "input_required"))["questions"]
    params = modern({"taskId": id_, "inputResponses": {question["key"]: ANSWER}}, capabilities=TAKES)
    match by:
        case "REST":
            unknown = await b.ask("POST", f"/streams/{id_}/input", {"key": "x", **ANSWER})
            assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_question")
            told = await b.ask("POST", f"/streams/{id_}/input", {"key": question["key"], **ANSWER})
            assert told.status_code == 202
        case "task over HTTP":
            async with HttpClient(hubs.b.url) as client:
                assert "result" in (await client.request("tasks/update", params)).last
        case "task over stdio":
            assert "result" in await hubs.c.request("tasks/update", params)
    result = (await b.until(id_, "completed", "failed", "cancelled"))["result"]
    assert result["structuredContent"]["answers"]["form"]["result"] == ANSWER
    stored = await whole(hubs.b, id_)
    kinds = [json.loads(line)["type"] for line in stored]
    assert [kind for kind in kinds if kind.startswith("input")] == ["input-required", "input-received"]
    async with every_way(hubs) as ways:
        for way in ways:
            check_rest(await way.read(id_, 1, None), stored, 1, way.shows)


# -- programs that execute tools
