"""Clients of events that outlive hubs and servers: one that polls, one that streams, and one with a webhook.

Each belongs to one event type, and goes to any hub for each request. Its cursor counts as taken with what came before
it, so that every event has to come, once and in order; a webhook's after equal ids are dropped.
"""

import base64
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import anyio
import httpx2
from anyio.abc import TaskStatus

from tests.e2e.client import HttpClient
from tests.interaction.fronts import Peer
from tests.interaction.hooked import KEY, Answer, Post, Receiver, subscribe, taken
from tests.upstreams.child import PeerClosed
from tests.upstreams.messages import Message

_LOST = (httpx2.TransportError, PeerClosed, TimeoutError, ValueError, AssertionError)
"""How a hub that is killed ends a request; its answer may be cut off, or come from the web server when it stops."""
_PAUSE: Final = 0.05
_ANSWER: Final = 60.0
"""Seconds for an answer, and between two messages of a stream."""
_DEFINITE: Final = frozenset({-32601, -32602, -32023, -32024, -32025, -32026, -32027})
"""Codes after which a client would not try again."""
_KEYS: Final = (KEY, b"fedcba9876543210fedcba9876543210")
_REFUSED: Final = 0.004
_SLOW: Final = 0.01
"""Shares of messages that the receiver refuses once, and answers late."""
_LATE: Final = (0.5, 0.5, 0.5, 2.0, 2.0, 11.0)
"""Seconds; the hub does not wait for the last ones."""
_DOWN: Final = 1.5

AnyPeer = Callable[[], Peer]
"""A connection to any hub."""


class Client:
    """A subscriber. `numbers` has the events in the order of their arrival, `errors` the codes of answers."""

    way = ""

    def __init__(self, server: str, name: str, peer: AnyPeer, rng: random.Random) -> None:
        self.server = server
        self.params: dict[str, Any] = {"name": name, "arguments": {}}
        self.cursor: str | None = None
        self.numbers: list[int] = []
        self.faults: list[str] = []
        self.errors = Counter[int]()
        self.losses = 0
        self.again = 0
        """Connections that broke off, and events that came again and were dropped."""
        self._peer = peer
        self._rng = rng

    async def run(self) -> None:
        """Reads until cancelled; has begun when it has a cursor."""
        while True:
            try:
                await self.read(self._peer())
            except _LOST:
                self.losses += 1
            await anyio.sleep(self._rng.uniform(0, 2 * _PAUSE))

    async def read(self, peer: Peer) -> None:
        raise NotImplementedError

    def fail(self, error: Message) -> None:
        self.errors[error["code"]] += 1
        if error["code"] in _DEFINITE:
            self.faults.append(f"{self}: an answer that ends a subscription: {error}")

    def miss(self) -> None:
        self.faults.append(f"{self}: a gap behind {len(self.numbers)} events, though its server replays everything")

    def judge(self, happened: int) -> None:
        expected = list(range(1, happened + 1))
        if self.numbers != expected:
            missing, doubled = sorted({*expected} - {*self.numbers}), len(self.numbers) - len({*self.numbers})
            fault = f"{self}: {len(missing)} of {happened} events are missing {missing[:3]}, {doubled} came twice"
            self.faults.append(fault if missing or doubled else f"{self}: events are not in order")

    def __str__(self) -> str:
        return f"{self.way} of {self.server}"


class Polling(Client):
    way = "polls"

    async def read(self, peer: Peer) -> None:
        with anyio.fail_after(_ANSWER):
            seen = await peer.request("events/poll", {**self.params, "cursor": self.cursor})
        if "error" in seen.answer:
            self.fail(seen.error)
            return
        result = seen.result
        self.cursor = result["cursor"]
        self.numbers += [event["data"]["n"] for event in result["events"]]
        if result["truncated"]:
            self.miss()


