"""Makes the place for long results that the configuration's store goes with."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from mcp_hub.stores.documents.base import DocumentLimits, Documents
from mcp_hub.stores.documents.files import FileDocuments
from mcp_hub.stores.documents.memory import MemoryDocuments

FOLDER: Final = "results"


def open_documents(
    kind: Literal["sqlite", "memory"], folder: Path, limits: DocumentLimits, now: Callable[[], float]
) -> Documents:
    """A place that is still to be opened. `folder` is the hub's state directory, `now` Unix seconds."""
    return MemoryDocuments(limits, now) if kind == "memory" else FileDocuments(folder / FOLDER, limits, now)
