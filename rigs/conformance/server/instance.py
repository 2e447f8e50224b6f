"""What one running conformance server remembers: the lists it has changed, and who wants to hear of it."""

from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]
Result = dict[str, Any]
Session = str | None

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
LOG_LEVEL = "io.modelcontextprotocol/logLevel"

CHANGES: dict[str, tuple[types.ServerNotification, ServerEvent]] = {
    "tools": (types.ToolListChangedNotification(), ToolsListChanged()),
    "prompts": (types.PromptListChangedNotification(), PromptsListChanged()),
}


def is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def session_of(context: Context) -> Session:
    """The key of a handshake session; a pipe has only one."""
    return None if context.request is None else context.request.headers.get("mcp-session-id")


@dataclass
class Instance:
    """State of this process; `changed` holds the lists that have their extra entry at the moment."""

    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    changed: set[str] = field(default_factory=set)
    levels: dict[Session, str] = field(default_factory=dict)
    subscribers: dict[tuple[Session, str], ServerSession] = field(default_factory=dict)

    async def change_list(self, context: Context, kind: str) -> None:
        """Add the extra entry of `tools` or `prompts`, or remove it, and say so in both eras."""
        self.changed ^= {kind}
        notification, event = CHANGES[kind]
        if not is_modern(context):
            await context.session.send_notification(notification)
        await self.bus.publish(event)

    async def update_resource(self, uri: str) -> None:
        """Tell everybody who subscribed to `uri`."""
        for (_, watched), session in list(self.subscribers.items()):
            if watched == uri:
                await session.send_resource_updated(uri)
        await self.bus.publish(ResourceUpdated(uri=uri))

    async def log(self, context: Context, level: types.LoggingLevel, text: str) -> None:
        """A log message on the request's own stream, if the request (modern) or the session asked for this level."""
        meta: dict[str, Any] = dict(context.meta or {})
        wanted = meta.get(LOG_LEVEL) if is_modern(context) else self.levels.get(session_of(context), "debug")
        if wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted):
            params = types.LoggingMessageNotificationParams(level=level, logger="conformance", data=text)
            notification = types.LoggingMessageNotification(params=params)
            await context.session.send_notification(notification, related_request_id=context.request_id)
