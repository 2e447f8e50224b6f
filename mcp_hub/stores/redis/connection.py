"""A Redis or Valkey server as the configuration names it, and the clients that are made for it."""

from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from mcp_hub import __version__

_CONNECT: Final = 2.0
_ANSWER: Final = 3.0
"""Seconds to connect, and to answer any command but one that waits."""


class Server(msgspec.Struct, frozen=True):
    """`lease` is in seconds. `acknowledge`: whose copy of a beginning or an ending is waited for."""

    url: str
    prefix: str = "mcp-hub:"
    lease: float = 5.0
    acknowledge: Literal["local", "replica"] = "local"

    @property
    def name(self) -> str:
        """The URL without user and password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def waits_for_replica(self) -> bool:
        return self.acknowledge == "replica"

    def client(self, *, waits: bool = False) -> Redis:
        """A client whose connections are made when they are needed. `waits`: a command takes as long as it likes.

        Nothing is repeated by itself: `link` knows what may be.
        """
        return Redis.from_url(
            self.url,
            socket_connect_timeout=_CONNECT,
            socket_timeout=None if waits else _ANSWER,
            retry=Retry(NoBackoff(), 0),
            client_name=f"mcp-hub-{__version__}",
            protocol=2,
        )
