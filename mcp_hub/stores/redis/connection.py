"""The configured server, its clients, and warnings of settings that may lose streams."""

from collections.abc import Callable, Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from mcp_hub import __version__
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.redis.link import ANSWER, Link

log = get_logger(__name__)

_CONNECT: Final = 2.0
"""Seconds to connect."""
_SKEW: Final = 2.0
"""Seconds that the server's clock may differ from the hub's."""


class Server(msgspec.Struct, frozen=True):
    """`lease` is in seconds; `acknowledge`: whose copy confirms a stream's first and last events."""

    url: str
    prefix: str = "mcp-hub:"
    lease: float = 5.0
    acknowledge: Literal["local", "replica"] = "local"

    @property
    def name(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def waits_for_replica(self) -> bool:
        return self.acknowledge == "replica"

    def client(self, *, waits: bool = False) -> Redis:
        """A lazy client that never retries; with `waits` its commands have no time limit."""
        return Redis.from_url(
            self.url,
            socket_connect_timeout=_CONNECT,
            socket_timeout=None if waits else ANSWER,
            retry=Retry(NoBackoff(), 0),
            client_name=f"mcp-hub-{__version__}",
            protocol=2,
        )


async def probe(link: Link, now: Callable[[], float]) -> float:
    """Logs risky settings; returns the uptime in seconds. Raises `StoreError`."""
    [[seconds, micros]] = await link.ask(("TIME",))
    skew = int(seconds) + int(micros) / 1e6 - now()
    if abs(skew) > _SKEW:
        advice = "Set both clocks by NTP: streams expire by them."
        log.warning("store_clock_differs", seconds=round(skew, 1), advice=advice)
    info = await _info(link)
    policy, appends = info.get("maxmemory_policy", ""), info.get("aof_enabled", "")
    if policy not in ("noeviction", "") and info.get("maxmemory", "0") != "0":
        advice = "Set maxmemory-policy to noeviction: any other policy deletes streams that still run."
        log.warning("store_may_evict", policy=policy, advice=advice)
    if appends == "0":
        advice = "Set appendonly to yes: without it a restart of the server loses streams."
        log.warning("store_not_persistent", advice=advice)
    return float(info.get("uptime_in_seconds", "0") or 0)


async def run_of(link: Link) -> str:
    """The server's run id, new after each start; empty if unknown. Raises `StoreFault`."""
    try:
        [info] = await link.ask(("INFO", "server"))
    except StoreFault:
        raise
    except StoreError:
        return ""
    return str(info.get("run_id", "")) if isinstance(info, dict) else ""


async def _info(link: Link) -> Mapping[str, str]:
    """Sections of INFO; empty if this user may not read them."""
    try:
        replies = await link.ask(("INFO", "server"), ("INFO", "memory"), ("INFO", "persistence"))
    except StoreError as error:
        log.warning("store_not_checked", reason=str(error), advice="Allow the command INFO to the hub's user.")
        return {}
    return {key: str(value) for reply in replies if isinstance(reply, dict) for key, value in reply.items()}
