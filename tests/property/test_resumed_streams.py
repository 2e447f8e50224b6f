"""Whole HTTP exchanges in virtual time: whatever breaks, a client that comes back gets each message exactly once.

Also the hub may be killed: then the stream goes on in the next one, with the error that says so.
"""

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.events import Log, Progressed
from mcp_hub.protocol.shape.results import COALESCED
from mcp_hub.protocol.shape.stream_events import decoded
from mcp_hub.types import CallId
from tests.unit.calls.virtual_time import run, sleep
from tests.unit.fronts.http_peer import Connection, MadeCall, World

Step = tuple[str, int]
KINDS = ["progress", "progress", "log", "drop", "come back", "stall", "wait"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 6)), max_size=25)
VERSIONS = st.sampled_from(["2025-11-25", "2025-06-18"])
RESTARTED = 1006


class Client:
    """What has arrived of one call's stream over any number of connections, each of which may lose its last events."""

    def __init__(self, world: World, call: MadeCall) -> None:
        self.world = world
        self.call = call
        self.session = call.client
        self.arrived: list[Any] = []
        self.ids: list[str] = []
        self.place: str | None = None
        self.connection: Connection | None = call.post

    def loses(self, last: int) -> None:
        """The connection is gone, and so many events with it that were under way."""
        if self.connection is not None:
            events = self.connection.events
            for event in events[: max(len(events) - last, 0)]:
                self.place = event.id or self.place
                if event.data:
                    self.arrived.append(event.message)
                    self.ids.append(str(event.id))
            self.connection.leave()
            self.connection = None

    async def comes_back(self) -> None:
        """Nothing is lost with the older connection: it was read to its end."""
        if self.place is None and self.connection is not None:
            self.place = next((event.id for event in self.connection.events), None)
        if self.place is not None:
            self.loses(0)
            self.connection = await self.world.get(self.session, str(self.place))

    async def finishes(self) -> None:
        for _ in range(3):
            await sleep(2)
            self.loses(0)
            if self.arrived and "method" not in self.arrived[-1]:
                return
            await self.comes_back()

    async def restarts(self, last: int) -> None:
        """The hub is killed, and with its connections go so many events that were under way; another one is started."""
        self.loses(last if self.place is not None else 0)
        self.world = self.world.killed()
        kept = await self.world.resumption.sessions.find("s", self.session.session.caller)
        assert kept is not None
        self.session = type(self.session)(kept)


async def play(client: Client, steps: Iterable[tuple[int, Step]]) -> None:
    for number, (what, amount) in steps:
        match what:
            case "progress":
                await client.call.progresses(*range(number * 10 + 1, number * 10 + 2 + amount))
            case "log":
                await client.call.happens(*[Log("info", b'{"level":"info","data":%d}' % number)] * (amount % 3))
            case "drop":
                client.loses(amount if client.place is not None else 0)
            case "come back":
                await client.comes_back()
            case "stall" if client.connection is not None:
                client.connection.stall()
            case _:
                await sleep(amount / 10)


async def begun(version: str) -> Client:
    world = World()
    call = MadeCall(world, world.client(version))
    await call.happens(Progressed(0.5))
    return Client(world, call)


async def stored(client: Client) -> dict[int, Any]:
    """What the store has of it, as a client would be told, by number; without what says nothing to one."""
    lines: list[bytes] = []
    id_ = CallId(str(client.ids[0]).partition(":")[0])
    client.world.store.log.fetch(id_, 0, 1 << 20, lambda page: lines.extend(page.lines))  # type: ignore[union-attr]
    return dict(map(decoded, lines))


def seqs(client: Client) -> list[int]:
    return [int(id_.partition(":")[2]) for id_ in client.ids]


def check_merged(steps: list[Step], arrived: list[Any]) -> None:
    """All log messages, the last progress, and of all others where they went."""
    sent = 1 + sum(amount + 1 for what, amount in steps if what == "progress")
    progress = [message["params"] for message in arrived if message.get("method") == "notifications/progress"]
    assert sum(1 + params.get("_meta", {}).get(COALESCED, 0) for params in progress) == sent
    logs = [message["params"]["data"] for message in arrived if message.get("method") == "notifications/message"]
    assert logs == [number for number, (what, amount) in enumerate(steps) if what == "log" for _ in range(amount % 3)]
    values = [params["progress"] for params in progress]
    assert values == sorted(set(values))


@given(STEPS, VERSIONS)
def test_each_message_arrives_exactly_once_and_the_response_last(steps: list[Step], version: str) -> None:
    async def scenario() -> None:
        client = await begun(version)
        await play(client, enumerate(steps))
        await client.call.ends()
        await client.finishes()
        kept = await stored(client)
        assert seqs(client) == list(kept)[1:], "each of its numbers, and in their order"
        check_merged(steps, client.arrived[:-1])
        assert ["method" in message for message in client.arrived] == [True] * (len(client.arrived) - 1) + [False]

    run(scenario)


@given(STEPS)
def test_a_client_that_is_always_there_gets_every_message_as_it_was(steps: list[Step]) -> None:
    async def scenario() -> None:
        client = await begun("2025-11-25")
        await play(client, [step for step in enumerate(steps) if step[1][0] in ("progress", "log")])
        await client.call.ends()
        await client.finishes()
        assert COALESCED not in json.dumps(client.arrived)
        check_merged(steps, client.arrived[:-1])

    run(scenario)


@given(STEPS, STEPS, st.booleans(), st.integers(0, 6), VERSIONS)
def test_a_restart_of_the_hub_takes_nothing_and_tells_nothing_twice(
    before: list[Step], after: list[Step], has_ended: bool, lost: int, version: str
) -> None:
    """What was not committed when the hub was killed nobody has seen; the response is one, that of the call or of the
    next hub.
    """

    async def scenario() -> None:
        client = await begun(version)
        await play(client, enumerate(before))
        if client.place is None:
            await client.comes_back()
        if has_ended:
            await client.call.ends()
        await client.restarts(lost)
        await play(client, enumerate((what, amount) for what, amount in after if what not in ("progress", "log")))
        await client.finishes()
        kept = await stored(client)
        assert seqs(client) == list(kept)[1:]
        assert ["method" in message for message in client.arrived] == [True] * (len(client.arrived) - 1) + [False]
        response = client.arrived[-1]
        assert response["id"] == 1
        assert response.get("error", {}).get("code") in ((None, RESTARTED) if has_ended else (RESTARTED,))

    run(scenario)
