"""The REST front over real sockets: dropped connections, hubs that are killed, several hubs on one store, questions."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.e2e.bad_input import ALICE, BOB, TOKENS
from tests.e2e.client import Hub
from tests.e2e.rest_client import SSE, RestClient, cut, lines
from tests.interaction.fronts import ERAS, http_hub
from tests.upstreams.launch import argv, servers_yaml

pytestmark = pytest.mark.anyio

JOBS = "servers:\n  jobs: {local: 'mcp_hub.examples.jobs:registry'}\nhub: {prefix: never}\n"
SLOW = {"steps": 1000, "seconds": 3600}


async def kill(hub: Hub) -> None:
    hub.process.send_signal(signal.SIGKILL)
    assert await hub.wait() == -signal.SIGKILL


@pytest.fixture(scope="module")
async def jobs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    async with http_hub(JOBS, tmp_path_factory.mktemp("rest")) as hub:
        yield hub


@pytest.fixture
async def client(jobs: Hub) -> AsyncIterator[RestClient]:
    async with RestClient(jobs) as client:
        yield client


@pytest.mark.parametrize("by", ["after", "last-event-id"])
async def test_dropped_connection_is_resumed_with_the_exact_suffix(client: RestClient, by: str) -> None:
    seen: list[Any] = []
    body = {"arguments": {"steps": 30, "seconds": 0.6}}
    async with client.events("/tools/run_job/call", body=body) as stream:
        seen += lines(await cut(stream, 4))
    url = f"/streams/{seen[0]['stream']}/events"
    for count in (1, 7):
        last = str(seen[-1]["seq"])
        path, header = (f"{url}?after={last}", None) if by == "after" else (url, last)
        async with client.events(path, header) as stream:
            seen += lines(await cut(stream, count))
    rest = await client.ask("GET", f"{url}?after={seen[-1]['seq']}", accept="text/event-stream")
    whole = await client.ask("GET", url, accept="text/event-stream")
    closed = f'event: closed\ndata: {{"cursor":{_count(whole)},"status":"completed"}}\n\n'
    assert rest.text.endswith(f"\n\n{closed}")
    assert whole.text.endswith(rest.text) and [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
    assert _count(whole) == len(seen) + _count(rest) == 62
    ndjson = await client.ask("GET", url, accept="application/x-ndjson")
    assert [line for line in whole.text.split("\n") if line.startswith('data: {"v"')] == [
        f"data: {line}" for line in ndjson.text.splitlines()
    ]


def _count(response: httpx2.Response) -> int:
    return response.text.count('data: {"v":1')


async def test_clients_that_do_not_speak_mcp_need_nothing_but_urls(client: RestClient) -> None:
    listed = (await client.ask("GET", "/tools")).json()["tools"]
    assert [tool["name"] for tool in listed] == ["run_job", "count_words", "wait"]
    answer = await client.call("count_words", {"text": "a b c"})
    assert answer.json()["result"]["structuredContent"]["words"] == 3
    described = (await client.ask("GET", "/openapi.json")).json()
    assert "/v1/tools/{name}/call" in described["paths"]
    head = await client.ask("HEAD", "/tools")
    assert (head.status_code, head.content) == (200, b"") and int(head.headers["content-length"]) > 0
    encoded = await client.ask("POST", "/tools/no%2Fsuch/call", {})
    assert (encoded.status_code, encoded.json()["detail"]) == (404, "Unknown tool: no/such")


async def test_killed_hub_s_call_ends_with_hub_restarted_and_its_key_stays_taken(tmp_path: Path) -> None:
    async with http_hub(JOBS, tmp_path) as hub, RestClient(hub) as client:
        done = (await client.call("count_words", {"text": "a b"}, idempotency_key="done")).json()
        id_ = await client.started("run_job", {"steps": 1000, "seconds": 100}, idempotency_key="cut")
        async with client.events(f"/streams/{id_}/events") as stream:
            before = lines(await cut(stream, 5))
            await kill(hub)
    async with http_hub(JOBS, tmp_path) as hub, RestClient(hub) as client:
        known = await client.until(id_, "failed")
        assert (known["error"]["code"], known["error"]["outcome"]) == ("hub_restarted", "unknown")
        async with client.events(f"/streams/{id_}/events", str(before[-1]["seq"])) as stream:
            rest = lines((await stream.rest()).events)
        assert [event["seq"] for event in before + rest] == list(range(1, known["last"] + 1))
        assert [event["type"] for event in rest if event["type"] in ("end", "error")] == ["error"]
        again = await client.call("count_words", {"text": "a b"}, idempotency_key="done")
        assert (again.status_code, again.json()) == (200, done)
        refused = await client.call("run_job", {"seconds": 100, "steps": 1000}, idempotency_key="cut")
        assert (refused.status_code, refused.json()["code"], refused.json()["stream"]) == (502, "hub_restarted", id_)
        assert "retry-after" not in refused.headers, "it would be told the same again"
        other = await client.call("count_words", {"text": "b a"}, idempotency_key="done")
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_hub_that_stops_tells_its_followers_and_keeps_the_ending(tmp_path: Path) -> None:
    async with http_hub(JOBS, tmp_path) as hub, RestClient(hub) as client:
        id_ = await client.started("run_job", SLOW)
        async with client.events(f"/streams/{id_}/events") as stream:
            first = await cut(stream, 1)
            hub.process.send_signal(signal.SIGTERM)
            events = (await stream.rest()).events
        assert await hub.wait() == 0
    told = lines(events)
    assert events[0] == first[0] and told[-1]["data"]["code"] == "hub_stopped" and events[-1].event == "closed"
    async with http_hub(JOBS, tmp_path) as hub, RestClient(hub) as client:
        page = (await client.ask("GET", f"/streams/{id_}/events")).json()
        assert page == {"events": told, "cursor": len(told), "closed": True}


async def test_hubs_on_one_store_serve_each_others_streams(tmp_path: Path) -> None:
    async with (
        http_hub(JOBS, tmp_path) as one,
        http_hub(JOBS, tmp_path) as two,
        RestClient(one) as owner,
        RestClient(two) as other,
    ):
        id_ = await owner.started("run_job", {"steps": 20, "seconds": 1}, idempotency_key="k")
        async with other.events(f"/streams/{id_}/events") as there, owner.events(f"/streams/{id_}/events") as here:
            assert (await there.rest()).text == (await here.rest()).text
        assert (await other.call("run_job", {"steps": 20, "seconds": 1}, idempotency_key="k")).json()["stream"] == id_
        slow = await owner.started("run_job", SLOW)
        assert (await other.ask("GET", f"/streams/{slow}")).json()["status"] == "working"
        assert (await other.ask("DELETE", f"/streams/{slow}")).status_code == 202
        assert (await owner.until(slow, "cancelled"))["reason"] == "its client has cancelled it"
        assert (await other.ask("DELETE", f"/streams/{slow}")).status_code == 200


async def test_one_of_two_hubs_that_are_asked_at_once_with_one_key_makes_the_call(tmp_path: Path) -> None:
    async with (
        http_hub(JOBS, tmp_path) as one,
        http_hub(JOBS, tmp_path) as two,
        RestClient(one) as first,
        RestClient(two) as second,
    ):
        answers: list[httpx2.Response] = []

        async def call(client: RestClient, key: str) -> None:
            answers.append(await client.call("run_job", {"steps": 2, "seconds": 0.1}, idempotency_key=key))

        for number in range(10):
            answers.clear()
            async with anyio.create_task_group() as tasks:
                for client in (first, second, first, second):
                    tasks.start_soon(call, client, f"k{number}")
            assert len({answer.text for answer in answers}) == 1, [answer.text for answer in answers]
            assert answers[0].status_code == 200
        assert len((await first.ask("GET", "/streams")).json()["streams"]) == 10


@pytest.mark.parametrize("era", ERAS)
async def test_question_of_a_server_waits_for_its_answer_from_any_hub(tmp_path: Path, era: str) -> None:
    config = servers_yaml({"asks": argv(era=era)}, hub={"prefix": "never"})
    async with (
        http_hub(config, tmp_path) as one,
        http_hub(config, tmp_path) as two,
        RestClient(one) as owner,
        RestClient(two) as other,
    ):
        id_ = await owner.started("ask_form", {"nonce": "n"})
        (question,) = (await other.until(id_, "input_required"))["questions"]
        assert question["method"] == "elicitation/create" and question["params"]["message"] == "form n"
        unknown = await other.ask("POST", f"/streams/{id_}/input", {"key": "x", "action": "accept"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_question")
        answer = {"key": question["key"], "action": "accept", "content": {"name": "Ada"}}
        assert (await other.ask("POST", f"/streams/{id_}/input", answer)).status_code == 202
        known = await owner.until(id_, "completed")
        answers = known["result"]["structuredContent"]["answers"]
        assert answers["form"]["result"] == {"action": "accept", "content": {"name": "Ada"}}


async def test_foreign_principal_finds_nothing(tmp_path: Path) -> None:
    config = servers_yaml({}, hub={"prefix": "never", "tokens": TOKENS})
    config = config.replace('"servers": {}', '"servers": {"jobs": {"local": "mcp_hub.examples.jobs:registry"}}')
    async with http_hub(config, tmp_path) as hub, RestClient(hub, ALICE) as alice, RestClient(hub, BOB) as bob:
        id_ = await alice.started("run_job", SLOW, idempotency_key="k")
        unknown = "st_" + "0" * 26
        requests: list[tuple[str, str, Any]] = [
            ("GET", "", None),
            ("DELETE", "", None),
            ("GET", "/events", None),
            ("POST", "/input", {"key": "q1", "action": "accept"}),
        ]
        for method, rest, body in requests:
            foreign, never = [await bob.ask(method, f"/streams/{each}{rest}", body) for each in (id_, unknown)]
            assert (foreign.status_code, foreign.content) == (404, never.content)
        assert (await bob.ask("GET", "/streams")).json() == {"streams": []}
        assert await bob.started("run_job", SLOW, idempotency_key="k") != id_
        assert (await alice.ask("GET", f"/streams/{id_}")).json()["status"] == "working"
        async with RestClient(hub) as nobody:
            refused = await nobody.ask("GET", "/tools", **SSE)
            assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")


async def test_worker_executes_calls_over_real_sockets(client: RestClient) -> None:
    tool = {"name": "shout", "inputSchema": {"type": "object"}}
    registered = await client.ask("PUT", "/executors/w", {"tools": [tool], "lease": "60s"})
    assert registered.json() == {"epoch": 1}
    id_ = await client.started("shout", {"text": "hi"})
    async with client.events("/executors/w/calls?epoch=1") as stream:
        offer = (await stream.next_event()).message
    assert (offer["name"], offer["arguments"]) == ("shout", {"text": "hi"})
    for seq, more in enumerate([{"content": "HI"}, {"content": "!", "complete": True}], 1):
        post = {"tool_call_id": offer["tool_call_id"], **more}
        taken = await client.ask("POST", "/tool-results/stream", post, producer_epoch="1", producer_seq=str(seq))
        assert taken.status_code == 200
    assert (await client.until(id_, "completed"))["result"]["content"] == [{"type": "text", "text": "HI!"}]
    assert (await client.ask("DELETE", "/executors/w")).status_code == 204
