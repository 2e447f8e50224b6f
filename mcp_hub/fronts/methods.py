"""Methods that the hub adds to the protocol's own, on every MCP front."""

from collections.abc import Awaitable, Callable, Mapping

from mcp_hub.fronts.stream_reads import stream_methods
from mcp_hub.fronts.tasks import task_methods
from mcp_hub.hub import Facade
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.sessions.session import Session
from mcp_hub.types import RawObject

__all__ = ["Method", "added_methods"]

Method = Callable[[Session, RawObject, RequestMeta], Awaitable[bytes]]
"""Answers one request of a session with the encoded result. Raises `RpcError`."""


def added_methods(hub: Facade) -> Mapping[str, Method]:
    """By name."""
    return {**task_methods(hub), **stream_methods(hub)}
