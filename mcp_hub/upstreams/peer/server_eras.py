"""Chooses the era of the next connection."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec

from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.types import MODERN, Era, Kind
from mcp_hub.upstreams.peer.era_cache import EraCache, KnownEras
from mcp_hub.upstreams.peer.negotiation import Terms
from mcp_hub.upstreams.peer.state import PeerInfo

_FIRST_WORD: Final = 1.0
"""Seconds that a hub waits for the first message of the client that has started it."""


class ClientEra:
    """The first client's era. `waits`: one is about to speak."""

    def __init__(self, era: Era | None = None, *, waits: bool = False) -> None:
        self._era = era
        self._waits = waits
        self._has_spoken = anyio.Event()
        if era is not None:
            self._has_spoken.set()

    def meet(self, era: Era) -> None:
        if self._era is None:
            self._era = era
            self._has_spoken.set()

    async def current(self) -> Era | None:
        """None if no client has spoken, after a short wait."""
        if self._waits and not self._has_spoken.is_set():
            with anyio.move_on_after(_FIRST_WORD):
                await self._has_spoken.wait()
        return self._era

    async def first(self) -> Era:
        await self._has_spoken.wait()
        assert self._era is not None
        return self._era


class ServerEras(msgspec.Struct, frozen=True):
    """The known eras of one server, in `cache` under `key`. `guesses` are untried eras."""

    cache: EraCache
    key: str
    client: ClientEra = msgspec.field(default_factory=ClientEra)
    guesses: set[Era] = msgspec.field(default_factory=set)

    @property
    def known_eras(self) -> KnownEras:
        """The stored eras, and the guesses."""
        eras = self.cache.eras_of(self.key)
        return KnownEras(eras.speaks | self.guesses, eras.refuses - self.guesses) if self.guesses else eras

    @property
    def called(self) -> Era | None:
        return self.cache.called.get(self.key)

    def see(self, info: PeerInfo) -> None:
        self.cache.see(self.key, " ".join(str(info.server_info.get(key, "")) for key in ("name", "version")))

    def note_events(self, info: PeerInfo) -> None:
        """Notes whether the era of a connection or probe has events."""
        self.cache.note_events(self.key, info.era, has_some=KINDS[Kind.EVENT].is_offered(info.capabilities))

    def need(self, era: Era) -> None:
        self.cache.need(self.key, era)

    def learn(self, era: Era, speaks: bool) -> None:
        self.guesses.discard(era)
        self.cache.learn(self.key, era, speaks=speaks)

    def guess(self, era: Era) -> None:
        self.guesses.add(era)

    @property
    def is_interactive(self) -> bool:
        return self.cache.is_interactive(self.key)

    def put_interactive(self) -> None:
        self.cache.put_interactive(self.key)

    def forget(self) -> None:
        """Forgets the eras, or refutes guesses."""
        if not self.guesses:
            self.cache.forget(self.key)
        for era in tuple(self.guesses):
            self.learn(era, False)

    async def terms(self, wish: "EraWish", pinned: Era | None) -> Terms:
        """Terms of the next connection; `pinned` is the configured era."""
        only = await wish.era() if pinned is None and wish.is_only else pinned
        eras = KnownEras() if only is None and self.cache.take_doubt(self.key) else self.known_eras
        return Terms(only, eras, wish.era, self.learn, probed=self.note_events)

    async def first(self) -> Era:
        """The last caller's, the first client's, or an earlier hub's; else modern."""
        return self.called or await self.client.current() or self.cache.needed(self.key) or MODERN


class EraWish(msgspec.Struct, frozen=True):
    """The era wanted of a server with both; `is_only`: else fail."""

    era: Callable[[], Awaitable[Era]]
    is_only: bool = False


def wish(era: Era, *, is_only: bool = False) -> EraWish:
    """The wish for a known era."""

    async def fixed_era() -> Era:
        return era

    return EraWish(fixed_era, is_only)


ANY_ERA: Final = wish(MODERN)
"""No caller is known: modern, where a server speaks both."""
