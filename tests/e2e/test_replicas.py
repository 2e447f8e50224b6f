"""Two hubs with state folders of their own on one Redis or Valkey server: each request may come to either."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from anyio import create_task_group

from tests.e2e.answers import Answers, follow_input, form
from tests.e2e.client import Answer, Headers, HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.redis_server import shared_server
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import argv, events, received, servers_yaml
from tests.upstreams.messages import Message, modern

pytestmark = pytest.mark.anyio


class Client(HttpClient):
    """Asks again, as it is told to, while a hub that waits for a core says that its store does not answer."""

    async def post(self, message: Any, headers: Headers = None) -> Answer:
        with anyio.fail_after(WAIT):
            while (answer := await super().post(message, headers)).status == 503:  # noqa: ASYNC110 - the answer says when
                await anyio.sleep(float(answer.headers["retry-after"]))
        return answer


class Replicas(NamedTuple):
    a: Hub
    b: Hub
    journal: Path


@pytest.fixture(scope="module")
async def replicas(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replicas]:
    root = tmp_path_factory.mktemp("replicas")
    (root / "a").mkdir()
    (root / "b").mkdir()
    journal = root / "journal"
    store = {"url": shared_server().url, "prefix": f"{root.name}:", "lease": 10}
    servers = {"x": argv(journal=journal), "asks": argv(era="handshake", journal=journal), "own": argv(era="handshake")}
    settings = json.loads(servers_yaml(servers, hub={"store": store, "task_after": 0.3}))
    settings["servers"]["own"]["scope"] = "session"
    text = json.dumps(settings)
    async with http_hub(text, root / "a") as a, http_hub(text, root / "b") as b:
        yield Replicas(a, b, journal)


async def moved(client: Client, to: Hub) -> Client:
    """The same client: its next request goes to that hub."""
    client.url = to.url
    return client


async def test_a_session_s_own_process_stays_at_its_replica(replicas: Replicas) -> None:
    async with Client(replicas.a.url) as client:
        await client.initialize()

        async def call() -> Message:
            return (await client.request("tools/call", {"name": "own_echo", "arguments": {"text": "hi"}})).last

        assert "result" in await call()
        await moved(client, replicas.b)
        assert (await call())["error"]["data"]["code"] == "session_elsewhere"
        await moved(client, replicas.a)
        assert "result" in await call()


async def test_a_session_of_nobody_is_unknown_at_both(replicas: Replicas) -> None:
    async with Client(replicas.a.url) as client:
        client.session, client.version = "se_" + "0" * 26, "2025-11-25"
        for hub in (replicas.a, replicas.b):
            assert (await (await moved(client, hub)).request("tools/list")).status == 404


async def test_the_other_replica_answers_and_cancels_over_rest(replicas: Replicas) -> None:
    async with RestClient(replicas.a) as a, RestClient(replicas.b) as b:
        asking = await a.started("asks_ask_form")
        (question,) = (await b.until(asking, "input_required"))["questions"]
        answer = {"key": question["key"], "action": "accept", "content": {"name": "Ada"}}
        assert (await b.ask("POST", f"/streams/{asking}/input", answer)).status_code == 202
        assert "Ada" in str(await b.until(asking, "completed"))
        running = await a.started("x_progress", {"n": 1000, "delay": 0.1})
        assert (await b.ask("DELETE", f"/streams/{running}")).status_code in (202, 204)
        await b.until(running, "cancelled")
        assert (await a.ask("GET", f"/streams/{running}")).json()["status"] == "cancelled"


async def test_a_question_that_was_answered_at_one_replica_is_not_open_at_the_other(replicas: Replicas) -> None:
    async with RestClient(replicas.a) as a, RestClient(replicas.b) as b:
        for _ in range(3):
            asking = await a.started("asks_ask_form")
            (question,) = (await b.until(asking, "input_required"))["questions"]
            answer = {"key": question["key"], "action": "accept", "content": {"name": "Ada"}}
            assert (await a.ask("POST", f"/streams/{asking}/input", answer)).status_code == 202
            assert not (await b.ask("GET", f"/streams/{asking}")).json().get("questions")


async def test_a_key_is_used_once_at_both(replicas: Replicas) -> None:
    before = len(received(replicas.journal, "tools/call"))
    async with RestClient(replicas.a) as a, RestClient(replicas.b) as b:
        calls = [await hub.call("x_echo", {"text": "once"}, idempotency_key="k-1") for hub in (a, b, a, b)]
    assert len({call.text for call in calls}) == 1 and calls[0].status_code == 200
    assert len(received(replicas.journal, "tools/call")) == before + 1


@pytest.mark.parametrize("server", ["asks", "x"])
@pytest.mark.parametrize(("way", "tool", "asked"), [("ab", "ask_two", 2), ("bb", "ask_two", 2), ("b", "ask_form", 1)])
async def test_a_retry_with_input_reaches_its_call_wherever_it_comes(
    replicas: Replicas, way: str, tool: str, asked: int, server: str
) -> None:
    """Also at a modern server whose state no other process of it understands."""
    hubs = iter([replicas.a, *(replicas.a if hub == "a" else replicas.b for hub in way * 3)])
    answers = Answers({"elicitation/create": form(name="Ada")})
    async with Client(replicas.a.url) as client:

        async def send(params: Message) -> Message:
            await moved(client, next(hubs))
            answer = await client.request("tools/call", modern(params, capabilities={"elicitation": {"form": {}}}))
            return answer.last

        asking = {"name": f"{server}_{tool}", "arguments": {"own_process": True}}
        response, rounds = await follow_input(send, asking, answers)
    assert len(rounds) == asked and "Ada" in str(response["result"])


@asynccontextmanager
async def at_both(replicas: Replicas) -> AsyncIterator[tuple[Client, Client]]:
    """One session that both replicas have in memory."""
    async with Client(replicas.a.url) as at_a, Client(replicas.b.url) as at_b:
        await at_a.initialize()
        at_b.session, at_b.version = at_a.session, at_a.version
        assert (await at_b.request("ping")).status == 200
        yield at_a, at_b


async def test_a_session_that_was_ended_at_one_replica_is_over_at_the_other(replicas: Replicas) -> None:
    async with at_both(replicas) as (at_a, at_b), at_b.listen() as stream:
        call = {"name": "x_wait_cancel", "arguments": {"nonce": "ended"}}
        async with at_b.stream(at_b.message("tools/call", call)) as running:
            await until(lambda: '"ended"' in json.dumps(received(replicas.journal, "tools/call")))  # not on its way
            assert (await at_a.delete()).status == 204
            with anyio.fail_after(WAIT):
                while (await at_b.request("ping")).status != 404:
                    pass
            await running.rest()
        await stream.rest()
    await until(lambda: any(event.get("nonce") == "ended" for event in events(replicas.journal, "cancelled")))


async def test_a_level_that_is_set_at_one_replica_holds_at_the_other(replicas: Replicas) -> None:
    async with at_both(replicas) as (at_a, at_b):

        async def is_told() -> bool:
            params = {"name": "asks_log", "arguments": {"level": "info", "data": "x"}}
            answer = await at_b.request("tools/call", params)
            return any(message.get("method") == "notifications/message" for message in answer.messages)

        for level, is_wanted in (("debug", True), ("error", False), ("info", True)):
            assert "result" in (await at_a.request("logging/setLevel", {"level": level})).last
            with anyio.fail_after(WAIT):
                while await is_told() is not is_wanted:
                    pass


async def test_subscriptions_of_a_session_are_the_same_at_both_replicas(replicas: Replicas) -> None:
    """Those that come at the same time, too: neither replica overwrites what the other one stores."""

    def count(method: str, uri: str) -> int:
        return sum(message["params"]["uri"] == uri for message in received(replicas.journal, f"resources/{method}"))

    uris = [f"fixture://text/{number}" for number in range(1, 5)]
    async with at_both(replicas) as (at_a, at_b), at_a.listen(), at_b.listen() as stream, create_task_group() as tasks:

        async def ask(client: Client, method: str, uri: str) -> None:
            assert "result" in (await client.request(f"resources/{method}", {"uri": f"hub://asks/{uri}"})).last

        for client, uri in zip((at_a, at_b, at_a, at_b), uris, strict=True):
            tasks.start_soon(ask, client, "subscribe", uri)
        await until(lambda: all(count("subscribe", uri) == 2 for uri in uris))
        await at_b.request("tools/call", {"name": "asks_touch", "arguments": {"uri": uris[0]}})
        updated = await stream.wait_for(lambda message: message.get("method") == "notifications/resources/updated")
        assert updated["params"]["uri"] == f"hub://asks/{uris[0]}"
        for client, uri in zip((at_b, at_a, at_b, at_a), uris, strict=True):
            tasks.start_soon(ask, client, "unsubscribe", uri)
        await until(lambda: all(count("unsubscribe", uri) == 2 for uri in uris))


async def test_lists_that_change_at_one_replica_are_read_again_at_the_other(replicas: Replicas) -> None:
    """The server of the other one may have changed as well, and not say so."""
    async with Client(replicas.a.url) as client, RestClient(replicas.b) as b:
        await client.initialize()
        await client.request("tools/list")
        assert (await b.call("asks_echo", {"text": "it runs"})).status_code == 200
        before = len(received(replicas.journal, "tools/list"))
        added = {"name": "asks_add_tool", "arguments": {"name": "new"}}
        assert "result" in (await client.request("tools/call", added)).last
        await until(lambda: len(received(replicas.journal, "tools/list")) >= before + 2)
