"""Waits for news by one blocking command on its own connection."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

import anyio
from redis.asyncio import Redis
from redis.exceptions import RedisError

from mcp_hub import aio
from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.stores.redis.keys import RedisKeys
from mcp_hub.stores.redis.link import WRONG_TYPE
from mcp_hub.stores.redis.quarantine import Quarantine
from mcp_hub.stores.redis.sessions import RedisSessions, is_plausible
from mcp_hub.types import CallId

log = get_logger(__name__)

_BLOCK: Final = 5000
"""Milliseconds of one command."""
_ANSWER: Final = 5.0
"""Seconds in which it has to return after that."""
_PAUSE: Final = 0.5
"""Seconds until it is tried again after an error."""


class Doorbell:
    """Calls `rings` at the bell, `moved` for each followed stream with new events, `on_error` after errors."""

    def __init__(
        self,
        client: Redis,
        keys: RedisKeys,
        instance: str,
        sessions: RedisSessions,
        rings: Callable[[], None],
        moved: Callable[[CallId], None],
        on_error: Callable[[], None],
        quarantine: Quarantine,
    ) -> None:
        self._client = client
        self._places = {keys.bell(instance): "0", keys.session_changes: "0-0"}
        self._keys = keys
        self._sessions = sessions
        self._rings = rings
        self._moved = moved
        self._on_error = on_error
        self._quarantine = quarantine
        self._followed: dict[str, tuple[CallId, int]] = {}
        self._task: aio.Background | None = None

    def start(self) -> None:
        self._task = aio.Background(self._run)

    async def stop(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            await task.stop()

    def follow(self, streams: Collection[tuple[CallId, int]]) -> bool:
        """Follows exactly these streams, each after its event number; whether any is new."""
        before, self._followed = self._followed, {}
        for id_, last in streams:
            key = self._keys.stream(id_).events
            self._followed[key] = id_, max(last, before[key][1] if key in before else 0)
        return not self._followed.keys() <= before.keys()

    def moved(self, rows: Sequence[StreamInfo]) -> set[CallId]:
        last = dict(self._followed.values())
        return {row.id for row in rows if last.get(row.id, 0) > row.last}

    async def _run(self) -> None:
        while True:
            try:
                await self._wait()
            except Exception as error:  # whatever is in a record: who waits for no news hears of none
                await self._failed(error)
                self._rings()
                await anyio.sleep(_PAUSE)

    async def _failed(self, error: Exception) -> None:
        if not isinstance(error, RedisError | OSError):
            log.error("doorbell_failed", exc_info=error)
        elif str(error).startswith(WRONG_TYPE):
            with suppress(StoreError):  # it is tried again
                await self._quarantine.check([*self._places, *self._followed])
        else:
            log.debug("doorbell_failed", reason=str(error))
            self._on_error()

    def forget(self, stream: CallId, last: int) -> None:
        key = self._keys.stream(stream).events
        if key in self._followed:
            self._followed[key] = stream, last

    async def _wait(self) -> None:
        """Raises `RedisError`, `OSError`."""
        followed = self._followed
        places = {**self._places, **{key: f"{last}-0" for key, (_, last) in followed.items()}}
        command = ("XREAD", "COUNT", 1, "BLOCK", _BLOCK, "STREAMS", *places.keys(), *places.values())
        with anyio.fail_after(_BLOCK / 1000 + _ANSWER):
            reply = await self._client.execute_command(*command)  # type: ignore[no-untyped-call]  # so in redis-py
        changes = self._keys.session_changes
        for key, entries in reply.items() if isinstance(reply, dict) else reply or ():
            if (name := key.decode()) != changes:
                self._heard(name, entries, followed)
                continue
            with anyio.fail_after(_ANSWER):
                self._places[changes] = await self._sessions.apply_changes(self._client, self._places[changes])

    def _heard(self, name: str, entries: list[tuple[bytes, object]], followed: dict[str, tuple[CallId, int]]) -> None:
        last = entries[-1][0].decode()
        if name in self._places:
            if is_plausible(entries[-1][0]):
                self._places[name] = last
            else:
                self._quarantine.whole(name, f"an entry has the time of another age: {hide_head(last, 40)!r}")
            self._rings()
        elif name in followed:
            id_, _ = followed[name]
            if name in self._followed:
                self._followed[name] = id_, int(last.partition("-")[0])
            self._moved(id_)
