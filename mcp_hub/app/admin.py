"""An operator's commands on a running hub."""

import msgspec

from mcp_hub.app.apply import Applier
from mcp_hub.app.reload import Reloader
from mcp_hub.app.status import HubStatus
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.masking import hide
from mcp_hub.protocol.rest.servers import ReloadAnswer, ServerInfo, ServerList, UnmatchedInfo


class Admin(msgspec.Struct, frozen=True):
    """The `Operator` of REST."""

    reloader: Reloader
    applier: Applier
    watch: HubStatus

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        return await self.watch.servers(profile)

    async def listed(self, profile: str | None) -> ServerList:
        """The servers; without a profile also patterns that match nothing."""
        servers = await self.watch.servers(profile)
        if profile is not None:
            return ServerList(servers)
        stamp, patterns_found = self.reloader.stamp, await self.watch.unmatched()
        patterns = [UnmatchedInfo(list(pattern.path), hide(pattern.reason)) for pattern in patterns_found]
        return ServerList(servers, patterns, stamp.text if stamp is not None else "")

    async def restart(self, server: str) -> None:
        """Replaces a server and reads its secrets again; its calls have `hub.drain_timeout` to end.

        Raises `Problem` 404, 409 or 503.
        """
        settings = self.reloader.settings
        if server not in settings.servers:
            raise unknown_server(server, settings.servers)
        if not settings.servers[server].enabled:
            raise Problem(409, "server_disabled", f'server "{server}" is disabled in the configuration')
        if self.applier.upstream_set.is_crowded(server):
            message = f'calls at earlier starts of "{server}" are still running. They have hub.drain_timeout to end.'
            raise Problem(503, "busy", message, headers=((b"retry-after", b"5"),))
        if not await self.reloader.reread(server):
            self.applier.restart(server)

    async def reload(self) -> ReloadAnswer:
        outcome = await self.reloader.reload("request")
        if not outcome.is_applied:
            detail = f"The configuration is invalid, so the previous one stays in use: {'; '.join(outcome.errors)}"
            raise Problem(422, "invalid_configuration", detail, findings=list(outcome.errors))
        change = outcome.plan
        return ReloadAnswer(
            added=list(change.added),
            removed=list(change.removed),
            restarted=list(change.restarted),
            adjusted=list(change.adjusted),
            revived=list(outcome.revived),
            kept=[name for name in change.kept if name not in outcome.revived],
            settings=list(change.at_once),
            next_start=list(change.next_start),
        )
