"""Notifications outside of calls, and subscriptions to them.

Source: specification 2026-07-28, basic/patterns/subscriptions; 2025-11-25, server/resources "Subscriptions".
"""

import re
from collections.abc import Iterator
from typing import Final, final

import msgspec

from mcp_hub.protocol.jsonrpc.envelope import read_as
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.types import Kind, RawObject

UPDATED: Final = "notifications/resources/updated"
ROOTS_CHANGED: Final = "notifications/roots/list_changed"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CANCELLED: Final = "notifications/cancelled"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
"""The reserved `_meta` key that says which `subscriptions/listen` a message belongs to: its request id, verbatim."""

FEED: Final = "events/stream"
"""The request that opens a stream of events, and the method of durable streams that hold them."""
OF_EVENTS: Final = frozenset(
    f"notifications/events/{name}" for name in ("active", "event", "heartbeat", "error", "terminated")
)
"""The messages of an `events/stream` (SEP-3415)."""
_PART_BEGINS: Final = re.compile("[/#]")
_LONGEST: Final = 2048
"""Characters of a URI whose wholes are looked for; bounds the work of one notification."""
_TIMEOUT: Final = re.compile(
    r"(?:\w*Error: )?(?:MCP error -32001: )?(?:request timed out|request timeout|timed out(?: after [-+.\de]+ ?s)?"
    r"|(?:the operation|signal) timed out\.?|the operation was aborted due to timeout)",
    re.IGNORECASE,
)
_LONGEST_TIMEOUT: Final = 100
"""Characters of a reason that may be one."""


@final
class ListenFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter requested by `subscriptions/listen`, or granted."""

    toolsListChanged: bool = False
    promptsListChanged: bool = False
    resourcesListChanged: bool = False
    resourceSubscriptions: tuple[str, ...] = ()
    taskIds: tuple[str, ...] = ()
    eventsListChanged: bool = False

    @property
    def list_methods(self) -> frozenset[str]:
        return frozenset(list_changed(kind) for kind in Kind if getattr(self, f"{KINDS[kind].capability}ListChanged"))


def list_changed(kind: Kind) -> str:
    """Resources and templates share one notification."""
    return f"notifications/{KINDS[kind].capability}/list_changed"


def given_reason(params: RawObject) -> str | None:
    return read_as(params.get("reason", b"null"), str)


def names_timeout(reason: str | None) -> bool:
    """Whether a client cancels since its time for the request is over, in the words of an SDK (docs/timeouts.md)."""
    return reason is not None and len(reason) <= _LONGEST_TIMEOUT and _TIMEOUT.fullmatch(reason) is not None


def covering(uri: str) -> Iterator[str]:
    """The URI and every resource that may contain it, some twice (schema, `ResourceUpdatedNotificationParams`)."""
    yield uri
    if len(uri) <= _LONGEST:
        for beginning in _PART_BEGINS.finditer(uri):
            yield uri[: beginning.start()]
            yield uri[: beginning.end()]
