"""Moves bad records on the server beside their key for a week.

A key of a wrong type or a damaged row becomes `KEY:bad`. Bad parts of other keys move to such a hash, at most 64.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.stores.redis.keys import quarantined
from mcp_hub.stores.redis.link import Command, Link, LinkJob, Reply, script
from mcp_hub.stores.redis.scripts import SET_ASIDE, SET_PARTS_ASIDE

log = get_logger(__name__)

_AT_ONCE: Final = 1000
"""Parts of one key that are moved at once; what remains is met again."""
_SHOWN: Final = 3
"""Parts that the log names."""


class Quarantine:
    """Sets records aside, unless they have changed since they were read."""

    def __init__(self, writer: Link) -> None:
        self._writer = writer

    async def check(self, keys: Iterable[str]) -> None:
        """Raises `StoreError`."""
        await self._writer.set_wrong_types_aside(keys)

    def row(self, key: str, reply: object, reason: str, callback: Callable[[], None] | None = None) -> None:
        """Sets a hash aside that was read as `reply`; calls `callback` in any case."""
        parts: list[bytes] = []
        if isinstance(reply, dict):
            for name, value in reply.items():
                parts += name, value
        elif isinstance(reply, list):
            parts = reply
        command = script(SET_ASIDE, [key, quarantined(key)], "", _digest(b" ".join(parts)))
        self._submit(command, key, [], reason, callback)

    def whole(self, key: str, reason: str, callback: Callable[[], None] | None = None) -> None:
        self._submit(script(SET_ASIDE, [key, quarantined(key)], "", ""), key, [], reason, callback)

    def fields(self, key: str, fields: Mapping[bytes, bytes], reason: str) -> None:
        self._parts(key, [(name, _digest(value)) for name, value in fields.items()], reason)

    def members(self, key: str, members: list[bytes], reason: str, callback: Callable[[], None] | None = None) -> None:
        """Members of a set, or entries of a stream."""
        self._parts(key, [(member, "") for member in members], reason, callback)

    def _parts(
        self, key: str, parts: list[tuple[bytes, str]], reason: str, callback: Callable[[], None] | None = None
    ) -> None:
        if parts:
            arguments = [text for part in parts[:_AT_ONCE] for text in part]
            names = [name for name, _ in parts]
            self._submit(script(SET_PARTS_ASIDE, [key, quarantined(key)], *arguments), key, names, reason, callback)

    def _submit(
        self, command: Command, key: str, parts: list[bytes], reason: str, callback: Callable[[], None] | None = None
    ) -> None:
        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                log.warning("record_not_set_aside", key=key, reason=str(replies))
            elif replies[0]:
                log_set_aside(key, reason, parts)
            if callback is not None:
                callback()

        self._writer.submit(LinkJob([command], answered))


def log_set_aside(key: str, reason: str, parts: list[bytes]) -> None:
    """Logs one line for a key."""
    samples = [hide_head(ascii(part.decode("utf-8", "replace")), 80) for part in parts[:_SHOWN]]
    details = {"parts": samples, "count": len(parts)} if parts else {}
    log.warning("record_set_aside", key=key, kept_in=quarantined(key), reason=reason, **details)


def _digest(text: bytes) -> str:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()
