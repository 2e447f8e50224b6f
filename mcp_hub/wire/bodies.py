"""The bytes of bodies of responses: in bounded pieces, and bounded for all that one server has not finished.

The hub asks for no compression; some servers compress anyway. One layer of gzip or deflate is taken off in
pieces, so that a hundred kilobytes on the network cannot become gigabytes here at once. Source: RFC 9110 §8.4.
"""

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from typing import Final

import anyio.lowlevel
import httpx2

from mcp_hub.masking import hide_head

_PIECE: Final = 1 << 18
"""Bytes that come out of one piece of a compressed body."""
_SMALL: Final = 1 << 16
"""Bytes that any unfinished message may have, however much others hold."""
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""The `wbits` of `zlib` for each format; `deflate` is the zlib format (RFC 9110 §8.4.1.2)."""


class BadEncoding(httpx2.DecodingError):
    """The body is encoded in a way that nobody asked for and the hub does not undo, or not as it says."""


def chunks(response: httpx2.Response) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    """The body piece by piece, to be iterated over within the context. Raises `BadEncoding`, `TransportError`."""
    header = response.headers.get("content-encoding", "")
    encoding = header.strip().lower()
    if encoding in ("", "identity"):
        return aclosing(_raw(response))
    if encoding not in _WINDOWS:
        raise BadEncoding(f"content-encoding {hide_head(header, 50)!r}, though none was asked for")
    return aclosing(_inflated(response, Inflater(encoding)))


def _raw(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    raw = response.aiter_raw()
    assert isinstance(raw, AsyncGenerator)  # its type says less
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
        data = chunk
        while data and not self._zlib.eof:
            try:
                piece = self._zlib.decompress(data, _PIECE)
            except zlib.error as exc:
                raise BadEncoding(f"the body is not {self._encoding}: {exc}") from None
            data = self._zlib.unconsumed_tail
            if piece:
                yield piece


class Unfinished:
    """Counts the bytes of all the unfinished messages of one server, of which there may be `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    @contextmanager
    def share(self, let_go: Callable[[], None]) -> Iterator[Callable[[int], bool]]:
        """The share of one response: a function of its present bytes, which returns whether there is room for them.

        In the end `let_go` drops the bytes: the traceback of an error would keep them alive for a while.
        """
        mine = 0

        def fits(size: int) -> bool:
            nonlocal mine
            self.held += size - mine
            mine = size
            return size <= _SMALL or self.held <= self.most

        try:
            yield fits
        finally:
            let_go()
            self.held -= mine
