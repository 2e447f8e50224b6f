"""Clients that share a hub's servers and do many things at once; each keeps whatever reaches it, and by which stream.

What a client sends carries its secret. All clients use the same request ids and progress tokens.
"""

import itertools
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.abc
import httpx2

from tests.e2e.answers import Answers, Reply, follow_input, form
from tests.e2e.client import HttpClient, SseStream
from tests.interaction.fronts import HANDSHAKE, through_run_tool
from tests.interaction.hearing import ACKNOWLEDGED, UPDATED
from tests.upstreams.child import PeerClosed
from tests.upstreams.messages import Message, modern

PATIENCE: Final = 240.0
"""Seconds: a turn may take 30, and what was given up is waited for."""
FIRST: Final = 100
"""Id of the first call; smaller ones are for what is no call."""
LEG: Final = 1000
"""Between the ids of a modern call and of its retry."""
INDIRECT: Final = 0.4
"""Share of the calls that are left to `run_tool`."""
NONCE: Final = "$NONCE"
"""In arguments: that of the call."""


@dataclass(frozen=True)
class Plan:
    """A call to make `late` seconds from now; it is given up `cancel` seconds later, or its connection (handshake)
    dropped `drop` seconds later and taken up again after `away`."""

    tool: str
    server: str
    arguments: Message
    late: float = 0
    cancel: float | None = None
    drop: float | None = None
    away: float = 0
    log_level: str | None = None
    """Of a modern client; None: no messages wanted."""


@dataclass
class Call:
    """A call that was made, and what came on its own streams. `levels` were in force meanwhile."""

    id: int
    nonce: str
    plan: Plan
    levels: list[str | None]
    messages: list[Message] = field(default_factory=list)
    place: str | None = None
    """The last event id."""
    is_given_up: bool = False

    @property
    def answers(self) -> list[Message]:
        """What ends it, which a modern question does not."""
        found = [message for message in self.messages if "method" not in message]
        return [message for message in found if message.get("result", {}).get("resultType") != "input_required"]

    @property
    def questions(self) -> list[Message]:
        """The params of what was asked on its streams."""
        asked = [message["params"] for message in self.messages if message.get("method") == "elicitation/create"]
        rounds = [message["result"].get("inputRequests", {}) for message in self.messages if "result" in message]
        return asked + [question["params"] for found in rounds for question in found.values()]

    def notified(self, kind: str) -> list[Message]:
        method = f"notifications/{kind}"
        return [message["params"] for message in self.messages if message.get("method") == method]


class Ear:
    """A stream for what belongs to no call: the session's, or a `subscriptions/listen` (which has an id) for `uris`."""

    def __init__(self, id: str | None = None, uris: Sequence[str] = (), *, wants_tools: bool = False) -> None:
        self.id = id
        self.uris = frozenset(uris)
        self.wants_tools = wants_tools
        self.heard: list[Message] = []
        self.scope = anyio.CancelScope()
        self._changed = anyio.Event()

    def updated(self, start: int = 0) -> list[str]:
        return [message["params"]["uri"] for message in self.heard[start:] if message["method"] == UPDATED]

    async def until(self, is_there: Callable[[], bool]) -> None:
        with anyio.fail_after(PATIENCE):
            while not is_there():
                await self._changed.wait()

    async def follow(self, stream: SseStream) -> None:
        """Hear until it ends."""
        with suppress(PeerClosed):
            while True:
                event = await stream.next_event(10 * PATIENCE)
                if event.data:
                    self.heard.append(event.message)
                    self._changed.set()
                    self._changed = anyio.Event()


