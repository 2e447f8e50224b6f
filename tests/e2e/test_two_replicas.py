"""Two replicas on one Redis or Valkey server: a call runs on A, and its client has come to B."""

import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient, cut, lines
from tests.e2e.three_hubs import TASKS
from tests.interaction.replicas import Replicas, replicas
from tests.redis_server import NO_SERVER, binary
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import entry, events, received
from tests.upstreams.messages import Message, modern

pytestmark = pytest.mark.anyio

LEASE = 1.0
ALICE, BOB = "alice-token-of-32-characters-xxx", "bob-token-of-32-characters-xxxxx"
TOKENS = [{"token": ALICE, "principal": "alice"}, {"token": BOB, "principal": "bob"}]
CAN: Message = {"elicitation": {}, "extensions": {TASKS: {}}}
ACCEPTED: Message = {"action": "accept", "content": {"name": "Ada"}}
STEPS: Message = {"steps": 1000, "seconds": 3600}


def config(root: Path) -> str:
    """Each call is a task where its client takes tasks."""
    servers = {"fixture": entry(era="modern", journal=root / "journal"), "jobs": {"local": JOBS}}
    hub = {"prefix": "never", "task_after": 0, "first_list_wait": WAIT, "tokens": TOKENS, "expose": "full"}
    return json.dumps({"hub": hub, "servers": servers})


JOBS = "mcp_hub.examples.jobs:registry"


@pytest.fixture(scope="module")
def server_is_there() -> None:
    if binary() is None:
        pytest.skip(NO_SERVER)


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory, server_is_there: None) -> AsyncIterator[Replicas]:
    root = tmp_path_factory.mktemp("replicas")
    async with replicas(config(root), root, lease=LEASE) as running:
        yield running


@pytest.fixture
async def a(pair: Replicas) -> AsyncIterator[RestClient]:
    async with RestClient(pair.hubs[0], ALICE) as client:
        yield client


@pytest.fixture
async def b(pair: Replicas) -> AsyncIterator[RestClient]:
    async with RestClient(pair.hubs[1], ALICE) as client:
        yield client


def journal_of(pair: Replicas) -> Path:
    """The messages and events of the server."""
    return Path(pair.server.folder).parent / "journal"


def cancelled(pair: Replicas, nonce: str) -> bool:
    """Whether the server was told to give up."""
    return any(event.get("nonce") == nonce for event in events(journal_of(pair), "cancelled"))


async def called(pair: Replicas, nonce: str) -> None:
    """Returns once the server has such a call."""
    await until(lambda: f'"{nonce}"' in json.dumps(received(journal_of(pair), "tools/call")))


async def seen(client: RestClient, stream: str, after: int = 0) -> list[Any]:
    """The events of an ended stream."""
    async with client.events(f"/streams/{stream}/events?after={after}") as response:
        return lines((await response.rest()).events)


async def test_a_stream_is_followed_on_both_replicas_and_continued_on_the_other(a: RestClient, b: RestClient) -> None:
    stream = await a.started("run_job", {"steps": 20, "seconds": 1})
    async with b.events(f"/streams/{stream}/events") as response:
        begun = lines(await cut(response, 5))
    rest = await seen(a, stream, begun[-1]["seq"])
    assert begun + rest == await seen(b, stream) == await seen(a, stream)
    assert [event["seq"] for event in begun + rest] == list(range(1, len(begun + rest) + 1))
    assert rest[-1]["data"]["outcome"] == "ok"


async def test_a_stream_of_another_principal_is_unknown_on_every_replica(pair: Replicas, a: RestClient) -> None:
    stream = await a.started("count_words", {"text": "a b"})
    async with RestClient(pair.hubs[1], BOB) as bob:
        while (await bob.ask("GET", "/streams/st_00000000000000000000000000")).status_code == 503:  # noqa: ASYNC110
            await anyio.sleep(0.1)  # until each replica that is there has been heard
        for method, path in (("GET", ""), ("GET", "/events"), ("DELETE", ""), ("POST", "/input")):
            body = {"key": "k", **ACCEPTED} if method == "POST" else None
            answer = await bob.ask(method, f"/streams/{stream}{path}", body)
            unknown = await bob.ask(method, f"/streams/st_00000000000000000000000000{path}", body)
            assert (answer.status_code, answer.json()["code"]) == (unknown.status_code, unknown.json()["code"])
            assert answer.status_code == 404
        assert stream not in (await bob.ask("GET", "/streams")).text


