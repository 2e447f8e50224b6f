"""Whole HTTP exchanges in virtual time: whatever breaks, a client that comes back gets each message exactly once."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.events import Log, Progress
from tests.unit.calls.virtual_time import run, sleep
from tests.unit.fronts.http_peer import Connection, MadeCall, World

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["progress", "progress", "log", "drop", "come back", "stall", "wait"]), st.integers(0, 6)
    ),
    max_size=25,
)


class Client:
    """What has arrived of one call's stream over any number of connections, each of which may lose its last events."""

    def __init__(self, call: MadeCall) -> None:
        self.call = call
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
            self.connection = await self.call.world.get(self.call.client, str(self.place))

    async def finishes(self) -> None:
        for _ in range(3):
            await sleep(2)
            self.loses(0)
            if self.arrived and "method" not in self.arrived[-1]:
                return
            await self.comes_back()


async def play(client: Client, steps: Iterable[tuple[int, Step]]) -> None:
    for number, (what, amount) in steps:
        match what:
            case "progress":
                await client.call.progresses(*range(number * 10 + 1, number * 10 + 2 + amount))
            case "log":
                await client.call.happens(*[Log("info", b'{"data":%d}' % number)] * amount)
            case "drop":
                client.loses(amount if client.place is not None else 0)
            case "come back":
                await client.comes_back()
            case "stall" if client.connection is not None:
                client.connection.stall()
            case _:
                await sleep(amount / 10)
    await client.call.ends()
    await client.finishes()


@settings(deadline=None)
@given(STEPS, st.sampled_from(["2025-11-25", "2025-06-18"]))
def test_each_message_arrives_exactly_once_and_the_response_last(steps: list[Step], version: str) -> None:
    async def scenario() -> None:
        world = World()
        whole, parts = Client(MadeCall(world, world.client(version))), Client(MadeCall(world, world.client(version)))
        for client in (whole, parts):
            client.call.record.log.append(Progress(0.5))
            await sleep(0.01)
        await play(whole, [step for step in enumerate(steps) if step[1][0] in ("progress", "log")])
        await play(parts, enumerate(steps))
        assert parts.arrived == whole.arrived
        assert [id_.partition(":")[2] for id_ in parts.ids] == [id_.partition(":")[2] for id_ in whole.ids]
        assert len(set(parts.ids)) == len(parts.ids)
        assert ["method" in message for message in parts.arrived] == [True] * (len(parts.arrived) - 1) + [False]

    run(scenario)
