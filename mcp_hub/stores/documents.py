"""Interfaces of stores for long results, read in parts, for rows, counts and locks. Pure.

Ids of long results are hashes of the content.
"""

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from mcp_hub.errors import StoreError

_ID: Final = re.compile(r"r[a-z2-7]{12}")


class DocumentLimits(msgspec.Struct, frozen=True):
    """Retention in seconds after the last put; limits in bytes and number.

    The oldest go: over a principal's limit its own, over a total anyone's. `memory_bytes`: the total in memory.
    """

    ttl: float = 3600.0
    principal_bytes: int = 256 << 20
    principal_count: int = 1000
    total_bytes: int = 1 << 30
    total_count: int = 10_000
    memory_bytes: int = 256 << 20


class Documents(Protocol):
    """A store of documents that never blocks the event loop."""

    async def open(self) -> None:
        """Removes expired and damaged documents. Never raises."""

    async def put(self, principal: str, body: bytes) -> str:
        """Stores or renews a document; its id. Raises `StoreError`."""

    async def read(self, principal: str, id_: str, offset: int, size: int) -> tuple[bytes, int] | None:
        """Up to `size` bytes from `offset`, and the document's size; None if unknown, foreign, expired or damaged."""


class SharedRecord(Protocol):
    """One shared text, replaced as a whole. All raise `StoreError`."""

    async def read(self) -> bytes | None: ...

    async def stamp(self) -> object:
        """Differs between texts. Cheap."""

    async def update(self, change: Callable[[bytes | None], bytes | None]) -> None:
        """Replaces the text by `change(text)`, which may be called again; None keeps it. Lasting when it returns.

        Errors of `change` keep the text and are raised.
        """


class Rows(Protocol):
    """Small rows by name; writes are lasting when they return. All raise `StoreError`."""

    async def read(self, name: str) -> bytes | None: ...

    def writing(self, name: str) -> AbstractAsyncContextManager[Callable[[bytes], Awaitable[None]]]:
        """Checks that a row can be written, and yields a function that does; hold `locked`. Counts as a use."""

    async def used(self, name: str) -> None:
        """Notes a use now."""

    async def remove(self, name: str) -> bool:
        """Removes a row; whether there was one. Hold `locked`."""

    async def names(self) -> Mapping[str, float]:
        """All rows, with the time of last use in Unix seconds."""

    async def written(self, names: Collection[str], since: object) -> tuple[object, Collection[str]]:
        """The stamp of now, and those of `names` that anybody wrote after `since`; all for None, or an unknown stamp.

        Cheap if nothing was written.
        """

    def locked(self, name: str, seconds: float) -> AbstractAsyncContextManager[None]:
        """Keeps others from writing a row; waits for them `seconds` at most."""


def document_id(body: bytes) -> str:
    """`r` and 12 base32 characters of a hash; not a secret."""
    return "r" + base64.b32encode(hashlib.blake2b(body, digest_size=8).digest()).decode()[:12].lower()


def is_document_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def check_size(body: bytes, limits: DocumentLimits, total: int) -> None:
    """Raises `StoreError` over the limits."""
    limit = min(limits.principal_bytes, total)
    if len(body) > limit:
        raise StoreError(f"a document of {len(body)} bytes cannot be kept: the bound is {limit}")


def surplus(sizes: Sequence[int], max_bytes: int, max_count: int) -> int:
    """The number of oldest documents to remove."""
    used, gone = sum(sizes), 0
    while gone < len(sizes) and (used > max_bytes or len(sizes) - gone > max_count):
        used -= sizes[gone]
        gone += 1
    return gone


class LimitRule(msgspec.Struct, frozen=True):
    """At most `count` calls begin in `period` seconds, and `running` run; 0: any number. `key` is in the settings."""

    key: str
    count: int = 0
    period: float = 0.0
    running: int = 0


SharedLimit = tuple[str, LimitRule]
"""A rule under a name."""


class SharedCounts(Protocol):
    """Counts that replicas share, by group."""

    async def take(self, group: str, limits: Sequence[SharedLimit], holder: str) -> float:
        """Counts `holder` under all limits and returns 0; else seconds to wait, infinite for the end of another one.

        Raises `StoreError`.
        """

    def leave(self, group: str, limits: Sequence[SharedLimit], holder: str) -> None:
        """`holder` has ended; a replica's holders end with it. Never waits."""


class Holdings(Protocol):
    """Exclusive locks of one kind, held by replicas."""

    async def hold(self, name: str) -> bool:
        """Takes the lock; False if another replica has it. Raises `StoreError`."""

    def release(self, name: str) -> None: ...
