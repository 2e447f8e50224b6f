"""`hub_events`: a model waits for events of a server through any client, in both eras."""

import json
import re
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.exposure import EVENTS_TOOL
from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, Seen, connected, http_hub
from tests.interaction.hub_process import hub_process
from tests.interaction.occurring import Service, config
from tests.upstreams.child import WAIT, until
from tests.upstreams.messages import CLIENT, PREFIX

pytestmark = pytest.mark.anyio

ANN = {"token": "a" * 32, "principal": "ann", "profile": "all"}
BEN = {"token": "b" * 32, "principal": "ben", "profile": "few"}
DONE, OTHER = "ci_build_done", "ci_build_other"
NUMBERS = count(1000, 1000)
AT_ONCE = {"clients": {CLIENT["name"]: {"soft_deadline": 0.4}}}
TASKS: dict[str, Any] = {"extensions": {PREFIX + "tasks": {}}}


class Builds:
    def __init__(self, hub: Hub, service: Service) -> None:
        self.hub = hub
        self.service = service


@pytest.fixture(scope="module")
async def builds(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Builds]:
    root = tmp_path_factory.mktemp("builds")
    service = Service(root, "ci")
    settings = json.loads(config({"ci": service.argv(MODERN, "push")}, tokens=[ANN, BEN], task_after=0.2))
    settings["profiles"] = {"all": {}, "few": {"events": {"deny": ["*_other"]}}}
    async with http_hub(json.dumps(settings), root) as hub:
        yield Builds(hub, service)


async def asked(peer: Peer, action: str, **arguments: Any) -> Seen:
    return await peer.call("hub_events", {"action": action, **arguments})


def following(text: str) -> dict[str, Any]:
    """The arguments with which an answer says that the next wait begins."""
    match = re.search(r"hub_events with (\{.*\})$", text, re.MULTILINE)
    assert match, text
    arguments: dict[str, Any] = json.loads(match[1])
    return arguments


def numbers(text: str) -> list[int]:
    return [json.loads(line)["data"]["n"] for line in text.splitlines() if line.startswith('{"eventId"')]


def test_definition_costs_few_tokens() -> None:
    assert estimate(EVENTS_TOOL) <= 120


@pytest.mark.parametrize("era", ERAS)
async def test_types_are_listed_with_their_arguments(builds: Builds, era: str) -> None:
    async with connected(builds.hub, era, ANN["token"]) as peer:
        lines = (await asked(peer, "list")).text.splitlines()
        assert f"{DONE}(branch?:str): A build has ended" in lines
        definition = json.loads((await asked(peer, "list", name=OTHER)).text)
        assert definition["payloadSchema"]["properties"] == {"status": {"type": "string"}}


@pytest.mark.parametrize("era", ERAS)
async def test_wait_behind_a_cursor_brings_what_happened_meanwhile_and_nothing_twice(builds: Builds, era: str) -> None:
    first = next(NUMBERS)
    async with connected(builds.hub, era, ANN["token"]) as peer:
        subscribed = following((await asked(peer, "subscribe", name=DONE)).text)
        builds.service.happens(first, first + 1)
        text, seen = (await peer.call("hub_events", subscribed)).text, []
        seen += numbers(text)
        while len(seen) < 2:
            text = (await peer.call("hub_events", following(text))).text
            seen += numbers(text)
        assert seen == [first, first + 1]
        assert f'"name":"{DONE}"' in text
    async with connected(builds.hub, era, ANN["token"]) as peer:  # a cursor outlives its session
        builds.service.happens(first + 2)
        assert numbers((await peer.call("hub_events", following(text))).text) == [first + 2]


async def test_wait_without_a_name_takes_the_first_of_the_subscriptions_of_the_session(builds: Builds) -> None:
    first = next(NUMBERS)
    async with connected(builds.hub, HANDSHAKE, ANN["token"]) as peer:
        refused = await asked(peer, "wait")
        assert refused.result["isError"] and "there is no subscription of this session" in refused.text
        for branch in ("x", "y"):
            await asked(peer, "subscribe", name=OTHER, arguments={"branch": branch})
        builds.service.happens(first)
        text = (await asked(peer, "wait")).text
        assert set(numbers(text)) == {first}
        async with connected(builds.hub, HANDSHAKE, ANN["token"]) as other:
            assert (await asked(other, "wait")).result["isError"], "it belongs to the session"


