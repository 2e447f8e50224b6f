"""Skills that wait for their approval: nobody may read their files, in whatever way a URI is written."""

from collections.abc import Mapping

from mcp_hub.catalog.filters import Filter
from mcp_hub.catalog.pins import UnapprovedTool
from mcp_hub.catalog.resources.readings import is_denied
from mcp_hub.protocol.skills import root_of
from mcp_hub.types import Origin


class HeldSkills:
    """The folders of those skills, by their servers, each with the finding."""

    def __init__(self, findings: Mapping[Origin, UnapprovedTool]) -> None:
        self._held: dict[str, list[tuple[Filter, UnapprovedTool]]] = {}
        for (server, uri), finding in findings.items():
            root = "".join(f"[{char}]" if char in "*?[]" else char for char in root_of(uri))
            self._held.setdefault(server, []).append((Filter(deny=(root, f"{root}/*")), finding))

    def finding(self, server: str, uri: str) -> UnapprovedTool | None:
        """The finding to be approved before this URI of a server can be read."""
        found = self._held.get(server, ())
        return next((finding for own, finding in found if is_denied((own,), (uri,))), None)
