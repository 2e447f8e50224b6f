"""Makes the store that the configuration names."""

from pathlib import Path
from typing import Literal

from mcp_hub.clock import Clock
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.stores.recovery.failsafe import FailsafeStore


def open_store(kind: Literal["sqlite", "memory"], folder: Path, limits: StoreLimits, clock: Clock) -> EventStore:
    """A store that is still to be opened. `folder` is the hub's state directory."""
    if kind == "memory":
        return MemoryStore(limits)
    return FailsafeStore(folder, limits, clock)
