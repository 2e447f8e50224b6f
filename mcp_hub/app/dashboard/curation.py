"""An operator's changes, approvals and logins by the dashboard, and what only operators read."""

import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from mcp_hub.app.dashboard.edits import HubEdits, setting_list
from mcp_hub.app.dashboard.overrides import Changes, Overrides, OverridesFile, check_size
from mcp_hub.app.dashboard.seen import RawMessages
from mcp_hub.app.limits import Current
from mcp_hub.app.logins import Logins, login_of, outcome, why_no_login
from mcp_hub.catalog.flags import decoded
from mcp_hub.catalog.pins import Pin, Record, UnapprovedTool, approved, encoded, label_of, read, subject_of
from mcp_hub.catalog.token_costs import list_tokens
from mcp_hub.catalog.trust.approvals import Approvals
from mcp_hub.catalog.trust.scan import diff_lines, flag_lines
from mcp_hub.clock import Clock, wall_time
from mcp_hub.codes.tables import SERVERS
from mcp_hub.config.load.overrides import MOST_TOOLS
from mcp_hub.fronts.dashboard.ports import Login
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.hub import HubPort
from mcp_hub.ids import record_key
from mcp_hub.masking import hide, hide_head
from mcp_hub.protocol.rest.overview import (
    ApprovalBody,
    ClientInstall,
    LoginNews,
    ProfileInfo,
    RawBody,
    RawList,
    ServerDetails,
    ServerLine,
    SettingList,
    ToolOverride,
    WaitingTool,
)
from mcp_hub.protocol.shape.stream_events import timestamp
from mcp_hub.sessions.clients import ClientsSeen
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.stores.server_logs import LogRecord, last_records
from mcp_hub.types import Kind
from mcp_hub.upstreams.auth.grants import ClientRegistration, LoginFailed

_MOST: Final = 200
"""Tools shown at once; `mcp-hub approve` shows all."""
_PATIENCE: Final = 300.0
"""Seconds for a person to log in."""
_FRESH: Final = 5.0
"""Seconds that a look is cached: it reads all clients' files."""
_LINES: Final = 200
"""Lines of and about a server."""
_NAMES: Final = 200
"""Servers, principals or clients named per profile."""


class ToolApprovals(msgspec.Struct, frozen=True):
    """The approval records in `store` for the configuration at `place`."""

    approvals: Approvals
    store: KeyedFiles
    place: str

    def waiting(self) -> list[WaitingTool]:
        """The tools that are not approved; blocks. Raises `Problem` for an unreadable record."""
        records: dict[str, Record] = {}
        waiting = []
        for finding in self.approvals.findings()[:_MOST]:
            if finding.server not in records:
                records[finding.server] = self._record(finding.server)
            waiting.append(_waiting(finding, records[finding.server].tools.get(finding.tool)))
        return waiting

    def names(self, server: str) -> set[str]:
        return {finding.tool for finding in self.approvals.findings() if finding.server == server}

    def check(self, server: str, tool: str) -> None:
        """Raises `Problem` 404 for what is not waiting."""
        if tool not in self.names(server):
            message = (
                f"{hide_head(label_of(tool), 200)} of server {json.dumps(server)} is not waiting. Load the page again."
            )
            raise Problem(404, "unknown_tool", message)

    def approve(self, server: str, tool: str, digest: str) -> None:
        """Approves the definition; blocks. Raises `Problem` 409 if it has changed."""
        missed: list[str] = []
        try:
            self.store.update(record_key(self.place, server), partial(_approved, tool, digest, missed))
        except (OSError, ValueError) as problem:
            raise Problem(503, "state_unwritable", decoded(str(problem))) from None
        if missed:
            message = f"{decoded(tool)} is not waiting with this definition. Look at it again."
            raise Problem(409, "changed_meanwhile", message)

    def _record(self, server: str) -> Record:
        try:
            return read(self.store.read(record_key(self.place, server)))
        except (OSError, ValueError):
            return Record()  # the finding itself says that it is unreadable


def _approved(tool: str, digest: str, missed: list[str], text: bytes | None) -> bytes | None:
    record, unapproved = approved(read(text), {tool: digest}, wall_time())
    missed.extend(unapproved)
    return None if unapproved else encoded(record)


def _waiting(finding: UnapprovedTool, pin: Pin | None) -> WaitingTool:
    return WaitingTool(
        server=finding.server,
        tool=finding.tool,
        kind=finding.kind,
        text=finding.text,
        held=finding.is_held,
        since=timestamp(finding.since) if finding.since else "",
        digest=finding.digest,
        diff=[hide(line) for line, _ in _lines(pin)],
        flags=[] if pin is None else [hide(line) for line in flag_lines(pin)],
        subject=subject_of(finding.tool)[0],
    )


def _lines(pin: Pin | None) -> Iterator[tuple[str, str]]:
    return iter(()) if pin is None else diff_lines(pin)


def cached_installs(
    look: Callable[[], list[ClientInstall]], clock: Clock
) -> Callable[[], Awaitable[list[ClientInstall]]]:
    """The install state of all clients, cached for seconds. `look` blocks."""
    turn = anyio.Lock()
    last: tuple[float, list[ClientInstall]] | None = None

    async def installs() -> list[ClientInstall]:
        nonlocal last
        async with turn:
            if last is None or clock.now() - last[0] >= _FRESH:
                last = clock.now(), await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
            return last[1]

    return installs


