"""Servers over REST: state, restarts, reloads."""

from operator import add
from typing import Final, Literal, Self

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import astuple, replace

from mcp_hub.types import LAST_LINE, LAST_OUTPUT, Expose, LogFlow, Mode, reason_for_others, without_paths

_WITHHELD: Final = "Its output says why. Operators of the hub see it."


class AccountCode(Struct):
    """The six digits that the last page of a login shows."""

    code: str


class AccountAnswer(Struct, omit_defaults=True):
    """The caller's account at a server: the `url` to log in, or the name of the `account`, if the server says it.

    After it is removed, whether there `was` one. `problem`: why it could not be revoked at its server.
    """

    server: str
    principal: str
    url: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    was: bool | UnsetType = UNSET
    problem: str = ""


class AccountInfo(Struct, omit_defaults=True):
    """An account, without its secrets: names of its `values`, times in ISO 8601. `gone`: no token has its principal."""

    server: str
    principal: str
    since: str
    used: str
    account: str | UnsetType = UNSET
    values: list[str] = []
    gone: bool = False


class AccountList(Struct):
    """Accounts by server and principal: the caller's, or for operators those of everybody."""

    accounts: list[AccountInfo]


class AccountValue(Struct):
    """A value for `${account:NAME}`."""

    value: str


class UnapprovedInfo(Struct):
    """An unapproved tool; nobody can call it if `held`. `mcp-hub approve` approves it.

    `members` of its definition differ. `tool` may also be `prompt:NAME`, `template:URI` or `server:instructions`.
    """

    tool: str
    kind: Literal["changed", "new", "unreadable", "unconfirmed"]
    members: list[str]
    held: bool


class FlagInfo(Struct):
    """A suspicious `text` in a definition, at path `where`.

    `tool` may also be `prompt:NAME`, `resource:URI`, `template:URI` or `server:instructions`.
    """

    tool: str
    kind: str
    where: str
    why: str
    text: str = ""


class SecondConnection(Struct, frozen=True, omit_defaults=True):
    """The server's connection in its other era."""

    state: str
    era: Literal["handshake", "modern"] | UnsetType = UNSET
    version: str | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    code: str | UnsetType = UNSET


class RefusedInfo(Struct, frozen=True, omit_defaults=True):
    """An access refused `count` times by the sandbox, last at `at`.

    `kind`: `host`, `address` (of an allowed host), `socket`, `read` or `write` (a path), `rate` (too much at a time).
    `entry` under `key` of `sandbox` would allow it. Texts are the server's, escaped, masked and cut.
    """

    kind: str
    target: str
    reason: str
    at: str
    count: int
    key: str | UnsetType = UNSET
    entry: str | UnsetType = UNSET


class TrafficInfo(Struct):
    """A server's connections to allowed hosts: total, open, and bytes."""

    connections: int
    open: int
    sent: int
    received: int

    def begin(self) -> None:
        self.connections += 1
        self.open += 1

    def end(self) -> None:
        self.open -= 1

    def count(self, *, sent: int = 0, received: int = 0) -> None:
        self.sent += sent
        self.received += received


class SandboxInfo(Struct, frozen=True, omit_defaults=True):
    """A server's sandbox at its last start.

    `state`: `on`; `absent` if only preferred and unsupported (`reason`); `pending` before a successful start.
    `shrinks`: gaps of this kernel. `read`, `write` and `sockets` list at most 100 each. `latest` are the last 64
    distinct refusals, newest first. `lists` has entries, by key, that keep open what is open now; a key with over 100
    is missing. Only operators see paths, hosts and targets.
    """

    state: Literal["on", "absent", "pending"]
    net: Literal["any", "none", "hosts"]
    refused: int
    reason: str | UnsetType = UNSET
    shrinks: str | UnsetType = UNSET
    hosts: list[str] = []
    sockets: list[str] = []
    home: str | UnsetType = UNSET
    read: list[str] = []
    write: list[str] = []
    latest: list[RefusedInfo] = []
    traffic: TrafficInfo | UnsetType = UNSET
    lists: dict[str, list[str]] = {}

    def without_names(self) -> Self:
        return replace(self, home=UNSET, hosts=[], sockets=[], read=[], write=[], latest=[], lists={})


