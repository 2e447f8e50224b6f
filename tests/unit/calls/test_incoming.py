"""Webhooks of servers, one message at a time: what is refused, what is stored, and what happens to a repeated one."""

import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.call import Heard
from mcp_hub.calls.feeds.incoming import Incoming
from mcp_hub.calls.feeds.reading import Topic
from mcp_hub.calls.feeds.sources import Take
from mcp_hub.calls.feeds.table import Feeds
from mcp_hub.calls.plan import StreamLimits
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.errors import Fenced, RpcError
from mcp_hub.protocol.shape.webhooks import secret_key, signed
from mcp_hub.stores.base import Message
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import CallId, RawJson, RawObject
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio

TOPIC = Topic("ci", "build.done", b"{}")


class Server:
    """A server that accepts each subscription, and what the hub has stored of its messages."""

    def __init__(self, **result: Any) -> None:
        self.result = {"id": "s", "refreshBefore": None, "cursor": "c0", "truncated": False, **result}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.taken: list[tuple[list[str], str | None, bool]] = []
        self.stands = anyio.Event()
        self.problem: Exception | None = None

    async def ask(self, method: str, params: RawObject, heard: Heard | None) -> RawJson:
        self.requests.append((method, json.loads(msgspec.json.encode(params))))
        return msgspec.Raw(json.dumps(self.result).encode())

    async def take(self, occurrences: Sequence[RawObject], cursor: str | None, truncated: bool) -> None:
        if self.problem is not None:
            raise self.problem
        self.taken.append(([msgspec.json.decode(each["eventId"]) for each in occurrences], cursor, truncated))
        self.stands.set()

    @property
    def id(self) -> str:
        return str(self.requests[-1][1]["delivery"]["url"]).rpartition("/")[2]

    @property
    def key(self) -> bytes:
        return secret_key(self.requests[-1][1]["delivery"]["secret"])

    @property
    def ids(self) -> list[str]:
        return [id_ for ids, _, _ in self.taken for id_ in ids]


@pytest.fixture
def incoming() -> Incoming:
    table = StreamTable(MemoryStore(), SystemClock(), StreamLimits())
    return Incoming(table, {}, lambda: "https://hub.example.com/", lambda: b"k" * 32)


@asynccontextmanager
async def subscribed(incoming: Incoming, server: Server, cursor: str | None = None) -> AsyncIterator[list[object]]:
    """The subscription, once it stands; at its end its verdict or error is in the list."""
    outcome: list[object] = []

    async def run() -> None:
        try:
            outcome.append(await incoming.source(server.ask, TOPIC, cursor, server.take, lambda problem: None))
        except (RpcError, Fenced) as problem:
            outcome.append(problem)

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await server.stands.wait()
            await anyio.lowlevel.checkpoint()
            yield outcome
            tasks.cancel_scope.cancel()


async def post(
    incoming: Incoming, server: Server, body: object, id_: str = "e1", *, key: bytes | None = None, skew: float = 0
) -> int:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = signed([server.key if key is None else key], id_, text, wall_time() + skew)
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    return (await incoming.receive(server.id, raw, text)).status


def event(id_: str, cursor: str | None = None, name: str = "build.done") -> dict[str, Any]:
    return {"eventId": id_, "name": name, "timestamp": "2026-11-30T10:00:00Z", "data": {}, "cursor": cursor}


async def test_events_are_stored_with_their_cursor_before_they_are_answered(incoming: Incoming) -> None:
    server = Server()
    async with subscribed(incoming, server):
        assert await post(incoming, server, event("e1", "c1")) == 200
        assert await post(incoming, server, event("e2"), "e2") == 200
        assert server.taken == [([], "c0", False), (["e1"], "c1", False), (["e2"], "c1", False)]


async def test_cursor_of_the_feed_counts_unless_the_server_has_lost_it(incoming: Incoming) -> None:
    server = Server()
    async with subscribed(incoming, server, "c5"):
        assert server.taken == [([], "c5", False)]
        assert server.requests[0][1]["cursor"] == "c5"
    server = Server(truncated=True)
    async with subscribed(incoming, server, "c5"):
        assert server.taken == [([], "c0", True)]


async def test_message_with_a_known_id_changes_nothing(incoming: Incoming) -> None:
    server = Server()
    async with subscribed(incoming, server):
        for _ in range(3):
            assert await post(incoming, server, event("e1", "c1")) == 200
        assert server.ids == ["e1"]
        for _ in range(2):
            assert await post(incoming, server, {"type": "gap", "cursor": "c9"}, "msg_gap_1") == 200
        assert server.taken[2:] == [([], "c9", True)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b"[" * 200_000, 400),
        ({"type": "unheard-of"}, 400),
        (event("e1", name="build.other"), 400),
        ({"eventId": "e1"}, 400),
    ],
)
async def test_signed_message_without_sense_is_refused(incoming: Incoming, body: object, status: int) -> None:
    server = Server()
    async with subscribed(incoming, server):
        assert await post(incoming, server, body) == status
        assert server.ids == []


@pytest.mark.parametrize(("key", "skew"), [(b"x" * 32, 0), (b"", 0), (None, -301), (None, 302)])
async def test_message_of_another_key_or_time_is_refused(incoming: Incoming, key: bytes | None, skew: float) -> None:
    server = Server()
    async with subscribed(incoming, server):
        assert await post(incoming, server, event("e1"), key=key, skew=skew) == 401
        assert server.ids == [] and incoming.refused == 1


