"""Webhooks of the hub: subscriptions, deliveries, and receivers that attack or are attacked (SEP-3415)."""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from anyio.abc import ByteStream

from tests.e2e.client import Hub
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, connected, http_hub
from tests.interaction.hooked import KEY, SECRET, Answer, Post, Receiver, receiving, subscribe, taken, unsubscribe
from tests.interaction.hub_process import hub_process
from tests.interaction.occurring import Poller, Service, config
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio

NAME = "b_build_done"
HOSTS = {"events": {"webhook_hosts": ["127.0.0.1"]}}


@dataclass
class Place:
    """A hub over one server with events, and a receiver."""

    hub: Hub
    service: Service
    receiver: Receiver


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    service = Service(tmp_path, "b")
    async with receiving() as receiver, http_hub(_config(service), tmp_path) as hub:
        yield Place(hub, service, receiver)


def _config(service: Service, **hub: Any) -> str:
    return config({"b": service.argv(MODERN, "push")}, **{**HOSTS, **hub})


@pytest.mark.parametrize("era", ERAS)
async def test_occurrences_arrive_signed_in_order_each_once_until_the_subscription_ends(place: Place, era: str) -> None:
    receiver, service = place.receiver, place.service
    async with connected(place.hub, era) as peer:
        await peer.names("events/list", "events")
        result = (await subscribe(peer, NAME, receiver.url())).result
        assert (result["truncated"], result["deliveryStatus"]["active"]) == (False, True)
        assert result["refreshBefore"].endswith("Z")
        service.happens(1, 2, 3)
        await receiver.until(lambda: receiver.numbers == [1, 2, 3])
        first, *posts = receiver.posts
        assert first.json["type"] == "verification"
        assert all(post.is_signed() for post in receiver.posts)
        assert all(post.headers["x-mcp-subscription-id"] == result["id"] for post in receiver.posts)
        assert [post.headers["webhook-id"] for post in posts] == ["e1", "e2", "e3"]
        assert posts[0].json["name"] == NAME and posts[0].json["eventId"] == "e1"
        again = (await subscribe(peer, NAME, receiver.url())).result
        assert again["id"] == result["id"]
        assert again["cursor"] == posts[-1].json["cursor"], "the stored cursor is behind what was taken"
        assert again["deliveryStatus"]["lastDeliveryAt"]
        await unsubscribe(peer, NAME, receiver.url())
        poller = Poller(peer, NAME, again["cursor"])
        service.happens(4)
        await poller.until(lambda: poller.numbers == [4])
        assert (await unsubscribe(peer, NAME, receiver.url())).error["data"] == {"kind": "subscription"}
        assert receiver.numbers == [1, 2, 3]
        assert len(receiver.of("verification")) == 1, "a verified URL is not asked again"


async def test_cursor_and_age_of_a_subscription_replay_what_it_has_missed(place: Place) -> None:
    receiver, service = place.receiver, place.service
    async with connected(place.hub, MODERN) as peer:
        poller = Poller(peer, NAME)
        await poller.poll()
        begin = poller.cursor
        service.happens(1, 2)
        await poller.until(lambda: len(poller.numbers) == 2)
        assert not (await subscribe(peer, NAME, receiver.url("/all"), cursor=begin)).result["truncated"]
        await receiver.until(lambda: receiver.numbers == [1, 2])
        result = (await subscribe(peer, NAME, receiver.url("/lost"), cursor="st_00000000000000000000000000.5")).result
        assert result["truncated"] is True


async def test_failed_attempts_are_repeated_with_one_id_and_the_next_occurrence_waits(place: Place) -> None:
    receiver, service = place.receiver, place.service
    failures = iter([503, 500])

    async def respond(post: Post) -> Answer:
        if "type" not in post.json and (status := next(failures, 0)):
            return status, {"retry-after": "0"}, b""
        return await taken(post)

    receiver.respond = respond
    async with connected(place.hub, MODERN) as peer:
        await subscribe(peer, NAME, receiver.url())
        service.happens(1, 2)
        await receiver.until(lambda: len(receiver.numbers) >= 2)
        status = (await subscribe(peer, NAME, receiver.url())).result["deliveryStatus"]
        assert status["lastError"] == "http_5xx" and "failedSince" in status
        for _ in range(3):  # a refresh brings the next attempt forward
            await subscribe(peer, NAME, receiver.url())
        await receiver.until(lambda: len(receiver.numbers) == 4)
        assert receiver.numbers == [1, 1, 1, 2]
        assert [post.headers["webhook-id"] for post in receiver.of()] == ["e1", "e1", "e1", "e2"]
        assert (await subscribe(peer, NAME, receiver.url())).result["deliveryStatus"]["lastError"] is None


