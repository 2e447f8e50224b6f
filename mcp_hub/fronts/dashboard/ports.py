"""The hub as the dashboard sees it."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol

from mcp_hub.protocol.rest.overview import (
    ApprovalBody,
    CallSummary,
    ClientInstall,
    ClientList,
    DashboardMode,
    DashboardState,
    EditBody,
    EditOutcome,
    EditState,
    LoginNews,
    ProfileInfo,
    RawBody,
    RawList,
    ServerDetails,
    ServerEntry,
    SettingList,
    SwitchBody,
    ToolOverride,
    ToolPlace,
    WaitingTool,
)
from mcp_hub.protocol.rest.servers import ServerList
from mcp_hub.sessions.session import Caller
from mcp_hub.types import JsonObject

Changes = dict[str, dict[str, ToolOverride]]
"""By server and the server's own name of the tool."""
Login = Callable[[Callable[[LoginNews], Awaitable[None]]], Awaitable[LoginNews]]
"""Runs a login, sends what a person has to do, returns the outcome. Cancelled, it changes nothing."""


class HubView(Protocol):
    """The hub's state for a caller."""

    @property
    def position(self) -> tuple[str, int]:
        """The feed's position: epoch and number."""

    @property
    def tools(self) -> int:
        """Changes with the servers' lists."""

    async def state(self, caller: Caller, mode: DashboardMode) -> DashboardState: ...

    async def servers(self, caller: Caller) -> ServerList: ...

    def servers_stamp(self) -> object:
        """Changes with any server's state, and when the configuration is read."""

    def ended(self, caller: Caller, epoch: str, seq: int) -> list[CallSummary] | None:
        """Calls that ended behind a position; None if it is too old."""

    def live(self, caller: Caller) -> list[CallSummary]: ...

    def watched(self, caller: Caller, mode: DashboardMode) -> AbstractContextManager[None]:
        """A page is open meanwhile; an operator's answers questions."""

    async def owner(self, id_: str) -> str | None:
        """The principal of a stream. Raises `StoreError`."""

    def clients(self, caller: Caller) -> ClientList: ...

    def tool_places(self, caller: Caller) -> list[ToolPlace]: ...


class _HubEditor(Protocol):
    """Edits configured servers. All raise `Problem`. `host` is the Host header."""

    async def entry(self, server: str) -> ServerEntry: ...

    async def state(self, host: str) -> EditState: ...

    async def schema(self) -> JsonObject: ...

    async def judge(self, body: EditBody, host: str) -> EditOutcome: ...

    async def edit(self, body: EditBody, host: str) -> EditOutcome: ...

    async def switch(self, body: SwitchBody, host: str) -> EditOutcome: ...

    async def search(self, words: str, host: str) -> list[JsonObject]:
        """Servers of the registry: texts of strangers, and the entries that may be proposed."""


class HubOperator(Protocol):
    """Reads and changes for operators only. All raise `Problem`."""

    @property
    def edits(self) -> _HubEditor: ...

    async def waiting(self) -> list[WaitingTool]: ...

    async def judge(self, body: ApprovalBody) -> None:
        """Approves or rejects a tool."""

    async def overrides(self) -> dict[str, dict[str, JsonObject]]:
        """Overrides by server and tool."""

    async def override(self, changes: Changes) -> None:
        """Writes overrides, effective at once."""

    async def settings(self) -> SettingList: ...

    async def raw_messages(self, server: str, after: int) -> RawList:
        """Recorded messages behind a number."""

    def record_raw(self, body: RawBody) -> None:
        """Starts or ends recording."""

    async def profiles(self) -> list[ProfileInfo]:
        """Every profile."""

    async def installs(self) -> list[ClientInstall]:
        """Clients on this machine."""

    async def server(self, server: str) -> ServerDetails: ...

    def login(self, server: str) -> Login:
        """A login, which begins when it is run."""
