"""Messages to webhooks: where a name leads decides anew for each message (SEP-3415, delivery)."""

import math
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Any, NamedTuple

import anyio
import msgspec
import pytest

from mcp_hub.addresses import Address
from mcp_hub.call import StreamInfo
from mcp_hub.calls.feeds import deliveries
from mcp_hub.calls.feeds.deliveries import Callbacks
from mcp_hub.calls.feeds.reading import Topic
from mcp_hub.calls.reading.stored import done_with
from mcp_hub.errors import RpcError
from mcp_hub.ids import new_call_id
from mcp_hub.protocol.notifications import HOOK
from mcp_hub.protocol.shape.webhooks import Webhook
from mcp_hub.stores.base import Chunk
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import RawObject
from tests.interaction.hooked import KEY, Answer, Post, Receiver, receiving, taken

pytestmark = pytest.mark.anyio

NAME = "hooks.example.com"


class Names:
    """A name server; each look-up takes the next answer, the last one stays."""

    def __init__(self, *answers: Collection[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str) -> list[Address]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not answer:
            raise OSError("no such name")
        return [ip_address(each) for each in answer]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


class Sent(NamedTuple):
    status: int
    problem: str
    pause: float
    is_final: bool
    answer: bytes


async def _sent(names: Names, url: str, hosts: Collection[str]) -> Sent:
    async with Callbacks(lambda: hosts, names).to(url, "sub_1") as callback:
        outcome = await callback.send([KEY], "e1", b'{"eventId":"e1"}')
    return Sent(outcome.status, outcome.problem, outcome.pause, outcome.is_final, outcome.answer)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.1.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "fe80::1", "0.0.0.0"],
)
async def test_name_that_leads_inside_is_not_connected(address: str) -> None:
    names = Names([address])
    outcome = await _sent(names, f"https://{NAME}/x", [])
    assert (outcome.status, outcome.problem) == (0, "connection_refused")
    assert names.asked == [NAME]


async def test_name_that_leads_to_metadata_is_not_connected_though_its_host_is_allowed() -> None:
    outcome = await _sent(Names(["169.254.169.254"]), f"http://{NAME}/x", [NAME])
    assert outcome.problem == "connection_refused"


async def test_connection_goes_to_the_checked_address_with_the_name_in_its_host(receiver: Receiver) -> None:
    names = Names(["127.0.0.1"], ["10.0.0.1"])  # what a second look-up would say
    outcome = await _sent(names, f"http://{NAME}:{receiver.port}/x", ["*.example.com"])
    assert (outcome.status, outcome.problem) == (204, "")
    assert receiver.posts[0].headers["host"] == f"{NAME}:{receiver.port}"
    assert names.asked == [NAME]


async def test_name_that_changes_between_two_messages_is_checked_for_each(receiver: Receiver) -> None:
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    url = f"http://{NAME}:{receiver.port}/x"
    async with Callbacks(lambda: [NAME], names).to(url, "sub_1") as callback:
        assert not (await callback.send([KEY], "e1", b"{}")).problem
        assert (await callback.send([KEY], "e2", b"{}")).problem == "connection_refused"
    assert len(receiver.posts) == 1


async def test_inner_address_beside_an_allowed_one_is_passed_over(receiver: Receiver) -> None:
    outcome = await _sent(Names(["169.254.169.254", "127.0.0.1"]), f"http://{NAME}:{receiver.port}/x", [NAME])
    assert not outcome.problem


async def test_host_that_is_not_allowed_any_more_gets_nothing(receiver: Receiver) -> None:
    outcome = await _sent(Names(["127.0.0.1"]), receiver.url(), [])
    assert outcome.problem == "connection_refused" and receiver.posts == []


async def test_unknown_name_is_an_outcome() -> None:
    assert (await _sent(Names([]), f"https://{NAME}/", [])).problem == "connection_refused"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_not_followed(receiver: Receiver, status: int) -> None:
    async def respond(post: Post) -> Answer:
        return status, {"location": receiver.url("/elsewhere")}, b""

    receiver.respond = respond
    outcome = await _sent(Names(["127.0.0.1"]), receiver.url(), ["127.0.0.1"])
    assert (outcome.status, outcome.problem) == (status, "http_4xx")
    assert [post.path for post in receiver.posts] == ["/hook"]


