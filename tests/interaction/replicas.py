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

SINGLE: dict[str, str] = {
    **dict.fromkeys(
        (
            "test_killed_hub_s_call_ends_with_hub_restarted_and_its_key_stays_taken",
            "test_one_of_two_hubs_that_are_asked_at_once_with_one_key_makes_the_call",
            "test_the_session_of_a_killed_hub_is_as_its_client_left_it_and_ends_with_it",
        ),
        "is about hubs that share a folder",
    ),
    "test_the_hub_passes_over_sse": "the POSTs of an SSE connection belong to its replica",
    "test_an_id_in_use_is_refused_also_while_its_call_waits_for_a_server": "each knows its own requests",
    **dict.fromkeys(
        ("test_session_that_was_ended_is_unknown", "test_ending_a_session_ends_its_stream_and_calls"),
        "another replica learns of the end of a session a moment later",
    ),
}
"""Tests that `make replicas` leaves out, and why."""


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