class Client:
    """One session, or one modern client; its streams are followed in `tasks`. Nobody has to wait for `calm`."""

    def __init__(self, wire: HttpClient, era: str, secret: str, calm: str, tasks: anyio.abc.TaskGroup) -> None:
        self.wire = wire
        self.era = era
        self.secret = secret
        self.calm = calm
        self.calls: list[Call] = []
        self.ears: list[Ear] = []
        """Those that are open."""
        self.closed: list[Ear] = []
        self.subscribed: set[str] = set()
        self.ever_subscribed: set[str] = set()
        self.level: str | None = None
        self._tasks = tasks
        self._random = random.Random(secret)
        self._listens = 0
        self.answers = Answers({"elicitation/create": self._reply})
        if era == HANDSHAKE:
            wire.answers = self.answers

    def _reply(self, question: Message) -> Reply:
        return form(answer=self.secret).late(self._random.choice([0, 0.01, 0.05]))

    @property
    def own_uri(self) -> str:
        return f"test://{self.calm}/item/{self.secret}"

    # -- calls

    async def make(self, plan: Plan) -> Call:
        """A call from beginning to end, whichever that is."""
        await anyio.sleep(plan.late)
        number = FIRST + len(self.calls)
        level = self.level if self.era == HANDSHAKE else plan.log_level
        call = Call(number, f"{self.secret}.{number}", plan, [level])
        self.calls.append(call)
        arguments = {key: call.nonce if value == NONCE else value for key, value in plan.arguments.items()}
        params: Message = {"name": f"{plan.server}_{plan.tool}", "arguments": arguments}
        if random.Random(call.nonce).random() < INDIRECT:
            params = through_run_tool(params)
        await (self._handshake(call, params) if self.era == HANDSHAKE else self._modern(call, params))
        return call

    async def _handshake(self, call: Call, params: Message) -> None:
        plan = call.plan
        message = self.wire.message("tools/call", {**params, "_meta": {"progressToken": call.id}}, id=call.id)
        async with anyio.create_task_group() as tasks:
            if plan.cancel is not None:
                tasks.start_soon(self._give_up, call, plan.cancel)
            # a busy machine may have begun no stream in that time: in every second call it counts from the first event
            is_at_once = bool(call.id % 2)
            with anyio.move_on_after(plan.drop if is_at_once else None) as connected, suppress(PeerClosed):
                async with self.wire.stream(message) as stream:
                    await self._read(stream, call, None if is_at_once else connected)
            if connected.cancelled_caught:
                await anyio.sleep(plan.away)
                with suppress(PeerClosed):
                    await self._come_back(call)
            tasks.cancel_scope.cancel()

    async def _give_up(self, call: Call, seconds: float) -> None:
        await anyio.sleep(seconds)
        call.is_given_up = True
        await self.wire.notify("notifications/cancelled", {"requestId": call.id})

    async def _come_back(self, call: Call) -> None:
        if call.place is None:  # it never became a stream
            await self._give_up(call, 0)
            return
        async with self.wire.listen(call.place) as stream:
            await self._read(stream, call)

    async def _read(self, stream: SseStream, call: Call, dropped: anyio.CancelScope | None = None) -> Message:
        """Keep all that comes, up to a response. Raises: `PeerClosed` where none comes.

        The scope `dropped` ends as long after the first event as the plan says.
        """
        while True:
            event = await stream.next_event(PATIENCE)
            call.place = event.id or call.place
            if dropped is not None and call.plan.drop is not None and dropped.deadline == math.inf:
                dropped.deadline = anyio.current_time() + call.plan.drop
            if event.data:
                call.messages.append(event.message)
                if "method" not in event.message:
                    return event.message

    async def _modern(self, call: Call, params: Message) -> None:
        plan = call.plan
        ids = itertools.count(call.id, LEG)

        async def leg(params: Message) -> Message:
            body = modern(params, capabilities=self.answers.capabilities, token=call.id, log_level=plan.log_level)
            async with self.wire.stream(self.wire.message("tools/call", body, id=next(ids))) as stream:
                return await self._read(stream, call)

        with anyio.move_on_after(plan.cancel) as staying, suppress(PeerClosed):
            await follow_input(leg, params, self.answers)
        call.is_given_up = staying.cancelled_caught

    # -- what belongs to no call

    async def set_level(self, level: str) -> None:
        for call in self.calls:
            call.levels.append(level)
        self.level = level
        assert (await self.wire.request("logging/setLevel", {"level": level})).last["result"] == {}

    async def subscribe(self, uri: str) -> None:
        """Subscribe; a modern client opens one more stream."""
        if self.era == HANDSHAKE:
            self.ever_subscribed.add(uri)
            assert (await self.wire.request("resources/subscribe", {"uri": uri})).last["result"] == {}
            self.subscribed.add(uri)
            return
        self._listens += 1
        await self.open(Ear(f"{self.secret}-{self._listens}", [uri, self.own_uri]))

    async def unsubscribe(self, uri: str) -> None:
        if self.era == HANDSHAKE:
            assert (await self.wire.request("resources/unsubscribe", {"uri": uri})).last["result"] == {}
            self.subscribed.discard(uri)
            return
        for ear in [ear for ear in self.ears if uri in ear.uris]:
            self.close(ear)

    async def open(self, ear: Ear) -> None:
        """Hear on one more stream."""
        self.ears.append(ear)
        await self._tasks.start(self._hear, ear)
        if ear.id is not None:
            await ear.until(lambda: bool(ear.heard))
            assert ear.heard[0]["method"] == ACKNOWLEDGED
            assert set(ear.heard[0]["params"]["notifications"]["resourceSubscriptions"]) == ear.uris

    def close(self, ear: Ear) -> None:
        ear.scope.cancel()
        self.ears.remove(ear)
        self.closed.append(ear)

    async def be_away(self, seconds: float) -> None:
        """Drop the session's own stream for a while; what is told there meanwhile is told later."""
        if self.era == HANDSHAKE:
            (ear,) = self.ears
            ear.scope.cancel()
            await anyio.sleep(seconds)
            ear.scope = anyio.CancelScope()
            await self._tasks.start(self._hear, ear)

    async def _hear(self, ear: Ear, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with ear.scope, suppress(httpx2.TransportError):
            if ear.id is None:
                opening = self.wire.listen()
            else:
                wanted = {"resourceSubscriptions": sorted(ear.uris), "toolsListChanged": ear.wants_tools}
                message = self.wire.message("subscriptions/listen", modern({"notifications": wanted}), id=ear.id)
                opening = self.wire.stream(message)
            async with opening as stream:
                task_status.started()
                await ear.follow(stream)

    async def fence(self) -> None:
        """Return when all that this client was to be told so far has been heard.

        An update of its own comes behind everything else once it comes for the second time: what is told together is
        in no order.
        """
        own = self.own_uri
        for _ in range(2):
            counts = {ear: ear.updated().count(own) for ear in self.ears}
            await self.make(Plan("touch", self.calm, {"uri": own}))
            for ear, count in counts.items():
                await ear.until(lambda ear=ear, count=count: ear.updated().count(own) > count)  # type: ignore[misc]


@asynccontextmanager
async def living(url: str, era: str, secret: str, calm: str) -> AsyncIterator[Client]:
    """A client that hears of the lists and of its own resource; whatever it still has open is dropped at the end."""
    async with HttpClient(url, seconds=PATIENCE) as wire, anyio.create_task_group() as tasks:
        client = Client(wire, era, secret, calm, tasks)
        if era == HANDSHAKE:
            assert (await wire.initialize()).status == 200
            await client.open(Ear())
            await client.subscribe(client.own_uri)
        else:
            await client.open(Ear(f"{secret}-0", [client.own_uri], wants_tools=True))
        yield client
        tasks.cancel_scope.cancel()
