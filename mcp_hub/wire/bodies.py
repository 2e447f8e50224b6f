"""The bytes of a response's body, never more at a time than a fixed amount, however well a server compressed them.

The hub asks for no compression; some servers compress all the same. One layer of gzip or deflate is taken off in
pieces, so that a hundred kilobytes on the network cannot become gigabytes here at once. Source: RFC 9110 §8.4.
"""

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Final

import anyio.lowlevel
import httpx2

_PIECE: Final = 1 << 18
"""Bytes that come out of one piece of a compressed body."""
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""The `wbits` of `zlib` for each format; `deflate` is the zlib format (RFC 9110 §8.4.1.2)."""


class BadEncoding(httpx2.DecodingError):
    """The body is encoded in a way that nobody asked for and the hub does not undo, or not as it says."""


def chunks(response: httpx2.Response) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    """The body piece by piece, to be iterated over within the context. Raises `BadEncoding`, `TransportError`."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return aclosing(_raw(response))
    if encoding not in _WINDOWS:
        raise BadEncoding(f"content-encoding {encoding[:50]!r}, though none was asked for")
    return aclosing(_inflated(response, Inflater(encoding)))


def _raw(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """As it comes from the network: a generator, although its type says less."""
    raw = response.aiter_raw()
    assert isinstance(raw, AsyncGenerator)
    return raw


async def _inflated(response: httpx2.Response, inflater: "Inflater") -> AsyncGenerator[bytes, None]:
    async with aclosing(_raw(response)) as raw:
        async for chunk in raw:
            for piece in inflater.feed(chunk):
                yield piece
                await anyio.lowlevel.checkpoint()  # much may come out of one chunk


class Inflater:
    """Takes one layer of compression off; a piece has at most `_PIECE` bytes."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._zlib = zlib.decompressobj(_WINDOWS[encoding])

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The output for `chunk`, lazily: the caller may stop at any piece. Raises `BadEncoding`."""
        rest = chunk
        while rest and not self._zlib.eof:
            try:
                piece = self._zlib.decompress(rest, _PIECE)
            except zlib.error as exc:
                raise BadEncoding(f"the body is not {self._encoding}: {exc}") from None
            rest = self._zlib.unconsumed_tail
            if piece:
                yield piece