async def test_a_repeated_request_joins_its_call_on_the_other_replica(a: RestClient, b: RestClient) -> None:
    first = await a.started("run_job", {"steps": 3, "seconds": 0.5}, idempotency_key="same")
    again = await b.call("run_job", {"steps": 3, "seconds": 0.5}, idempotency_key="same", prefer="wait=20")
    assert (again.status_code, again.json()["stream"]) == (200, first)
    other = await b.call("run_job", {"steps": 4, "seconds": 0.5}, idempotency_key="same")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_task_is_read_answered_and_cancelled_on_the_other_replica(pair: Replicas) -> None:
    async with HttpClient(pair.hubs[0].url, ALICE) as at_a, HttpClient(pair.hubs[1].url, ALICE) as at_b:

        async def task(tool: str, **arguments: Any) -> str:
            params = modern({"name": tool, "arguments": arguments}, capabilities=CAN)
            created = (await at_a.request("tools/call", params)).last["result"]
            assert created["resultType"] == "task", created
            return str(created["taskId"])

        async def ask(method: str, **params: Any) -> Message:
            found: Message = (await at_b.request(method, modern(params, capabilities=CAN))).last["result"]
            return found

        async def reached(id_: str, status: str) -> Message:
            with anyio.fail_after(WAIT):
                while True:
                    found = await ask("tasks/get", taskId=id_)
                    if found["status"] == status:
                        return found
                    await anyio.sleep(0.02)

        asking = await task("ask_form", nonce="task", delay=1)
        questions = (await reached(asking, "input_required"))["inputRequests"]
        await ask("tasks/update", taskId=asking, inputResponses=dict.fromkeys(questions, ACCEPTED))
        assert "inputRequests" not in await ask("tasks/get", taskId=asking)
        told = json.loads((await reached(asking, "completed"))["result"]["content"][0]["text"])
        assert told == {"nonce": "task", "answers": {"form": {"result": ACCEPTED}}}
        waiting = await task("wait_cancel", nonce="task")
        assert await ask("tasks/cancel", taskId=waiting) == {"resultType": "complete"}
        await reached(waiting, "cancelled")
        await until(lambda: cancelled(pair, "task"))


async def test_a_handshake_session_is_that_of_every_replica(pair: Replicas) -> None:
    async with HttpClient(pair.hubs[0].url, ALICE) as at_a, HttpClient(pair.hubs[1].url, ALICE) as at_b:
        await at_a.initialize()
        at_b.session, at_b.version = at_a.session, at_a.version
        assert (await at_b.request("tools/list")).last["result"]["tools"]
        message = at_a.message(
            "tools/call", {"name": "run_job", "arguments": {"steps": 20, "seconds": 1}, "_meta": {"progressToken": "t"}}
        )
        async with at_a.stream(message) as stream:
            for _ in range(4):
                await stream.next_event()
        before = [event.message["params"]["progress"] for event in stream.events if event.data]
        async with at_b.listen(stream.last_id) as resumed:
            after = [event.message for event in (await resumed.rest()).events if event.data]
        progress = [message["params"]["progress"] for message in after[:-1]]
        assert before + progress == list(range(1, 21)) and after[-1]["result"]["isError"] is False
        async with HttpClient(pair.hubs[1].url, BOB) as foreign:
            foreign.session, foreign.version = at_a.session, at_a.version
            assert (await foreign.request("tools/list")).status == 404
        assert (await at_b.delete()).status in (200, 204)
        assert (await at_b.request("tools/list")).status == 404


async def test_a_client_s_answer_that_comes_to_the_other_replica_reaches_the_call_that_asked(pair: Replicas) -> None:
    async with HttpClient(pair.hubs[0].url, ALICE) as at_a, HttpClient(pair.hubs[1].url, ALICE) as at_b:
        await at_a.initialize(capabilities={"elicitation": {}})
        at_b.session, at_b.version = at_a.session, at_a.version
        message = at_a.message("tools/call", {"name": "ask_form", "arguments": {"nonce": "asked"}})
        async with at_a.stream(message) as stream:
            asked = await stream.wait_for(lambda message: message.get("method") == "elicitation/create")
            wrong = {"jsonrpc": "2.0", "id": asked["id"] + 1, "result": {"action": "cancel"}}
            assert (await at_b.post(wrong)).status == 503, "no call is known yet that asks this"
            assert (await at_b.post({"jsonrpc": "2.0", "id": asked["id"], "result": ACCEPTED})).status == 202
            done = (await stream.rest()).last
        told = json.loads(done["result"]["content"][0]["text"])
        assert told == {"nonce": "asked", "answers": {"form": {"result": ACCEPTED}}}


