"""`GET /v1/events`: types, and events behind a cursor, for programs that know nothing of MCP; two principals."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from mcp_hub.fronts.limits import LISTENS
from tests.e2e.client import Hub, SseEvent, SseStream
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import MODERN, http_hub
from tests.interaction.occurring import Service, config

pytestmark = pytest.mark.anyio

ANN = {"token": "a" * 32, "principal": "ann", "profile": "all"}
BEN = {"token": "b" * 32, "principal": "ben", "profile": "few"}
DONE, OTHER = "ci_build_done", "ci_build_other"
NUMBERS = count(1000, 1000)
NDJSON = "application/x-ndjson"


class Builds:
    def __init__(self, hub: Hub, service: Service) -> None:
        self.hub = hub
        self.service = service

    def client(self, who: Mapping[str, str] = ANN) -> RestClient:
        return RestClient(self.hub, who["token"])


@pytest.fixture(scope="module")
async def builds(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Builds]:
    root = tmp_path_factory.mktemp("builds")
    service = Service(root, "ci")
    settings = json.loads(config({"ci": service.argv(MODERN, "push")}, tokens=[ANN, BEN]))
    settings["profiles"] = {"all": {}, "few": {"events": {"deny": ["*_other"]}}}
    async with http_hub(json.dumps(settings), root) as hub:
        yield Builds(hub, service)


def path(**params: Any) -> str:
    return f"/events?{urlencode(params, quote_via=quote)}" if params else "/events"


async def page(client: RestClient, **params: Any) -> Any:
    response = await client.ask("GET", path(**params))
    assert response.status_code == 200, response.text
    return response.json()


def numbers(events: list[Any]) -> list[int]:
    return [event["data"]["n"] for event in events]


async def happened(stream: SseStream, least: int) -> list[SseEvent]:
    """The next events of a stream, without what is said of it."""
    found: list[SseEvent] = []
    while len(found) < least:
        event = await stream.next_event()
        if event.event == "event":
            found.append(event)
    return found


async def test_types_are_those_of_the_callers_profile(builds: Builds) -> None:
    async with builds.client() as ann, builds.client(BEN) as ben:
        types = {event["name"]: event for event in (await page(ann))["events"]}
        assert list(types) == [DONE, OTHER]
        assert types[DONE]["delivery"] == ["push", "poll", "webhook"]
        assert [event["name"] for event in (await page(ben))["events"]] == [DONE]


async def test_page_waits_for_what_happens_and_the_next_one_continues(builds: Builds) -> None:
    first = next(NUMBERS)
    async with builds.client() as client:
        begun = await page(client, name=DONE, wait=0)
        assert begun == {"events": [], "cursor": begun["cursor"]}
        builds.service.happens(first, first + 1, first + 2)
        one = await page(client, name=DONE, after=begun["cursor"], limit=1)
        assert numbers(one["events"]) == [first] and one["events"][0]["cursor"] == one["cursor"]
        assert one["events"][0]["name"] == DONE
        rest: list[int] = []
        cursor = one["cursor"]
        while len(rest) < 2:
            more = await page(client, name=DONE, after=cursor)
            rest, cursor = rest + numbers(more["events"]), more["cursor"]
        assert rest == [first + 1, first + 2]


async def test_stream_continues_behind_its_last_id(builds: Builds) -> None:
    first = next(NUMBERS)
    async with builds.client() as client:
        async with client.events(path(name=DONE)) as stream:
            active = await stream.next_event()
            assert active.event == "active"
            assert json.loads(active.data) == {"cursor": active.id, "truncated": False}
            builds.service.happens(first, first + 1)
            events = await happened(stream, 2)
        assert [json.loads(event.data)["data"]["n"] for event in events] == [first, first + 1]
        assert [json.loads(event.data)["cursor"] for event in events] == [event.id for event in events]
        for last, expected in ((active.id, [first, first + 1]), (events[0].id, [first + 1])):
            async with client.events(path(name=DONE, after="st_nothing"), last=last) as again:
                seen = await happened(again, len(expected))
                assert [json.loads(event.data)["data"]["n"] for event in seen] == expected


async def test_lines_have_their_type(builds: Builds) -> None:
    number = next(NUMBERS)
    async with builds.client() as client:
        cursor = (await page(client, name=DONE, wait=0))["cursor"]
        builds.service.happens(number)
        url = path(name=DONE, after=cursor)
        async with client._http.stream("GET", url, headers={"accept": NDJSON}) as response:
            assert response.headers["content-type"] == NDJSON
            found = response.aiter_lines()
            lines = [json.loads(await anext(found)) for _ in range(2)]
        assert [line["type"] for line in lines] == ["active", "event"]
        assert lines[0]["cursor"] == cursor and numbers(lines[1:]) == [number]


async def test_arguments_make_a_subscription_of_their_own(builds: Builds) -> None:
    async with builds.client() as client:
        branch = f"b{next(NUMBERS)}"
        await page(client, name=OTHER, arguments=json.dumps({"branch": branch}), wait=0)
        asked = [request["arguments"] for request in builds.service.asked]
        assert {"branch": branch} in asked


async def test_cursor_that_nobody_gave_is_truncated(builds: Builds) -> None:
    async with builds.client() as client:
        first = await page(client, name=DONE, after="st_00000000000000000000000000.7", wait=0)
        assert first["truncated"] and first["events"] == []
        assert "truncated" not in await page(client, name=DONE, after=first["cursor"], wait=0)
        async with client.events(path(name=DONE, after="x")) as stream:
            assert json.loads((await stream.next_event()).data)["truncated"] is True


@pytest.mark.parametrize(
    ("params", "status", "code"),
    [
        ({"name": "ci_build_dune"}, 404, "unknown_event_type"),
        ({"name": ""}, 404, "unknown_event_type"),
        ({"name": OTHER}, 400, "invalid_params"),
        ({"name": DONE, "arguments": "[]"}, 400, "invalid_parameter"),
        ({"name": DONE, "arguments": '{},"name":"ci_build_other"'}, 400, "invalid_parameter"),
        ({"name": DONE, "arguments": json.dumps({"x": "y" * 20_000})}, 400, "invalid_parameter"),
        ({"name": DONE, "wait": "soon"}, 400, "invalid_parameter"),
    ],
)
@pytest.mark.parametrize("media", ["application/json", "text/event-stream"])
async def test_bad_request_is_a_problem(
    builds: Builds, params: dict[str, str], status: int, code: str, media: str
) -> None:
    async with builds.client() as client:
        response = await client.ask("GET", path(**params), accept=media)
        assert (response.status_code, response.json().get("code")) == (status, code)


async def test_what_a_profile_hides_has_no_stream_and_a_foreign_cursor_opens_nothing(builds: Builds) -> None:
    arguments = json.dumps({"branch": "secret"})
    async with builds.client() as ann, builds.client(BEN) as ben:
        cursor = (await page(ann, name=OTHER, arguments=arguments, wait=0))["cursor"]
        hidden = await ben.ask("GET", path(name=OTHER, arguments=arguments, after=cursor))
        assert (hidden.status_code, hidden.json()["code"]) == (404, "unknown_event_type")
        builds.service.happens(next(NUMBERS))
        foreign = await page(ben, name=DONE, after=cursor, wait=0)
        assert foreign["truncated"] and foreign["events"] == [], "a cursor counts within its subscription only"
        assert (await ben.ask("GET", "/streams")).json()["streams"] == []


async def test_open_requests_of_a_principal_are_bounded(builds: Builds) -> None:
    async with builds.client(BEN) as ben, builds.client() as ann:
        async with AsyncExitStack() as opened:
            url = path(name=DONE)
            streams = [await opened.enter_async_context(ben.events(url)) for _ in range(LISTENS)]
            assert {(await stream.next_event()).event for stream in streams} == {"active"}
            refused = await ben.ask("GET", path(name=DONE, wait=0))
            assert (refused.status_code, refused.json().get("code")) == (503, "busy"), refused.text
            assert (await ann.ask("GET", path(name=DONE, wait=0))).status_code == 200


async def test_hub_without_events_has_an_empty_list(tmp_path: Path) -> None:
    async with http_hub(config({}), tmp_path) as hub, RestClient(hub) as client:
        assert await page(client) == {"events": []}
        response = await client.ask("GET", path(name="x"))
        assert (response.status_code, response.json()["code"]) == (404, "unknown_event_type")