class ServerInfo(Struct, frozen=True, omit_defaults=True):
    """A server now. `reason` and `code` (docs/errors.md) say why it is not ready, or that session processes failed.

    `rests`: stopped until needed. `restarts` count since it was added. `era` and `version` are the protocol's,
    `software` its own name, `stderr` its last lines. Its lists were read at `listed`, `age` seconds ago, with `entries`
    by kind; clients get `offered`. `warnings` end with `quarantined` ones on malformed definitions; `unsteady` lists
    differ at each read. `second` is the connection in the other era. `logs` is about log messages outside of calls.
    `scope`: which calls share a process. `connections`: open ones of principals with an account for each. `given_up`:
    messages about its events that webhooks did not take, since the hub started.
    """

    server: str
    state: Literal["starting", "ready", "backing_off", "failed", "draining", "stopped", "disabled", "incompatible"]
    restarts: int
    reason: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    era: Literal["handshake", "modern"] | UnsetType = UNSET
    version: str | UnsetType = UNSET
    software: str | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    rests: bool = False
    unapproved: list[UnapprovedInfo] = []
    flags: list[FlagInfo] = []
    stderr: list[str] = []
    listed: str | UnsetType = UNSET
    age: float | UnsetType = UNSET
    entries: dict[str, int] = {}
    offered: dict[str, int] | UnsetType = UNSET
    warnings: list[str] = []
    quarantined: int = 0
    unsteady: list[str] = []
    second: SecondConnection | UnsetType = UNSET
    logs: LogFlow | UnsetType = UNSET
    scope: str = "shared"
    sandbox: SandboxInfo | UnsetType = UNSET
    connections: int | UnsetType = UNSET
    given_up: int = 0

    def without_output(self) -> Self:
        """Without texts that may reveal paths or other principals' data."""
        second, sandbox = self.second, self.sandbox
        if isinstance(sandbox, SandboxInfo):
            sandbox = sandbox.without_names()
        if isinstance(second, SecondConnection):
            second = replace(second, reason=_withheld(second.reason, second.code))
        warnings = [without_paths(text.partition(LAST_LINE)[0]) for text in self.warnings]
        reason = _withheld(self.reason, self.code)
        return replace(self, stderr=[], reason=reason, warnings=warnings, second=second, sandbox=sandbox, given_up=0)


def _withheld(reason: str | UnsetType, code: str | UnsetType) -> str | UnsetType:
    if not isinstance(reason, str):
        return reason
    public = reason_for_others(code if isinstance(code, str) else None, reason)
    return _WITHHELD if LAST_OUTPUT in public else public


class UnmatchedInfo(Struct, frozen=True):
    """A configured pattern without a match: its path of keys and indexes, and why."""

    path: list[str | int]
    reason: str


class LastReload(Struct):
    """The last reload; `findings` are faults of a file that was not `applied`."""

    trigger: str
    at: str
    applied: bool
    findings: list[str]

    def without_paths(self) -> Self:
        return replace(self, findings=[without_paths(text) for text in self.findings])


class ServerList(Struct, omit_defaults=True):
    """The caller's servers in configured order.

    `unmatched` patterns, the `stamp` of the file that was read last, and that `reload` are only for callers without a
    profile.
    """

    servers: list[ServerInfo]
    unmatched: list[UnmatchedInfo] = []
    stamp: str = ""
    reload: LastReload | None = None

    def without_output(self) -> "ServerList":
        reload = None if self.reload is None else self.reload.without_paths()
        return replace(self, servers=[server.without_output() for server in self.servers], reload=reload)


class RestartAnswer(Struct):
    """The restarting server; its tools stay listed, and calls wait."""

    server: str


class ReloadAnswer(Struct):
    """A reload's effect on servers and keys, in force now or at the `next_start`.

    For `adjusted` servers only rules and limits changed; `revived` ones had failed.
    """

    added: list[str]
    removed: list[str]
    restarted: list[str]
    adjusted: list[str]
    revived: list[str]
    kept: list[str]
    settings: list[str]
    next_start: list[str]


class Tokens(msgspec.Struct, frozen=True):
    """Tokens of whole definitions, of ones without output schemas, of one-line signatures, of names."""

    full: int = 0
    compact: int = 0
    signature: int = 0
    names: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(*map(add, astuple(self), astuple(other)))


class ToolTokens(msgspec.Struct, frozen=True):
    """A tool; `tokens.names` is its share of its server's line of names."""

    name: str
    server: str
    tokens: Tokens


class ServerTokens(msgspec.Struct, frozen=True):
    """All tools of a server."""

    server: str
    tools: int
    tokens: Tokens


class ModeTokens(msgspec.Struct, frozen=True):
    """A list sent under `expose`, which gives `mode`; `listed` includes the hub's tools."""

    expose: Expose
    mode: Mode
    listed: int
    tokens: int


HEAVIEST: Final = 10
"""Tools that an account names as the heaviest, unless another number is asked for."""


class TokenAccount(msgspec.Struct, frozen=True):
    """The estimated cost of a profile's tools for one kind of client.

    `modes` are all ways to list them, `current` the one in use. `auto` uses `budget` (tokens) and `max_tools`; a client
    that `defers` loads definitions on demand. Tools of `starting` servers are unknown. `instructions` are sent besides.
    `apps` is `current` for clients that show apps; None if equal.
    """

    client: str
    profile: str | None
    current: ModeTokens
    modes: tuple[ModeTokens, ...]
    budget: int
    max_tools: int | None
    defers: bool
    starting: tuple[str, ...]
    total: Tokens
    servers: tuple[ServerTokens, ...]
    heaviest: tuple[str, ...]
    tools: tuple[ToolTokens, ...]
    instructions: int = 0
    apps: ModeTokens | None = None
