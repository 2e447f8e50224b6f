"""A hub over servers with events, and clients that poll and stream them."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from tests.e2e.client import HttpClient
from tests.interaction.fronts import Peer
from tests.interaction.hearing import ID
from tests.upstreams.child import WAIT
from tests.upstreams.launch import servers_yaml
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import Conversation

SERVER = Path(__file__).parents[1] / "upstreams" / "event_server.py"


class Service:
    """What happens behind one server: a file."""

    def __init__(self, root: Path, name: str) -> None:
        self.file = root / f"{name}.events"

    def argv(self, era: str, modes: str, *options: str) -> list[str]:
        return [sys.executable, str(SERVER), str(self.file), era, modes, *options]

    def happens(self, *numbers: int, **event: Any) -> None:
        """One event for each number; `event` has other members than the usual ones."""
        more = {"event": event} if event else {}
        with self.file.open("a") as file:
            file.write("".join(json.dumps({"n": number, **more}) + "\n" for number in numbers))

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The requests about events that have reached the server."""
        journal = self.file.with_suffix(".journal")
        return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


def config(servers: dict[str, list[str]], **hub: Any) -> str:
    return servers_yaml(servers, hub={"expose": "full", **hub})


class Poller:
    """A client that polls; its cursor survives it."""

    def __init__(self, peer: Peer, name: str, cursor: str | None = None, **arguments: Any) -> None:
        self.peer = peer
        self.params = {"name": name, "arguments": arguments}
        self.cursor = cursor
        self.numbers: list[int] = []
        self.gaps = 0

    async def poll(self, **more: Any) -> dict[str, Any]:
        seen = await self.peer.request("events/poll", {**self.params, "cursor": self.cursor, **more})
        result: dict[str, Any] = seen.result
        self.cursor = result["cursor"]
        self.gaps += result["truncated"]
        self.numbers += [event["data"]["n"] for event in result["events"]]
        return result

    async def until(self, done: Callable[[], bool]) -> None:
        with anyio.fail_after(WAIT):
            while not done():
                result = await self.poll()
                if not result["hasMore"]:
                    await anyio.sleep(0.02)


class Streamed:
    """What one stream has brought."""

    def __init__(self, read: Callable[[], list[Message]], more: Callable[[], Any]) -> None:
        self._read = read
        self._more = more

    @property
    def messages(self) -> list[Message]:
        return self._read()

    def of(self, kind: str) -> list[dict[str, Any]]:
        method = f"notifications/events/{kind}"
        return [message["params"] for message in self.messages if message.get("method") == method]

    @property
    def numbers(self) -> list[int]:
        return [params["data"]["n"] for params in self.of("event")]

    async def until(self, done: Callable[[], bool]) -> None:
        with anyio.fail_after(WAIT):
            while not done():
                await self._more()


@asynccontextmanager
async def streaming(
    peer: Peer, name: str, cursor: str | None = None, *, id: int | str = "s", **arguments: Any
) -> AsyncIterator[Streamed]:
    """An open `events/stream`, once it is active."""
    params = peer.params({"name": name, "arguments": arguments, "cursor": cursor})
    wire = peer.wire
    if isinstance(wire, HttpClient):
        async with wire.stream(wire.message("events/stream", params, id=id)) as stream:
            streamed = Streamed(
                lambda: [event.message for event in stream.events if event.data], lambda: stream.next_event(WAIT)
            )
            await streamed.until(lambda: bool(streamed.messages))
            yield streamed
        return
    start = len(wire.transcript)

    def read() -> list[Message]:
        return [message for message in wire.transcript[start:] if _is_of(message, id)]

    async def more() -> None:
        count = len(wire.transcript)
        await wire.wait_for(lambda message: _is_of(message, id), after=count)

    assert isinstance(wire, Conversation)
    await wire.send_request("events/stream", params, id=id)
    streamed = Streamed(read, more)
    await streamed.until(lambda: bool(streamed.messages))
    try:
        yield streamed
    finally:
        with anyio.CancelScope(shield=True):
            await wire.notify("notifications/cancelled", {"requestId": id})


def _is_of(message: Message, id: int | str) -> bool:
    if "method" not in message:
        return bool(message.get("id") == id)
    return bool(message.get("params", {}).get("_meta", {}).get(ID) == id)
