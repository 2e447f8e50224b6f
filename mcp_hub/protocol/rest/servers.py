"""Servers over REST: how they are, restarts and reloads."""

from typing import Final, Literal, Self

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from mcp_hub.types import LAST_LINE, LAST_OUTPUT, LogFlow, reason_for_others, without_paths

_WITHHELD: Final = "Its output says why. Operators of the hub see it."


class UnapprovedInfo(Struct):
    """A tool that is not what was approved: `kind` is changed, new or unreadable; nobody can call one that is `held`.

    `members` are those of its definition that differ. `mcp-hub approve` shows and approves it. `tool` may also be a
    prompt (`prompt:NAME`), a resource template (`template:URI`) or the server's instructions (`server:instructions`).
    """

    tool: str
    kind: Literal["changed", "new", "unreadable", "unconfirmed"]
    members: list[str]
    held: bool


class FlagInfo(Struct):
    """A suspicious part of a tool's definition; `where` is its path there, `text` shows it.

    `tool` may also be a prompt (`prompt:NAME`), a resource (`resource:URI`), a resource template (`template:URI`) or
    the server's instructions (`server:instructions`).
    """

    tool: str
    kind: str
    where: str
    why: str
    text: str = ""


class SecondConnection(Struct, frozen=True, omit_defaults=True):
    """The connection to a server in its other era, beside the one that is shown."""

    state: str
    era: Literal["handshake", "modern"] | UnsetType = UNSET
    version: str | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    code: str | UnsetType = UNSET


class RefusedInfo(Struct, frozen=True, omit_defaults=True):
    """Something that the sandbox of a server refused `count` times, `at` is the last one.

    `kind` is `host`, `address` (of a host that is allowed), `socket`, `read` or `write` (a path), or `rate` (too much
    at a time). `entry` under `key` of the server's `sandbox` allows it; without them no line does. The texts come from
    the server: they are escaped, masked and cut.
    """

    kind: str
    target: str
    reason: str
    at: str
    count: int
    key: str | UnsetType = UNSET
    entry: str | UnsetType = UNSET


class TrafficInfo(Struct, frozen=True):
    """The connections of a server to the hosts of its rule, so far and open, and their bytes in both directions."""

    connections: int
    open: int
    sent: int
    received: int


class SandboxInfo(Struct, frozen=True, omit_defaults=True):
    """The sandbox of a server, as its latest start has it.

    `state` is `on`, `absent` if the system lacks one and the rule only prefers it (`reason` says why), or `pending`
    before the first start, and after one that failed before its program ran. `shrinks` says what this kernel cannot
    close. `net` is `any`, `none` or `hosts`, which are the entries in `hosts`. Of the paths to `read` and `write`, and
    `sockets`, at most 100 each are listed. `refused` counts all refusals since the rule holds; `latest` are the last
    64 different ones, the newest first. `lists` has what a list under `read`, `write`, `net` or `sockets` has to
    repeat, so that it opens what is open now; not keys with more than 100 entries, or one that cannot be shown as it
    is. Operators alone see paths, hosts and targets.
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
        """The sandbox without paths and hosts of the operator, and without what the server tried to reach."""
        return replace(self, home=UNSET, hosts=[], sockets=[], read=[], write=[], latest=[], lists={})


class ServerInfo(Struct, frozen=True, omit_defaults=True):
    """A server now. `reason` says why it is not ready, `code` is its stable code (docs/errors.md).

    A server that is ready has a `reason` if processes for single sessions have failed. `rests`: it is stopped until it
    is needed. `restarts` count since it was put up. `era` and `version` are of the protocol, `software` is its own name
    for itself. `stderr` are its last lines there, the newest last. Its lists were read at `listed`, `age` seconds ago;
    `entries` counts them by kind, `offered` those that clients get, and `warnings` say what is missing; the last
    `quarantined` of them are about malformed definitions, and those in `unsteady` about lists that are never twice the
    same. `second` is the connection in the server's other era, while there are two. `logs` is the rule for log messages
    that name no call, with the number of messages that were sent on to calls and of those that were kept in the hub's
    log. `scope`: which calls share a process. `sandbox` is there for a server that has one.
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

    def without_output(self) -> Self:
        """The server without any line that it wrote, any host that it tried to reach, and paths of the hub's machine.

        Lines and hosts may hold what other principals sent to it.
        """
        second, sandbox = self.second, self.sandbox
        if isinstance(sandbox, SandboxInfo):
            sandbox = sandbox.without_names()
        if isinstance(second, SecondConnection):
            second = replace(second, reason=_withheld(second.reason, second.code))
        warnings = [without_paths(text.partition(LAST_LINE)[0]) for text in self.warnings]
        reason = _withheld(self.reason, self.code)
        return replace(self, stderr=[], reason=reason, warnings=warnings, second=second, sandbox=sandbox)


def _withheld(reason: str | UnsetType, code: str | UnsetType) -> str | UnsetType:
    if not isinstance(reason, str):
        return reason
    public = reason_for_others(code if isinstance(code, str) else None, reason)
    return _WITHHELD if LAST_OUTPUT in public else public


class UnmatchedInfo(Struct, frozen=True):
    """A pattern of the configuration that matches nothing: its path there, keys and list indexes, and why."""

    path: list[str | int]
    reason: str


class ServerList(Struct, omit_defaults=True):
    """The servers that the caller may use, in the order of the configuration.

    `unmatched` are patterns of the configuration; `stamp` differs between versions of its file. Both are for callers
    without a profile only.
    """

    servers: list[ServerInfo]
    unmatched: list[UnmatchedInfo] = []
    stamp: str = ""

    def without_output(self) -> "ServerList":
        """The list for callers that do not operate the hub."""
        return replace(self, servers=[server.without_output() for server in self.servers])


class LastReload(Struct):
    """The outcome of the last reload; `findings` are the faults of a file that was not `applied`."""

    trigger: str
    at: str
    applied: bool
    findings: list[str]

    def without_paths(self) -> Self:
        """The outcome without paths of the hub's machine."""
        return replace(self, findings=[without_paths(text) for text in self.findings])


class RestartAnswer(Struct):
    """The server that is being started again; `GET /v1/tools` shows its tools meanwhile, and calls wait for it."""

    server: str


class ReloadAnswer(Struct):
    """The effect of a reload on servers, by name, and on keys of the file: in force now, or from the `next_start` on.

    `restarted` servers run otherwise now, of `adjusted` ones only rules and limits changed; `revived` ones had failed.
    """

    added: list[str]
    removed: list[str]
    restarted: list[str]
    adjusted: list[str]
    revived: list[str]
    kept: list[str]
    settings: list[str]
    next_start: list[str]