@pytest.mark.parametrize(
    ("status", "problem", "pause", "is_final"),
    [
        (204, "", 0, False),
        (429, "http_4xx", 7, False),
        (503, "http_5xx", 7, False),
        (500, "http_5xx", 0, False),
        (410, "http_4xx", 0, True),
        (413, "http_4xx", 0, True),
    ],
)
async def test_outcome_by_status(receiver: Receiver, status: int, problem: str, pause: float, is_final: bool) -> None:
    async def respond(post: Post) -> Answer:
        return status, {"retry-after": "7"}, b"x" * 100

    receiver.respond = respond
    outcome = await _sent(Names(["127.0.0.1"]), receiver.url(), ["127.0.0.1"])
    assert (outcome.problem, outcome.pause, outcome.is_final) == (problem, pause, is_final)
    assert outcome.answer == b"", "no byte of it is read"


@pytest.mark.parametrize("event_id", ["a\r\nx-injected: 1", "é", "a b ", "", "x" * 600, "\x00"])
async def test_id_of_an_occurrence_injects_no_header(receiver: Receiver, event_id: str) -> None:
    async with Callbacks(lambda: ["127.0.0.1"]).to(receiver.url(), "sub_1") as callback:
        assert not (await callback.send([KEY], event_id, b"{}")).problem
    (post,) = receiver.posts
    assert "x-injected" not in post.headers
    assert post.headers["webhook-id"].startswith("msg_event_") and post.is_signed()


async def test_challenge_is_signed_and_has_to_come_back(receiver: Receiver) -> None:
    callbacks = Callbacks(lambda: ["127.0.0.1"])
    await callbacks.verify(receiver.url(), KEY, "sub_1")
    assert receiver.posts[0].is_signed() and receiver.posts[0].headers["webhook-id"].startswith("msg_verification_")

    async def respond(post: Post) -> Answer:
        status, headers, body = await taken(post)
        return status, headers, body[:-3] + b'x"}'

    receiver.respond = respond
    with pytest.raises(RpcError) as refused:
        await callbacks.verify(receiver.url(), KEY, "sub_1")
    assert (refused.value.code, refused.value.data) == (-32027, {"reason": "challenge_failed"})


async def test_proxy_of_the_environment_is_not_used_for_an_allowed_inner_host(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    outcome = await _sent(Names(["127.0.0.1"]), receiver.url(), ["127.0.0.1"])
    assert not outcome.problem


class Reader:
    """A feed with one occurrence."""

    problem = ended = None
    is_open = True
    cursor = "c1"

    def __init__(self) -> None:
        text = {"eventId": "e1", "timestamp": "2026-11-30T10:00:00Z", "data": {"n": 1}}
        occurrence = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in text.items()}
        self._unread = [(occurrence, "c1")]

    async def read(self, limit: int) -> tuple[list[tuple[RawObject, str]], bool]:
        occurrences, self._unread = self._unread, []
        return occurrences, False

    async def wait(self) -> None:
        await anyio.sleep_forever()

    def close(self) -> None:
        """Nothing is open."""


async def test_subscription_whose_server_lists_its_types_late_is_delivered_without_a_look_at_it(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "_LOOK", math.inf)
    monkeypatch.setattr(deliveries, "_STORE", 0.01)
    answers = iter([None, None])
    log = MemoryStore().log
    webhook = Webhook(
        id="sub_1", principal="ann", url=receiver.url(), name="b_done", arguments="{}", server="b", key="done",
        secret="",
    )  # fmt: skip
    row = StreamInfo(
        id=new_call_id(), principal="hooks", owner=log.instance, server="b", method=HOOK, name="b_done", created=0.0,
        updated=0.0, last=1, key="sub_1", continuation=msgspec.json.encode(webhook),
    )  # fmt: skip
    assert await done_with(partial(log.create, row, Chunk(1, (b"{}",)))) is None
    deliverer = deliveries.Deliverer(
        log=log, callbacks=Callbacks(lambda: ["127.0.0.1"]), keys=lambda webhook: [KEY], counts=Counter(),
        rights=lambda webhook: next(answers, (Topic("b", "done", b"{}"), ("push",))), open=_read,
    )  # fmt: skip
    delivery = deliveries.WebhookDelivery(deliverer, row, webhook, None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(delivery.run)
        await receiver.until(lambda: receiver.numbers == [1])
        tasks.cancel_scope.cancel()


async def _read(topic: Topic, modes: Sequence[str], webhook: Webhook) -> Any:
    return Reader()