async def test_a_client_s_cancellation_that_comes_to_the_other_replica_ends_the_call(pair: Replicas) -> None:
    """The session began there, so that this replica did not find it in the store."""
    async with HttpClient(pair.hubs[0].url, ALICE) as at_a, HttpClient(pair.hubs[1].url, ALICE) as at_b:
        await at_b.initialize()
        at_a.session, at_a.version = at_b.session, at_b.version
        message = at_a.message("tools/call", {"name": "wait_cancel", "arguments": {"nonce": "gone"}})
        async with at_a.stream(message) as stream:
            await stream.next_event()
            await called(pair, "gone")  # one that waits for its server yet is not cancelled there
            assert (await at_b.notify("notifications/cancelled", {"requestId": message["id"]})).status == 202
            await until(lambda: cancelled(pair, "gone"))


@contextmanager
def stopped(hub: Hub) -> Iterator[None]:
    hub.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        hub.send_signal(signal.SIGCONT)


async def test_a_replica_that_wakes_up_behind_its_lease_writes_nothing_more_and_cancels_its_calls(
    pair: Replicas, a: RestClient, b: RestClient
) -> None:
    running = await a.started("run_job", STEPS)
    waiting = await a.started("wait_cancel", {"nonce": "paused"})
    await called(pair, "paused")
    with stopped(pair.hubs[0]):
        lost = await b.until(running, "failed")
        assert (lost["error"]["code"], lost["error"]["outcome"]) == ("owner_lost", "unknown")
        await b.until(waiting, "failed")
        before = await seen(b, running)
    await until(lambda: cancelled(pair, "paused"))
    assert (await a.until(running, "failed"))["error"]["code"] == "owner_lost"
    assert await seen(b, running) == await seen(a, running) == before
    async with a.events(f"/streams/{running}/events") as response:
        assert lines((await response.rest()).events)[-1]["data"]["code"] == "owner_lost"


async def is_refused(hub: Hub, session: HttpClient) -> None:
    """A task that another replica may have, and a session that another one has: unknown would be wrong."""
    async with HttpClient(hub.url, ALICE) as client:
        params = modern({"taskId": "st_00000000000000000000000000"}, capabilities=CAN)
        answer = await client.request("tasks/get", params)
        assert (answer.status, answer.last["error"]["data"]["code"]) == (503, "store_unavailable"), answer.text
        assert answer.headers["retry-after"].isdigit()
        client.session, client.version = session.session, session.version
        assert (await client.request("tools/list")).status == 503


@pytest.mark.proof
async def test_without_the_server_events_wait_and_all_refuse_until_it_is_back(
    pair: Replicas, a: RestClient, b: RestClient
) -> None:
    stream = await a.started("run_job", {"steps": 60, "seconds": 6})
    async with HttpClient(pair.hubs[0].url, ALICE) as at_a, a.events(f"/streams/{stream}/events") as response:
        await at_a.initialize()
        begun = lines(await cut(response, 3))
        pair.server.kill()
        try:
            for client in (b, a):  # which has it, and cannot know whether another replica has claimed it
                with anyio.fail_after(60):
                    while (refused := await client.ask("GET", f"/streams/{stream}")).status_code == 200:
                        assert client is a
                assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable"), refused.text
                assert refused.headers["retry-after"].isdigit()
            keyed = await a.call("run_job", {"steps": 1, "seconds": 0}, idempotency_key="away")
            assert (keyed.status_code, keyed.json()["code"]) == (503, "store_unavailable"), "it might be made twice"
            await is_refused(pair.hubs[1], at_a)
            assert (await a.call("run_job", {"steps": 1, "seconds": 0})).status_code == 200, "new calls run"
        finally:
            await anyio.to_thread.run_sync(pair.server.start)
        whole = lines((await response.rest()).events)
    assert whole[: len(begun)] == begun and whole[-1]["data"]["outcome"] == "ok"
    assert (await b.until(stream, "completed"))["last"] == len(whole)
    assert await seen(b, stream) == whole == await seen(a, stream)
