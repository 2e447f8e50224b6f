"""mcp-hub: one MCP server in front of many, as a command and as a library (docs/library.md).

Importing this imports nothing else: each public name is imported when it is first used.
docs/architecture.md draws how the packages below fit together and which may import which.
"""

TYPE_CHECKING = False  # as type checkers know it; `typing` takes longer to load than a whole client's start (attach)
if TYPE_CHECKING:
    from mcp_hub.catalog.search.ranker import Hit
    from mcp_hub.errors import (
        Busy,
        CallCancelled,
        ConfigError,
        DeadlineExceeded,
        EventsGone,
        HubError,
        HubMisuse,
        ModelMismatch,
        RpcError,
        UnknownEntry,
        UnknownStream,
        UpstreamLost,
        UpstreamUnavailable,
    )
    from mcp_hub.events import (
        Attempt,
        CallEvent,
        Cancelled,
        Completed,
        Delta,
        Failed,
        InputReceived,
        InputRequired,
        Log,
        Progressed,
        Reset,
        ToolCall,
        ToolResult,
    )
    from mcp_hub.library.hub import Hub
    from mcp_hub.library.stream import ToolStream
    from mcp_hub.upstreams.functions.registry import Context, Event, Progress, Registry, Result, event, tool

__version__ = "0.1.0"

_MODULES = {
    "mcp_hub.catalog.search.ranker": ("Hit",),
    "mcp_hub.errors": (
        *("Busy", "CallCancelled", "ConfigError", "DeadlineExceeded", "EventsGone", "HubError", "HubMisuse"),
        *("ModelMismatch", "RpcError", "UnknownEntry", "UnknownStream", "UpstreamLost", "UpstreamUnavailable"),
    ),
    "mcp_hub.events": (
        *("Attempt", "CallEvent", "Cancelled", "Completed", "Delta", "Failed", "InputReceived", "InputRequired", "Log"),
        *("Progressed", "Reset", "ToolCall", "ToolResult"),
    ),
    "mcp_hub.library.hub": ("Hub",),
    "mcp_hub.library.stream": ("ToolStream",),
    "mcp_hub.upstreams.functions.registry": ("Context", "Event", "Progress", "Registry", "Result", "event", "tool"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Attempt", "Busy", "CallCancelled", "CallEvent", "Cancelled", "Completed", "ConfigError", "Context",
    "DeadlineExceeded", "Delta", "Event", "EventsGone", "Failed", "Hit", "Hub", "HubError", "HubMisuse",
    "InputReceived", "InputRequired", "Log", "ModelMismatch", "Progress", "Progressed", "Registry", "Reset", "Result",
    "RpcError", "ToolCall", "ToolResult", "ToolStream", "UnknownEntry", "UnknownStream", "UpstreamLost",
    "UpstreamUnavailable", "event", "tool",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """A public name, imported now (PEP 562)."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