async def test_secret_of_another_subscription_does_not_fit(incoming: Incoming) -> None:
    server, stranger = Server(), Server()
    other = Topic("ci", "build.other", b"{}")
    async with subscribed(incoming, server), anyio.create_task_group() as tasks:
        tasks.start_soon(incoming.source, stranger.ask, other, None, stranger.take, lambda problem: None)
        await stranger.stands.wait()
        assert await post(incoming, server, event("e1"), key=stranger.key) == 401
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("id_", ["", "0" * 64, "0" * 63, "g" * 64, "../" * 20, "\u0660" * 64])
def test_address_that_the_hub_has_not_made_is_unknown(incoming: Incoming, id_: str) -> None:
    assert not incoming.takes(id_)


async def test_address_and_secret_follow_from_the_key_and_the_topic(incoming: Incoming) -> None:
    server, again = Server(), Server()
    async with subscribed(incoming, server):
        assert incoming.takes(server.id)
    async with subscribed(incoming, again):
        assert (again.id, again.key) == (server.id, server.key)
    table = StreamTable(MemoryStore(), SystemClock(), StreamLimits())
    assert not Incoming(table, {}, lambda: None, lambda: b"j" * 32).takes(server.id)


async def test_challenge_is_answered_only_if_it_is_signed(incoming: Incoming) -> None:
    server = Server()
    async with subscribed(incoming, server):
        text = b'{"type":"verification","challenge":"n1"}'
        headers = {k.encode(): v.encode() for k, v in signed([server.key], "m1", text, wall_time()).items()}
        assert json.loads((await incoming.receive(server.id, headers, text)).body) == {"challenge": "n1"}
        forged = {**headers, b"webhook-signature": b"v1," + base64.b64encode(b"0" * 32)}
        assert b"n1" not in (await incoming.receive(server.id, forged, text)).body


async def test_server_ends_a_subscription(incoming: Incoming) -> None:
    server = Server()
    error = {"code": -32011, "message": "gone", "data": {"kind": "event"}}
    async with subscribed(incoming, server) as outcome:
        old = {"type": "terminated", "error": error}
        assert await post(incoming, server, old, "msg_0", skew=-200) == 200
        assert outcome == [], "it was about an earlier subscription"
        assert await post(incoming, server, old, "msg_1") == 200
        while not outcome:
            await anyio.lowlevel.checkpoint()
        (verdict,) = outcome
        assert isinstance(verdict, RpcError) and verdict.code == -32023


async def test_old_end_that_another_replica_hands_over_ends_nothing(incoming: Incoming) -> None:
    server, body = Server(), b'{"type":"terminated","error":{"code":-32023,"message":"gone"}}'
    async with subscribed(incoming, server) as outcome, anyio.create_task_group() as tasks:
        tasks.start_soon(incoming.run)
        await anyio.wait_all_tasks_blocked()
        for skew in (-200, 0):
            handed = {"feed": server.id[:32], "id": f"msg_{skew}", "body": base64.b64encode(body).decode()}
            message = json.dumps({**handed, "at": int(wall_time()) + skew}).encode()
            assert incoming._hear(Message(CallId("st_x"), "input", message))
            await anyio.wait_all_tasks_blocked()
            assert bool(outcome) is (skew == 0)
        tasks.cancel_scope.cancel()


async def test_message_that_cannot_be_stored_is_to_be_sent_again(incoming: Incoming) -> None:
    server = Server()
    async with subscribed(incoming, server) as outcome:
        server.problem = Fenced("another hub has it")
        assert await post(incoming, server, event("e1")) == 503
        while not outcome:
            await anyio.lowlevel.checkpoint()
        assert isinstance(outcome[0], Fenced)
        assert await post(incoming, server, event("e1")) == 404, "the feed is gone from here"


async def test_unused_subscription_is_ended_at_the_server(incoming: Incoming) -> None:
    server = Server()
    async with subscribed(incoming, server):
        pass
    url = server.requests[0][1]["delivery"]["url"]
    await incoming.leave(server.ask, TOPIC)
    assert server.requests[-1] == (
        "events/unsubscribe", {"name": "build.done", "arguments": {}, "delivery": {"mode": "webhook", "url": url}}
    )  # fmt: skip


async def test_without_a_public_url_nothing_is_subscribed() -> None:
    table = StreamTable(MemoryStore(), SystemClock(), StreamLimits())
    server = Server()
    with pytest.raises(RpcError, match=r"hub\.http\.public_url"):
        await Incoming(table, {}, lambda: None, lambda: b"k").source(server.ask, TOPIC, None, server.take, print)
    assert server.requests == []


async def test_feed_that_nobody_reads_leaves_its_server() -> None:
    left = anyio.Event()

    async def source(ask: object, topic: Topic, cursor: str | None, take: Take, tell: object) -> RpcError | None:
        await take((), "c1", False)
        await anyio.sleep_forever()
        return None

    async def leave(ask: object, topic: Topic) -> None:
        assert topic == TOPIC
        left.set()

    table = StreamTable(MemoryStore(), SystemClock(), StreamLimits())
    feeds = Feeds(table, {}, lambda: 60.0, {"webhook": source}, linger=(0.0, 0.0), look=0.01)
    feeds.leaving["webhook"] = leave
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feeds.run)
            reader = await feeds.open(TOPIC, ["webhook"], None, "alice")
            assert not left.is_set()
            reader.close()
            await left.wait()
            tasks.cancel_scope.cancel()