async def test_refreshes_of_a_receiver_that_fails_use_up_none_of_its_attempts(place: Place) -> None:
    receiver, attempts = place.receiver, 8

    async def respond(post: Post) -> Answer:
        return (500, {}, b"") if 0 < len(receiver.numbers) <= attempts else await taken(post)

    receiver.respond = respond
    async with connected(place.hub, MODERN) as peer:
        await subscribe(peer, NAME, receiver.url())
        place.service.happens(1, 2)
        for attempt in range(attempts):
            await receiver.until(lambda: len(receiver.numbers) > attempt)  # noqa: B023 - it ends before the next
            await subscribe(peer, NAME, receiver.url())
        await receiver.until(lambda: receiver.numbers[-1] == 2)
        assert receiver.numbers == [1] * (attempts + 1) + [2], "it was not given up"


async def test_receiver_that_is_gone_gets_nothing_until_it_is_refreshed(place: Place) -> None:
    receiver, service = place.receiver, place.service
    is_gone = True

    async def respond(post: Post) -> Answer:
        return (410, {}, b"") if is_gone and "type" not in post.json else await taken(post)

    receiver.respond = respond
    async with connected(place.hub, MODERN) as peer:
        await subscribe(peer, NAME, receiver.url())
        service.happens(1, 2, 3, 4)
        await receiver.until(lambda: len(receiver.numbers) == 3)
        poller = Poller(peer, NAME, receiver.of()[2].json["cursor"])
        await poller.until(lambda: poller.numbers == [4])
        assert receiver.numbers == [1, 2, 3], "a 410 is not repeated, and after three of them nothing is sent"
        (server,) = httpx2.get(place.hub.url.removesuffix("mcp") + "v1/servers").json()["servers"]
        assert server["given_up"] == 3, "mcp-hub status and the page show it"
        is_gone = False
        assert (await subscribe(peer, NAME, receiver.url())).result["deliveryStatus"]["active"] is True
        await receiver.until(lambda: receiver.numbers[3:] == [4])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, {}, b'{"challenge":"other"}'), "challenge_failed"),
        ((200, {}, b"x" * 100_000), "challenge_failed"),
        ((204, {}, b""), "challenge_failed"),
        ((404, {}, b""), "http_4xx"),
        ((500, {}, b""), "http_5xx"),
        ((302, {"location": "http://127.0.0.1:1/"}, b""), "http_4xx"),
        ((307, {"location": "http://169.254.169.254/latest"}, b""), "http_4xx"),
    ],
)
async def test_callback_that_fails_the_challenge_gets_nothing(place: Place, answer: Answer, reason: str) -> None:
    async def respond(post: Post) -> Answer:
        return answer

    place.receiver.respond = respond
    async with connected(place.hub, MODERN) as peer:
        error = (await subscribe(peer, NAME, place.receiver.url())).error
        assert (error["code"], error["data"]) == (-32027, {"reason": reason})
        assert len(place.receiver.posts) == 1, "no redirect is followed"
        assert (await unsubscribe(peer, NAME, place.receiver.url())).error["data"] == {"kind": "subscription"}


async def test_answer_without_end_is_not_read(place: Place) -> None:
    sent = 0

    async def flood(stream: ByteStream, post: Post) -> bool:
        nonlocal sent
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10737418240\r\n\r\n")
        while True:
            await stream.send(b"x" * 65536)
            sent += 65536

    place.receiver.raw = flood
    async with connected(place.hub, MODERN) as peer:
        error = (await subscribe(peer, NAME, place.receiver.url())).error
        assert error["data"] == {"reason": "challenge_failed"}
        assert sent < 64 << 20, "what the sockets hold"


