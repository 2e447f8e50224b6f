"""Replicas of a hub on one Redis or Valkey, each with a folder of its own, behind a round-robin balancer."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from mcp_hub.types import JsonObject
from rigs.replicas.balancer import Balancer, balancer
from tests.e2e.client import Hub
from tests.interaction.hub_process import hub_process
from tests.redis_server import RedisServer


@dataclass(frozen=True)
class Replicas:
    """`url` is the MCP endpoint behind the balancer; each hub has its own URL."""

    hubs: list[Hub]
    server: RedisServer
    proxy: Balancer

    @property
    def url(self) -> str:
        return f"{self.proxy.url}/mcp"


@asynccontextmanager
async def replicas(
    text: str, root: Path, count: int = 2, *, lease: float | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[Replicas]:
    """So many hubs with this `servers.yaml`, to which the store is added. The server keeps its data below `root`.

    Raises: `NotInstalled`, and as `fronts.http_hub`.
    """
    with RedisServer(root / "server") as server:
        async with AsyncExitStack() as stack:
            shared = on_server(text, {"url": server.url} if lease is None else {"url": server.url, "lease": lease})
            names = ["state", *(f"replica-{number}" for number in range(2, count + 1))]
            hubs = [
                await stack.enter_async_context(hub_process(shared, root, name=name, **(env or {}))) for name in names
            ]
            proxy = await stack.enter_async_context(balancer([hub.url for hub in hubs]))
            yield Replicas(hubs, server, proxy)


def on_server(text: str, store: JsonObject) -> str:
    """The configuration with this store."""
    config = yaml.safe_load(text)
    return json.dumps({**config, "hub": {**(config.get("hub") or {}), "store": store}}, indent=2)