class HubCuration(msgspec.Struct, frozen=True):
    """A `fronts.dashboard` `HubOperator`."""

    current: Current
    hub: HubPort
    approvals: ToolApprovals
    file: OverridesFile
    logins: Logins
    """Informs running servers of logins by a browser on this machine."""
    clients: Callable[[], Awaitable[list[ClientInstall]]]
    edits: HubEdits
    seen: ClientsSeen
    raw: RawMessages
    logs: Path | None = None
    """The folder of server logs, if kept."""

    async def waiting(self) -> list[WaitingTool]:
        """Tools that differ from those approved."""
        self.hub.catalog.view(None)  # looks at the tools, and so judges them
        return await anyio.to_thread.run_sync(self.approvals.waiting)

    async def judge(self, body: ApprovalBody) -> None:
        """Approves a waiting text, or hides a waiting tool. Raises `Problem`."""
        self._check_server(body.server)
        self.hub.catalog.view(None)
        self.approvals.check(body.server, body.tool)
        if body.action == "reject":
            subject, tool = subject_of(body.tool)
            if subject != "tool":
                raise Problem(
                    400, "invalid_params", f"Only a tool can be hidden, not {hide_head(label_of(body.tool), 200)!r}."
                )
            await self.file.write({body.server: {tool: ToolOverride(hide=True)}})
            return
        await anyio.to_thread.run_sync(self.approvals.approve, body.server, body.tool, body.digest)
        self.approvals.approvals.look()

    async def overrides(self) -> Overrides:
        return await anyio.to_thread.run_sync(self.file.read)

    async def override(self, changes: Changes) -> None:
        check_size(sum(map(len, changes.values())), MOST_TOOLS, "tools")
        for server in changes:
            self._check_server(server)
        await self.file.write(changes)

    def _check_server(self, server: str) -> None:
        if server not in self.current.settings.servers:
            raise unknown_server(server, self.current.settings.servers)

    async def settings(self) -> SettingList:
        """The effective configuration."""
        path = self.file.place
        overrides = await anyio.to_thread.run_sync(self.file.read)
        listed = await anyio.to_thread.run_sync(setting_list, self.current.settings, overrides)
        return SettingList(str(self.file.config), str(path) if overrides else None, listed)

    async def raw_messages(self, server: str, after: int) -> RawList:
        return await self.raw.read(server, after)

    def record_raw(self, body: RawBody) -> None:
        self.raw.switch(body)

    async def profiles(self) -> list[ProfileInfo]:
        return [self._profile(name) for name in (None, *self.current.settings.profiles)]

    def _profile(self, name: str | None) -> ProfileInfo:
        view = self.hub.catalog.view(name)
        tools = view.entries(Kind.TOOL)
        tokens, clients = self.current.settings.hub.tokens, self.seen.newest()
        return ProfileInfo(
            name=name,
            servers=[
                server for server in self.hub.catalog.rules(name).servers if server in self.current.settings.servers
            ][:_NAMES],
            tools=[tool.exported for tool in tools],
            tokens=list_tokens(view.for_model.entries(Kind.TOOL)),
            prompts=len(view.entries(Kind.PROMPT)),
            resources=len(view.entries(Kind.RESOURCE)),
            principals=[hide_head(token.principal, 200) for token in tokens if token.profile == name][:_NAMES],
            clients=[
                *dict.fromkeys(client.name for client in clients if client.caller.profile == name and client.name)
            ][:_NAMES],
        )

    async def installs(self) -> list[ClientInstall]:
        return await self.clients()

    async def server(self, server: str) -> ServerDetails:
        """The last lines from a server's log or stderr. Raises `Problem` 404."""
        status = next((state for state in self.hub.statuses() if state.server == server), None)
        if status is None:
            raise unknown_server(server)
        lines = [ServerLine(hide(line)) for line in status.stderr]
        if self.logs is not None:
            records = await anyio.to_thread.run_sync(last_records, self.logs, server, _LINES)
            lines = [_line(record) for record in records] or lines
        advice = SERVERS.get(status.code or "")
        takes_login = await anyio.to_thread.run_sync(self._takes_login, server)
        return ServerDetails(server, lines, takes_login, "" if advice is None else advice.fix_of(server))

    def _takes_login(self, server: str) -> bool:
        """Whether it is a remote server that takes a login. Blocks."""
        settings = self.current.settings.servers.get(server)
        return settings is not None and self.logins.is_asked_for(server, settings)

    def login(self, server: str) -> Login:
        """A login to run. Raises `Problem` 404 for an unknown server, 409 without a login."""
        settings = self.current.settings.servers.get(server)
        if settings is None:
            raise unknown_server(server, self.current.settings.servers)
        if (login := login_of(settings)) is None:
            raise Problem(409, "no_login", f'Server "{server}" {why_no_login(settings)}.')
        return partial(self._log_in, server, *login)

    async def _log_in(
        self, server: str, url: str, client: ClientRegistration, say: Callable[[LoginNews], Awaitable[None]]
    ) -> LoginNews:
        from mcp_hub.upstreams.auth.login import log_in

        async def show(page: str, issuer: str) -> None:
            await say(LoginNews("page", page, issuer))

        try:
            grant = await log_in(url, client, self.logins.store, show, _PATIENCE)
        except LoginFailed as failed:
            return LoginNews("ended", text=hide(f"Cannot log in to {server}: {failed}"), code="login_failed")
        return LoginNews("ended", text=outcome(server, grant, client))


def _line(record: LogRecord) -> ServerLine:
    if record.stderr is not None:
        return ServerLine(hide(record.stderr), record.time)
    text = " ".join([record.event, *(f"{key}={value}" for key, value in record.data.items())])
    return ServerLine(hide(text), record.time, record.level)