async def test_slow_receiver_holds_up_nobody_else(place: Place) -> None:
    receiver, service = place.receiver, place.service

    async def respond(post: Post) -> Answer | None:
        return None if post.path == "/slow" and "type" not in post.json else await taken(post)

    receiver.respond = respond
    async with connected(place.hub, MODERN) as peer:
        for path in ("/slow", "/fast"):
            await subscribe(peer, NAME, receiver.url(path))
        service.happens(1)
        await receiver.until(lambda: len(receiver.of(path="/slow")) == 1)
        service.happens(2, 3)
        await receiver.until(lambda: len(receiver.of(path="/fast")) == 3)
        assert len(receiver.of(path="/slow")) == 1
        await unsubscribe(peer, NAME, receiver.url("/slow"))


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/x", "http://localhost/x", "https://[::1]/x", "https://167772161/x", "http://169.254.169.254/",
        "https://a@example.com/", "https://example.com:22/", "https://xn--a\u0301.example/", "file:///etc/passwd",
    ],
)  # fmt: skip
async def test_address_that_is_not_allowed_is_refused_before_anything_is_sent(place: Place, url: str) -> None:
    async with connected(place.hub, MODERN) as peer:
        assert (await subscribe(peer, NAME, url)).error["code"] == -32602


@pytest.mark.parametrize(
    "changes",
    [
        {"delivery": {"mode": "webhook", "url": "URL", "secret": "short"}},
        {"delivery": {"mode": "email", "url": "URL", "secret": SECRET}},
        {"delivery": []},
        {"delivery": {"mode": "webhook", "url": 7, "secret": SECRET}},
        {"arguments": []},
        {"ttlMs": "long"},
        {"name": ""},
    ],
)
async def test_malformed_subscription_is_refused(place: Place, changes: dict[str, Any]) -> None:
    url = place.receiver.url()
    text = json.dumps(changes).replace("URL", url)
    async with connected(place.hub, MODERN) as peer:
        params = {"name": NAME, "delivery": {"mode": "webhook", "url": url, "secret": SECRET}, **json.loads(text)}
        assert (await peer.request("events/subscribe", params)).error["code"] in (-32602, -32023)
        assert place.receiver.posts == []


async def test_replaced_secret_signs_beside_the_former_one(place: Place) -> None:
    receiver, service = place.receiver, place.service
    other = b"f" * 32
    async with connected(place.hub, MODERN) as peer:
        await subscribe(peer, NAME, receiver.url())
        await subscribe(peer, NAME, receiver.url(), secret="whsec_" + base64.b64encode(other).decode())
        service.happens(1)
        await receiver.until(lambda: receiver.numbers == [1])
        (post,) = receiver.of()
        assert post.is_signed(KEY) and post.is_signed(other)


async def test_sixty_four_subscriptions_of_a_principal_are_the_most(place: Place) -> None:
    async with connected(place.hub, MODERN) as peer:
        results = [await subscribe(peer, NAME, place.receiver.url(), arguments={"n": n}) for n in range(100)]
        refused = [seen.answer["error"] for seen in results if "error" in seen.answer]
        assert len(results) - len(refused) == 64
        assert {(error["code"], error["data"]["limit"]) for error in refused} == {(-32025, "subscriptions")}
        assert len(place.receiver.of("verification")) == 1
        await unsubscribe(peer, NAME, place.receiver.url(), arguments={"n": 0})
        assert "result" in (await subscribe(peer, NAME, place.receiver.url(), arguments={"n": 200})).answer


async def test_one_thousand_subscriptions_at_once_are_bounded(place: Place) -> None:
    outcomes: list[dict[str, Any]] = []
    async with connected(place.hub, MODERN) as peer:

        async def once(number: int) -> None:
            seen = await subscribe(peer, NAME, place.receiver.url(f"/{number}"), arguments={"n": number % 7})
            outcomes.append(seen.answer)

        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as tasks:
                for number in range(1000):
                    tasks.start_soon(once, number)
                    if number % 50 == 49:
                        await anyio.lowlevel.checkpoint()
    accepted = sum("result" in answer for answer in outcomes)
    assert 0 < accepted <= 64
    codes = {answer["error"]["code"] for answer in outcomes if "error" in answer}
    assert codes <= {-32025, 1004, -32027}, codes  # the last one: this receiver was too slow for its challenge


