"""Logs each flag of the servers' texts once."""

from collections.abc import Mapping
from typing import Final

import anyio
import anyio.to_thread

from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.flags import Flag, decoded
from mcp_hub.catalog.pins import label_of, subject_of
from mcp_hub.catalog.trust.scan import Inspector, inspected
from mcp_hub.logs import get_logger

log = get_logger(__name__)

_PAUSE: Final = 1.0  # seconds between two looks, however often servers change their lists
_MOST_LOGGED: Final = 1000  # flags that one hub logs; `mcp-hub doctor` shows those of now


async def log_flags(catalog: Catalog, upstreams: Mapping[str, Upstream]) -> None:
    """Searches all texts after each change, in a thread, until cancelled or `_MOST_LOGGED` are logged."""
    inspector = Inspector()
    logged: set[Flag] = set()
    await catalog.settled()
    while len(logged) < _MOST_LOGGED:
        version = catalog.version
        texts = inspected(catalog.view(None), upstreams)
        for flag in await anyio.to_thread.run_sync(inspector.inspect, *texts, abandon_on_cancel=True):
            if flag not in logged and len(logged) < _MOST_LOGGED:
                logged.add(flag)
                is_tool = subject_of(flag.tool)[0] == "tool"
                tool = decoded(flag.exported if is_tool else label_of(flag.tool))
                details = {"kind": flag.kind, "where": decoded(flag.where, 200), "why": flag.why, "text": flag.text}
                log.warning("tool_flagged", upstream=flag.server, tool=tool, **details)
        await anyio.sleep(_PAUSE)
        await catalog.wait_changed(version)
