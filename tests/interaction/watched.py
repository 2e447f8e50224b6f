"""A hub of one front over a server of each era, and what those are subscribed to."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.client import Hub
from tests.interaction.fronts import HANDSHAKE, MODERN, Peer, connected, http_hub, stdio_hub
from tests.interaction.hearing import UPDATED, Ear
from tests.upstreams.child import until
from tests.upstreams.launch import argv, journal, servers_yaml
from tests.upstreams.stdio_client import StdioClient

UPSTREAMS = {"h": HANDSHAKE, "m": MODERN}


class Running:
    """A hub of one front over the two servers."""

    def __init__(self, wire: StdioClient | Hub, root: Path) -> None:
        self.wire = wire
        self.root = root

    def client(self, era: str) -> AbstractAsyncContextManager[Peer]:
        return connected(self.wire, era)

    def watched(self, server: str) -> list[str]:
        """What the server's newest process is subscribed to, by its journal."""
        uris: set[str] = set()
        listens: dict[Any, list[str]] = {}
        for event in journal(self.root / f"{server}.journal"):
            match event.get("event"):
                case "start":
                    uris, listens = set(), {}
                case "subscribed":
                    uris.add(event["uri"])
                case "unsubscribed":
                    uris.discard(event["uri"])
                case "listening":
                    listens[event["id"]] = event["notifications"].get("resourceSubscriptions", [])
                case "unlistened":
                    listens.pop(event["id"])
        return sorted(uris.union(*listens.values()))

    def is_unwatched(self, server: str) -> bool:
        return self.watched(server) == []

    async def until_nothing_is_watched(self) -> None:
        for server in UPSTREAMS:
            await until(partial(self.is_unwatched, server))


@asynccontextmanager
async def running(front: str, root: Path) -> AsyncIterator[Running]:
    servers = {name: argv(name=name, era=era, journal=root / f"{name}.journal") for name, era in UPSTREAMS.items()}
    text = servers_yaml(servers, hub={"expose": "full"})
    async with (stdio_hub if front == "stdio" else http_hub)(text, root) as wire:
        if isinstance(wire, StdioClient):
            await wire.initialize()
        async with connected(wire, HANDSHAKE) as peer:
            await peer.names()
        yield Running(wire, root)


async def fence(peer: Peer, ear: Ear, server: str) -> None:
    """What was to be heard of this server before has been heard. Needs a subscription to its `readme`."""
    readme = f"test://{server}/readme"
    count = ear.updated().count(readme)
    await peer.call(f"{server}_touch", {"uri": readme})
    await ear.next(UPDATED, uri=readme, after=count)
