"""The REST front over real sockets: dropped connections, hubs that are killed, two hubs that are asked at once."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient, cut, lines
from tests.interaction.fronts import http_hub, replica_count

pytestmark = pytest.mark.anyio

JOBS = "servers:\n  jobs: {local: 'mcp_hub.examples.jobs:registry'}\nhub: {prefix: never}\n"
SLOW = {"steps": 1000, "seconds": 3600}


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    async with http_hub(JOBS, tmp_path_factory.mktemp("rest")) as hub:
        yield hub


async def test_clients_that_do_not_speak_mcp_need_nothing_but_urls(rest: RestClient) -> None:
    listed = (await rest.ask("GET", "/tools")).json()["tools"]
    assert [tool["name"] for tool in listed] == ["run_job", "count_words", "wait"]
    answer = await rest.call("count_words", {"text": "a b c"})
    assert answer.json()["result"]["structuredContent"]["words"] == 3
    described = (await rest.ask("GET", "/openapi.json")).json()
    assert "/v1/tools/{name}/call" in described["paths"]
    head = await rest.ask("HEAD", "/tools")
    assert (head.status_code, head.content) == (200, b"") and int(head.headers["content-length"]) > 0
    encoded = await rest.ask("POST", "/tools/no%2Fsuch/call", {})
    assert (encoded.status_code, encoded.json()["detail"]) == (404, "Unknown tool: no/such")


async def test_killed_hub_s_call_ends_with_hub_restarted_and_its_key_stays_taken(tmp_path: Path) -> None:
    async with http_hub(JOBS, tmp_path) as hub, RestClient(hub) as client:
        done = (await client.call("count_words", {"text": "a b"}, idempotency_key="done")).json()
        id_ = await client.started("run_job", {"steps": 1000, "seconds": 100}, idempotency_key="cut")
        async with client.events(f"/streams/{id_}/events") as stream:
            before = lines(await cut(stream, 5))
            await hub.kill_alone()
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
            hub.send_signal(signal.SIGTERM)
            events = (await stream.rest()).events
        assert await hub.wait() == 0
    told = lines(events)
    async with http_hub(JOBS, tmp_path) as hub, RestClient(hub) as client:
        page = (await client.ask("GET", f"/streams/{id_}/events")).json()
    log = page["events"]
    assert page == {"events": log, "cursor": len(log), "closed": True} and log[-1]["data"]["code"] == "hub_stopped"
    assert events[0] == first[0] and told == log[: len(told)]
    if replica_count() == 1:  # through replicas: one stops perhaps before another one has written the ending
        assert told == log and events[-1].event == "closed"


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

        for number in range(4):
            answers.clear()
            async with anyio.create_task_group() as tasks:
                for client in (first, second, first, second):
                    tasks.start_soon(call, client, f"k{number}")
            assert len({answer.text for answer in answers}) == 1, [answer.text for answer in answers]
            assert answers[0].status_code == 200
        assert len((await first.ask("GET", "/streams")).json()["streams"]) == 4