TOKENS: dict[str, Any] = {
    "tokens": [
        {"token": "alice-0123456789abcdef", "principal": "alice"},
        {"token": "bob-0123456789abcdef012", "principal": "bob"},
    ]
}


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Place]:
    service = Service(tmp_path, "b")
    async with receiving() as receiver, hub_process(_config(service, **TOKENS), tmp_path) as hub:
        yield Place(hub, service, receiver)


async def test_subscription_of_another_principal_cannot_be_ended_or_refreshed(shared: Place) -> None:
    receiver, url = shared.receiver, shared.receiver.url()
    async with (
        connected(shared.hub, MODERN, "alice-0123456789abcdef") as alice,
        connected(shared.hub, HANDSHAKE, "bob-0123456789abcdef012") as bob,
    ):
        of_alice = (await subscribe(alice, NAME, url)).result
        assert (await unsubscribe(bob, NAME, url)).error["data"] == {"kind": "subscription"}
        of_bob = (await subscribe(bob, NAME, url)).result
        assert of_bob["id"] != of_alice["id"]
        assert len(receiver.of("verification")) == 2, "what one has verified is nothing to another"
        await unsubscribe(bob, NAME, url)
        shared.service.happens(1)
        await receiver.until(lambda: receiver.numbers == [1])
        assert receiver.of()[0].headers["x-mcp-subscription-id"] == of_alice["id"]


async def test_webhook_ends_with_the_token_of_its_principal(shared: Place, tmp_path: Path) -> None:
    receiver, service = shared.receiver, shared.service
    async with connected(shared.hub, MODERN, "alice-0123456789abcdef") as alice:
        await subscribe(alice, NAME, receiver.url())
        service.happens(1)
        await receiver.until(lambda: receiver.numbers == [1])
    _rewrite(tmp_path, lambda hub: hub.update(tokens=TOKENS["tokens"][1:]))
    await receiver.until(lambda: bool(receiver.of("terminated")))
    (post,) = receiver.of("terminated")
    assert post.json["error"]["code"] == -32024 and post.is_signed()
    async with connected(shared.hub, MODERN, "bob-0123456789abcdef012") as bob:
        poller = Poller(bob, NAME)
        await poller.poll()
        service.happens(2)
        await poller.until(lambda: poller.numbers == [2])
    assert receiver.numbers == [1]


async def test_webhook_ends_when_a_filter_hides_its_type(shared: Place, tmp_path: Path) -> None:
    receiver = shared.receiver
    async with connected(shared.hub, MODERN, "alice-0123456789abcdef") as alice:
        await subscribe(alice, NAME, receiver.url())
    _rewrite(tmp_path, lambda _: None, events={"deny": ["build.done"]})
    await receiver.until(lambda: bool(receiver.of("terminated")))
    assert receiver.of("terminated")[0].json["error"]["data"] == {"kind": "event"}


def _rewrite(root: Path, change: Any, **server: Any) -> None:
    file = root / "servers.yaml"
    settings = json.loads(file.read_text())
    change(settings["hub"])
    settings["servers"]["b"].update(server)
    file.write_text(json.dumps(settings))


async def test_hub_killed_between_post_and_cursor_sends_it_again_with_one_id(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    arrived = anyio.Event()
    is_first = True

    async with receiving() as receiver:

        async def respond(post: Post) -> Answer | None:
            nonlocal is_first
            if is_first and post.json.get("eventId") == "e2":
                is_first = False
                arrived.set()
                return None  # the hub never hears of it
            return await taken(post)

        receiver.respond = respond
        async with hub_process(_config(service), tmp_path) as hub:
            async with connected(hub, MODERN) as peer:
                await subscribe(peer, NAME, receiver.url(), ttlMs=None)
            service.happens(1, 2)
            with anyio.fail_after(WAIT):
                await arrived.wait()
            hub.kill()
        service.happens(3)
        async with hub_process(_config(service), tmp_path) as hub:
            await receiver.until(lambda: receiver.numbers[-1:] == [3])
            assert receiver.numbers == [1, 2, 2, 3]
            assert [post.headers["webhook-id"] for post in receiver.of()] == ["e1", "e2", "e2", "e3"]
            async with connected(hub, MODERN) as peer:
                await peer.names("events/list", "events")
                result = (await subscribe(peer, NAME, receiver.url(), ttlMs=None)).result
                assert result["refreshBefore"] is None
        assert len(receiver.of("verification")) == 1
