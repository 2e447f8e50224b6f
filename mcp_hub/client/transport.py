"""`HubTransport`: the way of a request to a hub and of its answer back."""

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol, Self


class ConnectionLost(Exception):
    """The connection broke before the answer was complete. The text says why."""


class NotConnected(ConnectionLost):
    """Nothing accepts connections there, so the request was not made."""


class Answer(Protocol):
    """One answer. Header names are in lower case. `chunks` raises `ConnectionLost`; its owner calls `aclose`."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body in portions, each as soon as it arrives. To be iterated once."""

    async def aclose(self) -> None:
        """Lets go of the answer, read to its end or not, within a bound. Idempotent."""


class HubTransport(Protocol):
    """An `async with` block in which requests can be sent, also several at once."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Sends a request and returns as soon as the head of its answer is there. Raises `ConnectionLost`."""