@pytest.mark.parametrize("era", ERAS)
async def test_event_ends_a_wait_that_is_open(builds: Builds, era: str) -> None:
    number = next(NUMBERS)
    async with connected(builds.hub, era, ANN["token"]) as peer, connected(builds.hub, MODERN, ANN["token"]) as other:
        answers: list[str] = []

        async def wait() -> None:
            answers.append((await asked(peer, "wait", name=OTHER, arguments={"branch": f"b{number}"})).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await subscribed_at(builds.service, f"b{number}")
            await asked(other, "subscribe", name=OTHER, arguments={"branch": f"b{number}"})  # the feed stands
            builds.service.happens(number)
        assert numbers(answers[0]) == [number]


async def subscribed_at(service: Service, branch: str) -> None:
    await until(lambda: any(request["arguments"] == {"branch": branch} for request in service.asked))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"action": "wait", "name": "ci_build_dune"}, "Did you mean ci_build_done"),
        ({"action": "wait", "name": OTHER}, "branch is missing"),
        ({"action": "wait", "name": DONE, "arguments": []}, "arguments must be an object"),
        ({"action": "stop"}, "wrong arguments"),
        ({"action": "subscribe"}, "name of an event type is missing"),
    ],
)
async def test_mistake_is_a_result_for_the_model(builds: Builds, arguments: dict[str, Any], reason: str) -> None:
    async with connected(builds.hub, MODERN, ANN["token"]) as peer:
        seen = await peer.call("hub_events", arguments)
        assert seen.result["isError"] and reason in seen.text


async def test_type_that_a_profile_hides_cannot_be_waited_for(builds: Builds) -> None:
    async with connected(builds.hub, MODERN, ANN["token"]) as ann, connected(builds.hub, MODERN, BEN["token"]) as ben:
        cursor = following((await asked(ann, "subscribe", name=OTHER, arguments={"branch": "s"})).text)
        assert OTHER not in (await asked(ben, "list")).text
        for action in ("subscribe", "wait", "list"):
            seen = await ben.call("hub_events", {**cursor, "action": action})
            assert seen.result["isError"] and "there is no event type" in seen.text


async def ended(peer: Peer, id_: str) -> dict[str, Any]:
    async def poll() -> dict[str, Any]:
        return (await peer.request("tasks/get", {"taskId": id_})).result

    with anyio.fail_after(WAIT):
        task = await poll()
        while task["status"] == "working":
            task = await poll()
    return task


async def test_client_with_tasks_waits_in_a_task(builds: Builds) -> None:
    number = next(NUMBERS)
    async with HttpClient(builds.hub.url, ANN["token"]) as wire:
        peer = Peer(wire, MODERN, capabilities=TASKS)
        created = (await asked(peer, "wait", name=DONE)).result
        assert created["resultType"] == "task", created
        builds.service.happens(number)
        task = await ended(peer, created["taskId"])
        assert numbers(task["result"]["content"][0]["text"]) == [number]


async def test_wait_in_a_task_is_continued_by_the_next_hub_from_its_cursor(tmp_path: Path) -> None:
    service = Service(tmp_path, "ci")
    text = config({"ci": service.argv(MODERN, "push")}, task_after=0.2)
    async with hub_process(text, tmp_path) as hub, HttpClient(hub.url) as wire:
        peer = Peer(wire, MODERN, capabilities=TASKS)
        id_ = (await asked(peer, "wait", name=DONE)).result["taskId"]
        with anyio.fail_after(WAIT):
            while "waiting for" not in (await peer.request("tasks/get", {"taskId": id_})).result.get(
                "statusMessage", ""
            ):
                pass
        hub.kill()
    service.happens(1, 2)
    async with hub_process(text, tmp_path) as hub, HttpClient(hub.url) as wire:
        task = await ended(Peer(wire, MODERN, capabilities=TASKS), id_)
        assert task["status"] == "completed", task
        assert numbers(task["result"]["content"][0]["text"])[0] == 1


async def test_answer_comes_before_the_limit_of_the_client_and_the_cursor_still_holds(tmp_path: Path) -> None:
    service = Service(tmp_path, "ci")
    text = config({"ci": service.argv(HANDSHAKE, "poll")}, **AT_ONCE)
    async with http_hub(text, tmp_path) as hub, connected(hub, HANDSHAKE) as peer:
        assert "hub_events" in await peer.names()
        quiet = (await asked(peer, "wait", name=DONE)).text
        assert quiet.startswith("No event yet, after 0 s.")
        cursor = following((await asked(peer, "subscribe", name=DONE)).text)
        service.happens(5)
        while not numbers(text := (await peer.call("hub_events", cursor)).text):
            cursor = following(text)
        assert numbers(text) == [5]


async def test_tool_is_listed_only_where_a_profile_has_events(tmp_path: Path) -> None:
    service = Service(tmp_path, "ci")
    settings = json.loads(config({"ci": service.argv(HANDSHAKE, "poll")}, tokens=[ANN, BEN]))
    settings["profiles"] = {"all": {}, "few": {"events": {"deny": ["*"]}}}
    async with http_hub(json.dumps(settings), tmp_path, relays_all=False) as hub:
        for token, is_listed in ((ANN, True), (BEN, False)):
            async with connected(hub, MODERN, token["token"]) as peer:
                assert ("hub_events" in await peer.names()) is is_listed
        async with connected(hub, MODERN, BEN["token"]) as peer:
            assert (await asked(peer, "list")).answer.get("error", {}).get("code") == -32602
