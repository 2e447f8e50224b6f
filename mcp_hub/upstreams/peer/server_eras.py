"""The era of the next connection to a server that speaks both: that of its first caller."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec

from mcp_hub.types import MODERN, Era
from mcp_hub.upstreams.peer.era_cache import EraCache, KnownEras
from mcp_hub.upstreams.peer.negotiation import Terms
from mcp_hub.upstreams.peer.state import PeerInfo

_FIRST_WORD: Final = 1.0
"""Seconds that a hub waits for the first message of the client that has started it."""


class ClientEra:
    """The era of the first client of a hub. `waits`: it is about to speak, and the hub may wait for it."""

    def __init__(self, era: Era | None = None, *, waits: bool = False) -> None:
        self._era = era
        self._waits = waits
        self._has_spoken = anyio.Event()
        if era is not None:
            self._has_spoken.set()

    def meet(self, era: Era) -> None:
        """A client has sent a request of this era."""
        if self._era is None:
            self._era = era
            self._has_spoken.set()

    async def known(self) -> Era | None:
        """None if nobody has spoken yet, or the one who is about to speak is silent."""
        if self._waits and not self._has_spoken.is_set():
            with anyio.move_on_after(_FIRST_WORD):
                await self._has_spoken.wait()
        return self._era

    async def first(self) -> Era:
        """As soon as a client has spoken."""
        await self._has_spoken.wait()
        assert self._era is not None
        return self._era


class ServerEras(msgspec.Struct, frozen=True):
    """The eras of one server as far as they are known: remembered in `cache` under `key`. `client` is the hub's.

    `guesses` are eras that nobody has tried yet.
    """

    cache: EraCache
    key: str
    client: ClientEra = msgspec.field(default_factory=ClientEra)
    guesses: set[Era] = msgspec.field(default_factory=set)

    @property
    def known(self) -> KnownEras:
        known = self.cache.known(self.key)
        return KnownEras(known.speaks | self.guesses, known.refuses - self.guesses) if self.guesses else known

    @property
    def called(self) -> Era | None:
        """The era in which this hub has called the server last."""
        return self.cache.called(self.key)

    def see(self, info: PeerInfo) -> None:
        """The server names itself and its version."""
        self.cache.see(self.key, " ".join(str(info.server_info.get(key, "")) for key in ("name", "version")))

    def need(self, era: Era) -> None:
        """A caller of this era is there."""
        self.cache.need(self.key, era)

    def keep(self) -> None:
        """Remembers the era that was needed last."""
        self.cache.keep_needed(self.key)

    def learn(self, era: Era, speaks: bool) -> None:
        """The server was found to speak an era, or not to."""
        self.guesses.discard(era)
        self.cache.learn(self.key, era, speaks=speaks)

    def guess(self, era: Era) -> None:
        """The next start tries whether the server speaks this era."""
        self.guesses.add(era)

    @property
    def is_interactive(self) -> bool:
        """Whether the server is known to ask its callers."""
        return self.cache.is_interactive(self.key)

    def put_interactive(self) -> None:
        """The server has asked a caller."""
        self.cache.put_interactive(self.key)

    def forget(self) -> None:
        """Forgets which eras the server speaks, or refutes a guess: it did not lead to a session."""
        if not self.guesses:
            self.cache.forget(self.key)
        for era in tuple(self.guesses):
            self.learn(era, False)

    async def terms(self, wish: "EraWish", pinned: Era | None) -> Terms:
        """The terms of the next connection; `pinned` is the era that the configuration names."""
        only = await wish.era() if pinned is None and wish.is_only else pinned
        known = KnownEras() if only is None and self.cache.take_doubt(self.key) else self.known
        return Terms(only, known, wish.era, self.learn)

    async def first(self) -> Era:
        """The era of the next connection: that of the last caller, else of the hub's first client.

        Where there is neither it is that of the last caller of an earlier hub, else the modern one, in which the server
        answers the probe: it costs no other process.
        """
        return self.called or await self.client.known() or self.cache.needed(self.key) or MODERN


class EraWish(msgspec.Struct, frozen=True):
    """The era that a connection has if the server speaks both. With `is_only` it has that one or fails."""

    era: Callable[[], Awaitable[Era]]
    is_only: bool = False


def wish(era: Era, *, is_only: bool = False) -> EraWish:
    """The wish for this era, which is known already."""

    async def known() -> Era:
        return era

    return EraWish(known, is_only)


ANY_ERA: Final = wish(MODERN)
"""No caller is known: modern, where a server speaks both."""
