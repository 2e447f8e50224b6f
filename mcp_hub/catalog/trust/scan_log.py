"""Says in the log, once each, what in the servers' tools is hidden or speaks of other servers' (`scan`)."""

from typing import Final

import anyio
import anyio.to_thread

from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.flags import decoded
from mcp_hub.catalog.trust.scan import Flagged, Inspector
from mcp_hub.logs import get_logger
from mcp_hub.types import Kind

log = get_logger(__name__)

_PAUSE: Final = 1.0  # seconds between two looks, however often servers change their lists
_MOST_TOLD: Final = 1000  # flags that one hub tells of; `mcp-hub doctor` shows those of now


async def tell_flags(catalog: Catalog) -> None:
    """Looks at all tools whenever they have changed, in a worker thread, until cancelled or `_MOST_TOLD` are logged."""
    inspector = Inspector()
    told: set[Flagged] = set()
    await catalog.settled()
    while len(told) < _MOST_TOLD:
        version = catalog.version
        tools = catalog.view(None).entries(Kind.TOOL)
        for found in await anyio.to_thread.run_sync(inspector.inspect, tools, abandon_on_cancel=True):
            if found not in told and len(told) < _MOST_TOLD:
                told.add(found)
                tool, where = decoded(found.exported), decoded(found.flag.where, 200)
                flag = {"kind": found.flag.kind, "where": where, "why": found.flag.why, "text": found.flag.text}
                log.warning("tool_flagged", upstream=found.server, tool=tool, **flag)
        await anyio.sleep(_PAUSE)
        await catalog.wait_changed(version)
