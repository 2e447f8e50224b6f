"""Makes the configured stores, which are not open yet."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from mcp_hub.clock import Clock
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.documents.base import DocumentLimits, Documents
from mcp_hub.stores.documents.files import FileDocuments
from mcp_hub.stores.documents.memory import MemoryDocuments
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.stores.recovery.failsafe import failsafe_on_file

DOCUMENTS: Final = "results"
"""The folder of long results in the hub's state directory."""
StoreKind = Literal["sqlite", "memory"]


def open_store(kind: StoreKind, folder: Path, limits: StoreLimits, clock: Clock) -> EventStore:
    return MemoryStore(limits) if kind == "memory" else failsafe_on_file(folder, limits, clock)


def open_documents(kind: StoreKind, folder: Path, limits: DocumentLimits, now: Callable[[], float]) -> Documents:
    return MemoryDocuments(limits, now) if kind == "memory" else FileDocuments(folder / DOCUMENTS, limits, now)