class Streaming(Client):
    way = "streams"

    async def read(self, peer: Peer) -> None:
        """One stream, until it breaks off, or the client goes to another hub."""
        assert isinstance(peer.wire, HttpClient)
        message = peer.wire.message("events/stream", peer.params({**self.params, "cursor": self.cursor}))
        with anyio.move_on_after(self._rng.uniform(2, 30)):
            async with peer.wire.stream(message) as stream:
                while True:
                    event = await stream.next_event(_ANSWER)
                    if event.data:
                        self._take(event.message)

    def _take(self, message: Message) -> None:
        if "error" in message:
            self.fail(message["error"])
            return
        params, kind = message.get("params", {}), message.get("method", "").rpartition("/")[2]
        self.cursor = params.get("cursor", self.cursor)
        if kind == "event":
            self.numbers.append(params["data"]["n"])
        elif kind == "terminated":
            self.fail(params["error"])
        elif params.get("truncated"):
            self.miss()


class Hooked(Client):
    """A client that gets webhooks, and refreshes its subscription now and then."""

    way = "webhooks"

    def __init__(self, server: str, name: str, peer: AnyPeer, rng: random.Random, receiver: Receiver) -> None:
        super().__init__(server, name, peer, rng)
        self._url = receiver.url(f"/{server}")
        self._ids: set[str] = set()
        self._refused: set[str] = set()

    async def read(self, peer: Peer) -> None:
        """Subscribes, or refreshes; then waits."""
        secret = "whsec_" + base64.b64encode(self._rng.choice(_KEYS)).decode()
        with anyio.fail_after(_ANSWER):
            seen = await subscribe(peer, self.params["name"], self._url, secret=secret)  # a lost one would begin now
        if "error" in seen.answer:
            self.fail(seen.error)
        elif self.cursor is None:
            self.cursor = seen.result["cursor"]
            return
        await anyio.sleep(self._rng.uniform(1, 20))

    async def respond(self, post: Post) -> Answer:
        body, id_ = post.json, post.headers["webhook-id"]
        if not any(post.is_signed(key) for key in _KEYS):
            self.faults.append(f"{self}: a message is not signed")
        kind = body.get("type")
        if kind == "gap":
            self.miss()
        elif kind == "terminated":
            self.fail(body["error"])
        if kind is not None:
            return await taken(post)
        if id_ != body["eventId"]:
            self.faults.append(f"{self}: webhook-id {id_} of event {body['eventId']}")
        if id_ not in self._refused and self._rng.random() < _REFUSED:
            self._refused.add(id_)
            return self._rng.choice((500, 503)), {}, b""
        if self._rng.random() < _SLOW:
            await anyio.sleep(self._rng.choice(_LATE))
        if id_ in self._ids:
            self.again += 1
        else:
            self._ids.add(id_)
            self.numbers.append(body["data"]["n"])
        return await taken(post)


class Hooks:
    """The receiver of all webhooks, on one port, which goes away and comes back."""

    def __init__(self, receiver: Receiver, rng: random.Random) -> None:
        self.receiver = receiver
        self.restarts = 0
        self._clients: dict[str, Hooked] = {}
        self._scope = anyio.CancelScope()
        self._rng = rng
        receiver.respond = self._respond

    def add(self, client: Hooked) -> None:
        self._clients[client.server] = client

    async def _respond(self, post: Post) -> Answer:
        return await self._clients[post.path.removeprefix("/")].respond(post)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Listens until cancelled."""
        is_begun = False
        while True:
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self.receiver.port)
            async with listener:
                if not is_begun:
                    is_begun = True
                    task_status.started()
                with anyio.CancelScope() as self._scope:
                    await listener.serve(self._serve)
            await anyio.sleep(self._rng.uniform(0, _DOWN))

    async def _serve(self, stream: Any) -> None:
        with suppress(anyio.ClosedResourceError, ConnectionError, json.JSONDecodeError):
            await self.receiver.serve(stream)

    def restart(self) -> None:
        self.restarts += 1
        self._scope.cancel()
