"""Bodies of HTTP responses in bounded pieces, with one layer of gzip or deflate removed (RFC 9110 §8.4)."""

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
    """The body has an unknown encoding, or not the one it names."""


def chunks(response: httpx2.Response) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    """The pieces of the body, within the context. Raises `BadEncoding`, `TransportError`."""
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
    """Removes compression; a piece has at most `_PIECE` bytes."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._zlib = zlib.decompressobj(_WINDOWS[encoding])

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the output for `chunk` lazily. Raises `BadEncoding`."""
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
    """Counts the bytes of a server's unfinished messages, at most `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    @contextmanager
    def share(self, let_go: Callable[[], None]) -> Iterator[Callable[[int], bool]]:
        """Yields a function of a response's size that returns whether it fits; `let_go` drops the bytes."""
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
