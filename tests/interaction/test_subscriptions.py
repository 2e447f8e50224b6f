"""Updated resources and changed lists: every front and era of a client, every era of a server."""

import itertools
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient, Hub, Message, PeerClosed, StdioClient, until
from tests.interaction.fronts import ERAS, FRONTS, HANDSHAKE, MODERN, Peer, connected, http_hub, stdio_hub
from tests.interaction.hearing import ACKNOWLEDGED, ID, UPDATED, Ear, hearing
from tests.upstreams.launch import argv, events, servers_yaml

pytestmark = pytest.mark.anyio

UPSTREAMS = {"h": HANDSHAKE, "m": MODERN}
SHARED = {"h": "test://shared/info", "m": "hub://m/test://shared/info"}
FRESH = itertools.count()
TOOLS, PROMPTS = "notifications/tools/list_changed", "notifications/prompts/list_changed"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Running:
    """A hub of one front over the two servers, and their journals."""

    def __init__(self, wire: StdioClient | Hub, root: Path) -> None:
        self.wire = wire
        self.root = root

    @asynccontextmanager
    async def client(self, era: str) -> AsyncIterator[Peer]:
        async with connected(self.wire, era) as peer:
            yield peer

    def journal(self, server: str) -> Path:
        return self.root / f"{server}.journal"

    def watched(self, server: str) -> set[str]:
        """What the server is subscribed to, by its journal."""
        found: set[str] = set()
        for event in events(self.journal(server), "subscribed") and _journal(self.journal(server)):
            if event.get("event") == "subscribed":
                found.add(event["uri"])
            elif event.get("event") == "unsubscribed":
                found.discard(event["uri"])
        return found


@asynccontextmanager
async def running(front: str, root: Path) -> AsyncIterator[Running]:
    servers = {name: argv(name=name, era=era, journal=root / f"{name}.journal") for name, era in UPSTREAMS.items()}
    async with (stdio_hub if front == "stdio" else http_hub)(servers_yaml(servers), root) as wire:
        if isinstance(wire, StdioClient):
            await wire.initialize()
        async with connected(wire, HANDSHAKE) as peer:
            await peer.names()
        yield Running(wire, root)
