"""What keeps webhooks secret: TLS with certificates that the hub trusts or refuses, and no secret that can be read."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from mcp_hub.wire.http_client import EXTRA_CERTIFICATES
from tests.e2e.client import Hub
from tests.interaction.fronts import MODERN, connected
from tests.interaction.hooked import SECRET, Answer, Post, Receiver, receiving, subscribe, unsubscribe
from tests.interaction.hub_process import hub_process
from tests.interaction.occurring import Service, config
from tests.unit.upstreams.test_http_client import Authority

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

NAME = "b_build_done"
HOST = "127.0.0.1"


class Place:
    """A hub that trusts `authority`, and a receiver with its certificate."""

    def __init__(self, hub: Hub, service: Service, receiver: Receiver, authority: Authority) -> None:
        self.hub = hub
        self.service = service
        self.receiver = receiver
        self.authority = authority

    def count(self, name: str) -> int:
        text = httpx2.get(self.hub.url.removesuffix("mcp") + "metrics").text
        found = re.search(rf"^mcp_hub_webhooks_{name}_total (\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0


def _config(service: Service) -> str:
    return config({"b": service.argv(MODERN, "push")}, events={"webhook_hosts": [HOST]})


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    authority, service = Authority(tmp_path), Service(tmp_path, "b")
    text = _config(service)
    async with (
        receiving(authority.server(HOST)) as receiver,
        hub_process(text, tmp_path, **{EXTRA_CERTIFICATES: str(authority.file)}) as hub,
    ):
        yield Place(hub, service, receiver, authority)


async def test_receiver_gets_events_over_tls_and_a_bad_certificate_is_a_failed_attempt(place: Place) -> None:
    receiver, trusted = place.receiver, place.receiver.tls
    async with connected(place.hub, MODERN) as peer:
        assert receiver.url().startswith("https://")
        assert "result" in (await subscribe(peer, NAME, receiver.url())).answer
        receiver.tls = place.authority.server("other.example")
        place.service.happens(1)
        await receiver.until(lambda: place.count("failed") >= 1)
        status = (await subscribe(peer, NAME, receiver.url())).result["deliveryStatus"]
        assert status["lastError"] == "tls_error" and "failedSince" in status
        assert receiver.numbers == [], "nothing is sent before the certificate is judged"
        receiver.tls = trusted
        while not receiver.numbers:  # a refresh brings the next attempt forward
            await subscribe(peer, NAME, receiver.url())
        assert receiver.numbers == [1] and receiver.of()[0].is_signed()
        assert (await subscribe(peer, NAME, receiver.url())).result["deliveryStatus"]["lastError"] is None
        assert place.count("delivered") == 1


@pytest.mark.parametrize("fault", ["authority", "name", "expired"])
async def test_challenge_is_not_sent_to_a_receiver_with_a_bad_certificate(
    place: Place, fault: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    place.receiver.tls = {
        "authority": lambda: Authority(tmp_path / "other").server(HOST),
        "name": lambda: place.authority.server("other.example"),
        "expired": lambda: place.authority.server(HOST, days=-1),
    }[fault]()
    async with connected(place.hub, MODERN) as peer:
        error = (await subscribe(peer, NAME, place.receiver.url())).error
        assert (error["code"], error["data"]) == (-32027, {"reason": "tls_error"})
        assert str(tmp_path) not in json.dumps(error)
    assert place.receiver.posts == []


DOCUMENT = "/.well-known/mcp-webhook-receiver.json"
LISTS = {"receivers": ["/hooks/", "/exact", 7, None, "", "hooks", "/v1/../x/"]}
CONSENTS: tuple[tuple[str, int, object, bool], ...] = (
    ("/hooks/a?b=c", 200, LISTS, True),
    ("/exact", 200, LISTS, True),
    ("/exact/more", 200, LISTS, True),
    ("/anything", 200, {"receivers": ["/"]}, True),
    ("/exactly", 200, LISTS, False),
    ("/hooks", 200, LISTS, False),
    ("/x/a", 200, LISTS, False),
    ("/hooks/%2e%2e/admin", 200, LISTS, False),
    ("/hooks/a%2F..%2Fadmin", 200, LISTS, False),
    ("/hooks/../admin", 200, LISTS, False),
    ("/hooks//admin", 200, LISTS, False),
    ("/hooks/a;b", 200, LISTS, False),
    ("/hooks/a", 200, {"receivers": ["//", "/hooks//", "/*", "/hooks/../hooks/"]}, False),
    ("/hooks/a", 404, LISTS, False),
    ("/hooks/a", 302, LISTS, False),
    ("/hooks/a", 200, {"receivers": "/hooks/"}, False),
    ("/hooks/a", 200, ["/hooks/"], False),
    ("/hooks/a", 200, {**LISTS, "more": "x" * 5000}, False),
)
"""Path of a webhook, the status and body of the origin's document, and whether it stands for the challenge."""


async def test_origin_can_publish_which_paths_take_messages_in_place_of_an_answer_to_the_challenge(
    place: Place,
) -> None:
    receiver, status, document = place.receiver, 0, b""

    async def respond(post: Post) -> Answer:
        if post.path != DOCUMENT:
            return (204 if post.headers["webhook-id"].startswith("e") else 404), {}, b""
        return status, {"location": f"{receiver.url()}"}, document

    receiver.respond = respond
    async with connected(place.hub, MODERN) as peer:
        for path, status, content, is_verified in CONSENTS:
            document = json.dumps(content).encode()
            answer = (await subscribe(peer, NAME, receiver.url(path))).answer
            assert ("result" in answer) is is_verified, (path, status, content, answer)
            if not is_verified:
                assert answer["error"]["data"] == {"reason": "http_4xx"}, "of the challenge"
                continue
            place.service.happens(len(receiver.posts))
            await receiver.until(lambda path=path: any(post.path == path for post in receiver.of()))  # type: ignore[misc]
            await unsubscribe(peer, NAME, receiver.url(path))
        assert not any("webhook-signature" in post.headers for post in receiver.posts if post.path == DOCUMENT)


async def test_document_of_an_origin_without_tls_does_not_count(place: Place) -> None:
    async def respond(post: Post) -> Answer:
        return (200, {}, json.dumps(LISTS).encode()) if post.path == DOCUMENT else (404, {}, b"")

    async with receiving() as receiver, connected(place.hub, MODERN) as peer:
        receiver.respond = respond
        assert "error" in (await subscribe(peer, NAME, receiver.url("/hooks/a"))).answer
        assert [post.path for post in receiver.posts] == ["/hooks/a"]


async def test_secret_is_not_readable_in_the_store(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    async with receiving() as receiver, hub_process(_config(service), tmp_path) as hub:
        async with connected(hub, MODERN) as peer:
            await subscribe(peer, NAME, receiver.url())
    stored = _stored(tmp_path)
    assert any(name.startswith("streams.db") for name in stored)
    for name, content in stored.items():
        assert SECRET[6:].encode() not in content, name


def _stored(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}
