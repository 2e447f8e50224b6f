"""Where long results are kept for their caller to read on: the texts that were cut, each under a short id.

Its id is that of its content, so that the same text is kept once, and a result that is shaped anew (a replay, another
hub on the same folder) names the same document.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from mcp_hub.errors import StoreError

_ID: Final = re.compile(r"r[a-z2-7]{12}")


class DocumentLimits(msgspec.Struct, frozen=True):
    """Seconds that a document is kept after it was put last, and bounds in bytes and in number of documents.

    What comes beyond a bound drives out the oldest: the principal's own for the bounds of one, anybody's for the total
    ones. `memory_bytes` holds in place of `total_bytes` where documents are kept in memory.
    """

    ttl: float = 3600.0
    principal_bytes: int = 256 << 20
    principal_count: int = 1000
    total_bytes: int = 1 << 30
    total_count: int = 10_000
    memory_bytes: int = 256 << 20


class Part(NamedTuple):
    """Some bytes of a document, and how many it has."""

    data: bytes
    size: int


class Documents(Protocol):
    """Keeps documents. Nothing here blocks the event loop."""

    async def open(self) -> None:
        """Lets go of what has expired or is damaged. Never raises."""

    async def put(self, principal: str, body: bytes) -> str:
        """Keeps a document, or an old one for longer; its id. Raises `StoreError` if it cannot be kept."""

    async def read(self, principal: str, id_: str, offset: int, size: int) -> Part | None:
        """Up to `size` bytes from `offset` on; None for a document that is unknown, foreign, expired or damaged."""


def document_id(body: bytes) -> str:
    """`r` and 12 base32 characters of the content's hash: no secret, as reading is bound to the principal."""
    return "r" + base64.b32encode(hashlib.blake2b(body, digest_size=8).digest()).decode()[:12].lower()


def is_document_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def check_size(body: bytes, limits: DocumentLimits, total: int) -> None:
    """Raises `StoreError` for a document that no room can be made for."""
    most = min(limits.principal_bytes, total)
    if len(body) > most:
        raise StoreError(f"a document of {len(body)} bytes cannot be kept: the bound is {most}")


def surplus(sizes: Sequence[int], most_bytes: int, most: int) -> int:
    """The number of documents, the oldest first, that have to go for the rest to be within both bounds."""
    used, gone = sum(sizes), 0
    while gone < len(sizes) and (used > most_bytes or len(sizes) - gone > most):
        used -= sizes[gone]
        gone += 1
    return gone
