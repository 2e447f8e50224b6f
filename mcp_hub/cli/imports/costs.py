"""The tokens that the tools of imported servers cost a model, measured by starting each of the servers once."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import structs

from mcp_hub.app import readiness
from mcp_hub.cli.access.hub import ReachedHub, run_own_hub
from mcp_hub.cli.render.servers import status_of
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.clients import UNKNOWN_CLIENT
from mcp_hub.types import UpstreamStatus

WAIT: Final = 60.0
"""Seconds for the servers to start: some are downloaded first."""


class MeasuredCosts(msgspec.Struct, frozen=True):
    """`before`: tokens of all definitions, as a client lists them that has the servers itself; `after`: of the hub's
    list and instructions, where `expose` comes to `mode` and `budget` is the limit of `auto`.

    `absent` are servers that did not start, whose tools are not counted; `working` counts the others, without those
    that are disabled.
    """

    tools: int
    before: int
    after: int
    absent: tuple[UpstreamStatus, ...] = ()
    working: int = 0
    expose: str = "auto"
    mode: str = "full"
    budget: int = 0


def measured(loaded: Loaded, names: Collection[str]) -> MeasuredCosts:
    """Starts these servers, counts, and stops them. Exits as any command if it is interrupted."""
    at_once = {"start": "eager", "idle_stop": "never"}
    servers = {
        name: own.model_copy(update=at_once)
        for name, own in loaded.settings.servers.items()
        if name in names and (own.enabled or loaded.settings.failure(name) is not None)
    }
    only = replace(loaded, settings=loaded.settings.model_copy(update={"servers": servers}))
    found: list[MeasuredCosts] = []

    async def count(hub: ReachedHub) -> int:
        await hub.settle()
        listed = await hub.client.lists.servers()
        account = await hub.client.lists.account(UNKNOWN_CLIENT, None, 1)
        absent = tuple(readiness.not_ready(map(status_of, listed.servers)))
        now = account.current
        after, working = now.tokens + account.instructions, len(servers) - len(absent)
        costs = MeasuredCosts(len(account.tools), account.total.full, after, absent, working)
        found.append(structs.replace(costs, expose=now.expose, mode=now.mode, budget=account.budget))
        return 0

    if (code := run_own_hub(only, count, WAIT)) or not found:
        raise SystemExit(code)
    return found[0]
