"""The hub as the dashboard asks for it. `app.dashboard` implements both protocols."""

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
    EditDone,
    EditJudgement,
    EditState,
    LoginEnded,
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
Login = Callable[[Callable[[LoginNews], Awaitable[None]]], Awaitable[LoginEnded]]
"""Runs a login and says what a person has to do; the outcome. A cancellation ends it, and nothing is changed."""


class HubView(Protocol):
    """The state of the hub, as far as a caller may see it."""

    @property
    def place(self) -> tuple[str, int]:
        """Where the feed is now: an epoch and a number."""

    @property
    def tools(self) -> int:
        """Changes with the lists of the servers."""

    async def state(self, caller: Caller, mode: DashboardMode) -> DashboardState: ...

    async def servers(self, caller: Caller) -> ServerList: ...

    def servers_stamp(self) -> object:
        """Differs when a server is in another state."""

    def ended(self, caller: Caller, epoch: str, seq: int) -> list[CallSummary] | None:
        """The calls that ended behind a place; None if that is not known any more."""

    def live(self, caller: Caller) -> list[CallSummary]: ...

    def watched(self, caller: Caller, mode: DashboardMode) -> AbstractContextManager[None]:
        """A page is open meanwhile; one of an operator answers what clients cannot be asked."""

    async def owner(self, id_: str) -> str | None:
        """The principal of a stream. Raises `StoreError`."""

    def clients(self, caller: Caller) -> ClientList: ...

    def tool_places(self, caller: Caller) -> list[ToolPlace]: ...


class HubEditor(Protocol):
    """The servers of the configuration, as an operator changes them. All of it raises `Problem`.

    `host` is the Host header of the request.
    """

    async def entry(self, server: str) -> ServerEntry: ...

    async def state(self, host: str) -> EditState: ...

    async def schema(self) -> JsonObject: ...

    async def judge(self, body: EditBody, host: str) -> EditJudgement: ...

    async def edit(self, body: EditBody, host: str) -> EditDone: ...

    async def switch(self, body: SwitchBody, host: str) -> EditDone: ...


class HubOperator(Protocol):
    """Everything that only an operator of the whole hub reads and changes. All of it raises `Problem`."""

    @property
    def edits(self) -> HubEditor: ...

    async def waiting(self) -> list[WaitingTool]: ...

    async def judge(self, body: ApprovalBody) -> None:
        """Approves a tool or rejects it."""

    async def overrides(self) -> dict[str, dict[str, JsonObject]]:
        """By server and tool."""

    async def override(self, changes: Changes) -> None:
        """Writes overrides, which hold at once."""

    async def settings(self) -> SettingList: ...

    async def raw_messages(self, server: str, after: int) -> RawList:
        """The messages of a server that were recorded, behind a number."""

    def record_raw(self, body: RawBody) -> None:
        """Starts or ends that."""

    async def profiles(self) -> list[ProfileInfo]:
        """The parts of the hub that callers see."""

    async def installs(self) -> list[ClientInstall]:
        """The clients on this machine."""

    async def server(self, server: str) -> ServerDetails: ...

    def login(self, server: str) -> Login:
        """A login to a remote server, which begins once it is run."""
