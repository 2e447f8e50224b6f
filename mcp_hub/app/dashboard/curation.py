"""The changes that an operator makes by the dashboard, and what only operators read: part of the composition root."""

import anyio.to_thread
import msgspec

from mcp_hub.app.dashboard.approvals import ToolApprovals
from mcp_hub.app.dashboard.overrides import Changes, Overrides, OverridesFile
from mcp_hub.app.dashboard.settings import setting_list
from mcp_hub.app.limits import Current
from mcp_hub.fronts.rest.problem import unknown_server
from mcp_hub.hub import HubPort
from mcp_hub.masking import hide
from mcp_hub.protocol.rest.overview import ApprovalBody, ServerLog, SettingList, ToolOverride, WaitingTool


class HubCuration(msgspec.Struct, frozen=True):
    """A `fronts.dashboard` `HubOperator`."""

    current: Current
    hub: HubPort
    approvals: ToolApprovals
    file: OverridesFile

    async def waiting(self) -> list[WaitingTool]:
        """The tools that are not what was approved."""
        self.hub.catalog.view(None)  # looks at the tools, and so judges them
        return await anyio.to_thread.run_sync(self.approvals.waiting)

    async def judge(self, body: ApprovalBody) -> None:
        """Approves a tool, or hides it. Raises `Problem`."""
        if body.action == "reject":
            await self.file.write({body.server: {body.tool: ToolOverride(hide=True)}})
            return
        await anyio.to_thread.run_sync(self.approvals.approve, body.server, body.tool, body.digest)
        self.approvals.approvals.look()

    async def overrides(self) -> Overrides:
        """The overrides that the dashboard has written."""
        return await anyio.to_thread.run_sync(self.file.read)

    async def override(self, changes: Changes) -> None:
        """Writes overrides; the hub uses them at once. Raises `Problem`."""
        for server in changes:
            if server not in self.current.settings.servers:
                raise unknown_server(server)
        await self.file.write(changes)

    async def settings(self) -> SettingList:
        """The effective configuration."""
        place = self.file.place
        found = await anyio.to_thread.run_sync(self.file.read)
        shown = setting_list(self.current.settings, found)
        return SettingList(str(self.file.config), str(place) if found else None, shown)

    def server_log(self, server: str) -> ServerLog:
        """The last lines of stderr that the hub has. Raises `Problem` 404."""
        for status in self.hub.statuses():
            if status.server == server:
                return ServerLog(server, [hide(line) for line in status.stderr])
        raise unknown_server(server)
