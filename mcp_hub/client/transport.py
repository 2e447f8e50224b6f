"""Requests to a hub, and responses."""

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol, Self


class ConnectionLost(Exception):
    """The connection broke before the response was complete."""


class NotConnected(ConnectionLost):
    """Nothing accepts connections; the request was not made."""


class Answer(Protocol):
    """One response; header names are in lower case. Its owner calls `aclose`."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, iterated once. Raises `ConnectionLost`."""

    async def aclose(self) -> None:
        """Releases the response within a bound. Idempotent."""


class HubTransport(Protocol):
    """An `async with` block for concurrent requests."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Returns at the response head. Raises `ConnectionLost`, `NotConnected`."""
