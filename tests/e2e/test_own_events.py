"""Events of a server with an account for each principal: nothing of one account reaches the other, on no way."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest

from tests.e2e.client import Hub
from tests.e2e.people_server import People, hub_token, log_in, people_server, settings
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, connected, http_hub
from tests.interaction.hooked import Receiver, receiving, subscribe, unsubscribe
from tests.interaction.occurring import Poller, streaming
from tests.upstreams.child import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

BOTH = ("anna", "bert")


class Place:
    """A hub at which anna and bert have accounts, and carl has none."""

    def __init__(self, hub: Hub, people: People, receiver: Receiver) -> None:
        self.hub = hub
        self.people = people
        self.receiver = receiver

    def happens(self, **numbers: int) -> None:
        assert self.people.happened is not None
        for name, number in numbers.items():
            self.people.happened[name].append(number)

    def polls(self) -> set[str]:
        """Whose connections have been asked for events."""
        return {account for account, method in self.people.requests if method == "events/poll"}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    with people_server(*BOTH, "carl") as people:
        people.happened = {name: [] for name in BOTH}
        for name in BOTH:
            await log_in(people, tmp_path / "state", name)
        text = settings(people, *BOTH, "carl", events={"webhook_hosts": ["127.0.0.1"]})
        async with receiving() as receiver, http_hub(text, tmp_path) as hub:
            yield Place(hub, people, receiver)


@pytest.mark.parametrize("era", ERAS)
async def test_feeds_are_apart_and_a_cursor_of_the_other_is_worth_nothing(place: Place, era: str) -> None:
    async with (
        connected(place.hub, era, hub_token("anna")) as anna,
        connected(place.hub, era, hub_token("bert")) as bert,
        connected(place.hub, era, hub_token("carl")) as carl,
    ):
        assert await anna.names("events/list", "events") == ["mail", "mail_anna"]
        assert await bert.names("events/list", "events") == ["mail", "mail_bert"]
        pollers = Poller(anna, "mail"), Poller(bert, "mail")
        for poller in pollers:
            await poller.poll()
        async with streaming(anna, "mail", id="a") as of_anna, streaming(bert, "mail", id="b") as of_bert:
            place.happens(anna=1, bert=7)
            for stream, number, name in ((of_anna, 1, "anna"), (of_bert, 7, "bert")):
                await stream.until(lambda stream=stream: bool(stream.numbers))  # type: ignore[misc]
                assert [params["data"] for params in stream.of("event")] == [{"n": number, "of": name}]
        for poller, number in zip(pollers, (1, 7), strict=True):
            await poller.until(lambda poller=poller: bool(poller.numbers))  # type: ignore[misc]
            assert poller.numbers == [number]
        assert place.polls() == set(BOTH), "each over their own connection"
        place.happens(anna=2)
        await pollers[0].until(lambda: pollers[0].numbers == [1, 2])
        foreign = Poller(bert, "mail", pollers[0].cursor)
        result = await foreign.poll()
        assert (result["events"], result["truncated"]) == ([], True)
        hidden = (await bert.request("events/poll", {"name": "mail_anna", "cursor": pollers[0].cursor})).error
        assert hidden["code"] == -32023
        assert (await carl.request("events/poll", {"name": "mail", "cursor": pollers[0].cursor})).error
    assert place.polls() == set(BOTH)


async def test_webhooks_get_what_happens_to_their_own_account_and_end_with_it(place: Place) -> None:
    receiver = place.receiver
    async with (
        connected(place.hub, MODERN, hub_token("anna")) as anna,
        connected(place.hub, HANDSHAKE, hub_token("bert")) as bert,
    ):
        for peer, name in ((anna, "anna"), (bert, "bert")):
            await peer.names("events/list", "events")
            assert "result" in (await subscribe(peer, "mail", receiver.url(f"/{name}"))).answer
        place.happens(anna=1, bert=7)
        await receiver.until(lambda: len(receiver.of()) == 2)
        got = {post.path: post.json["data"] for post in receiver.of()}
        assert got == {"/anna": {"n": 1, "of": "anna"}, "/bert": {"n": 7, "of": "bert"}}
        error = (await unsubscribe(bert, "mail", receiver.url("/anna"))).error
        assert error["data"] == {"kind": "subscription"}
        async with RestClient(place.hub, hub_token("anna")) as rest:
            assert (await rest.ask("DELETE", "/accounts/people")).status_code == 200
        await receiver.until(lambda: bool(receiver.of("terminated")))
        assert [post.path for post in receiver.of("terminated")] == ["/anna"]
        place.happens(anna=2, bert=8)
        await receiver.until(lambda: receiver.numbers[2:] == [8])
        assert len(receiver.of(path="/anna")) == 1


async def waited(peer: Peer, arguments: dict[str, Any]) -> str:
    """The text of the first answer with an event."""
    with anyio.fail_after(WAIT):
        while '"eventId"' not in (text := (await peer.call("hub_events", arguments)).text):
            pass
    return text


async def test_the_tool_for_models_waits_for_events_of_the_callers_account(place: Place) -> None:
    async with (
        connected(place.hub, MODERN, hub_token("anna")) as anna,
        connected(place.hub, MODERN, hub_token("bert")) as bert,
    ):
        listed = (await anna.call("hub_events", {"action": "list"})).text
        assert "mail_anna" in listed and "mail_bert" not in listed
        cursors = {}
        for peer, name in ((anna, "anna"), (bert, "bert")):
            poller = Poller(peer, "mail")
            await poller.poll()
            cursors[name] = poller.cursor
        place.happens(anna=1, bert=7)
        for peer, name in ((anna, "anna"), (bert, "bert")):
            text = await waited(peer, {"action": "wait", "name": "mail", "after": cursors[name]})
            assert text.count('"eventId"') == 1 and f'"of": "{name}"' in text


async def test_over_rest_which_the_page_asks_too_each_reads_their_own(place: Place) -> None:
    async with RestClient(place.hub, hub_token("anna")) as anna, RestClient(place.hub, hub_token("bert")) as bert:
        types = [[one["name"] for one in (await rest.ask("GET", "/events")).json()["events"]] for rest in (anna, bert)]
        assert types == [["mail", "mail_anna"], ["mail", "mail_bert"]]

        async def read(rest: RestClient, after: str | None = None, **more: str) -> Any:
            query = {"name": "mail", "wait": "0", **({} if after is None else {"after": after}), **more}
            answer = await rest.ask("GET", f"/events?{urlencode(query)}")
            assert answer.status_code == 200, answer.text
            return answer.json()

        starts = [(await read(rest))["cursor"] for rest in (anna, bert)]
        place.happens(anna=1, bert=7)
        for rest, start, name in ((anna, starts[0], "anna"), (bert, starts[1], "bert")):
            page = await read(rest, start, wait="60")
            assert [event["data"]["of"] for event in page["events"]] == [name]
        foreign = await read(bert, starts[0])
        assert "anna" not in json.dumps(foreign)
        refused = await bert.ask("GET", "/events?name=mail_anna")
        assert refused.status_code == 404
