"""The local address to which a browser returns after one login (RFC 8252 §7.3)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from secrets import compare_digest
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_hub.upstreams.auth.grants import LoginFailed, foreign_text

Show = Callable[[str, str], Awaitable[None]]
"""Shows a person the URL to visit, which has been checked, and the issuer that it is of."""

_PATH: Final = "/callback"
_LARGEST: Final = 16 << 10
"""Bytes of a request's head; codes can be long."""
_SECONDS: Final = 5.0
"""Seconds for one request."""
_MOST: Final = 16
"""Connections at once; more wait."""
_DONE: Final = "Done: go back to where you began. You can close this page."
_FAILED: Final = "The authorization server refused the login; see where you began. You can close this page."
_GONE: Final = (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError, anyio.ClosedResourceError)
_STRANGE: Final = "This is not the login that mcp-hub waits for. It still waits."


@dataclass
class Redirect:
    """Waits for the browser at `uri`."""

    uri: str
    _state: str = ""
    _parameters: dict[str, str] = field(default_factory=dict, repr=False)
    _came: anyio.Event = field(default_factory=anyio.Event)

    def expect(self, authorization_url: str) -> None:
        """Accepts only returns with this URL's `state`."""
        self._state = parse_qs(urlsplit(authorization_url).query).get("state", [""])[0]

    async def wait(self, seconds: float) -> dict[str, str]:
        """The returned parameters. Raises `LoginFailed` for a refusal or a timeout."""
        with anyio.move_on_after(seconds):
            await self._came.wait()
        if not self._came.is_set():
            raise LoginFailed(f"no login within {seconds:g} s")
        if "error" in self._parameters:
            texts = self._parameters["error"], self._parameters.get("error_description", "")
            description = " ".join(map(foreign_text, texts)).rstrip()
            raise LoginFailed(f"refused by the authorization server: {description}")
        return self._parameters

    def take(self, target: str, host: str) -> tuple[int, str]:
        """Status and text for a request."""
        parts = urlsplit(target)
        if parts.path != _PATH or host != urlsplit(self.uri).netloc:  # no other page may reach us by a name of its own
            return 404, "Nothing here."
        parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if not self._state or not compare_digest(parameters.get("state", "").encode(), self._state.encode()):
            return 400, _STRANGE
        if "error" not in parameters and "code" not in parameters:
            return 400, _STRANGE
        if not self._came.is_set():  # the first one counts
            self._parameters = parameters
            self._came.set()
        return (200, _DONE) if "error" not in self._parameters else (400, _FAILED)


@asynccontextmanager
async def listening(port: int | None, *, or_any: bool = False) -> AsyncIterator[Redirect]:
    """Listens on 127.0.0.1, at `port` or a free one; `or_any`: also if it is taken. Raises `LoginFailed`."""
    listen = partial(anyio.create_tcp_listener, local_host="127.0.0.1")
    try:
        listeners = await listen(local_port=port or 0)
    except OSError as exc:
        if not or_any:
            raise LoginFailed(f"cannot listen on 127.0.0.1:{port}: {exc.strerror or exc}") from None
        listeners = await listen(local_port=0)
    bound = listeners.extra(anyio.abc.SocketAttribute.local_port)
    redirect = Redirect(f"http://127.0.0.1:{bound}{_PATH}")
    slots = anyio.Semaphore(_MOST)

    async def serve(stream: anyio.abc.SocketStream) -> None:
        with suppress(*_GONE):
            async with slots, stream:
                with anyio.move_on_after(_SECONDS):
                    await _answer(stream, redirect)

    failure = None
    async with listeners, anyio.create_task_group() as tasks:
        tasks.start_soon(listeners.serve, serve)
        try:
            yield redirect
        except LoginFailed as exc:  # a task group would wrap it
            failure = exc
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _answer(stream: anyio.abc.SocketStream, redirect: Redirect) -> None:
    head = await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", _LARGEST)
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, target = first.partition(" ")
    host = next((line[5:].strip() for line in lines if line[:5].lower() == "host:"), "")
    try:
        status, text = redirect.take(target.partition(" ")[0], host) if method == "GET" else (405, "Only GET.")
    except ValueError:
        status, text = 400, _STRANGE
    await stream.send(_page(status, text))


def _page(status: int, text: str) -> bytes:
    body = f'<!doctype html><meta charset="utf-8"><title>mcp-hub</title><p>{text}</p>'.encode()
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Refused'}\r\n"
        f"content-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        "content-security-policy: default-src 'none'\r\nreferrer-policy: no-referrer\r\ncache-control: no-store\r\n\r\n"
    )
    return head.encode() + body
