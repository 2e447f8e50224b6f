"""The hub's state for the dashboard."""

from typing import Generic, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from mcp_hub.protocol.rest.servers import ServerList
from mcp_hub.types import Era, Status

_Action = TypeVar("_Action")
DashboardMode = Literal["off", "read", "full"]
"""The rights of the dashboard: none at all, to show, or to change as well."""


class CallSummary(Struct, frozen=True, gc=False, omit_defaults=True):
    """A call. `at` is its start in Unix seconds, `took` seconds so far or in all.

    `name` is as called, `client` as the client names itself. `stream`: it has a durable stream. `message` is the last
    progress, the failure or a tool's error, `question` the oldest open one. `waits_for`, such as `slow_tool of Cursor`,
    is set while `waiting` since `waits_since` (Unix seconds). Texts are masked and cut.
    """

    id: str
    server: str
    name: str
    method: str
    principal: str
    status: Status | Literal["waiting", "timed_out"]
    at: float
    took: float
    client: str = ""
    stream: bool = False
    message: str = ""
    progress: float | None = None
    total: float | None = None
    questions: int = 0
    question: str = ""
    waits_for: str = ""
    waits_since: float = 0.0


class ClientSummary(Struct, frozen=True, omit_defaults=True):
    """A client. `connected` is null for single requests; `tokens` are of its tool list."""

    name: str
    version: str
    era: Era
    principal: str
    first: float
    last: float
    calls: int
    profile: str | None = None
    connected: bool | None = None
    mode: str = ""
    tools: int = 0
    tokens: int = 0


class ClientList(Struct):
    """Clients since the hub's start, latest first, and all known `kinds`."""

    clients: list[ClientSummary]
    kinds: list[str]


InstallState = Literal["installed", "lost", "missing", "unreadable", "absent"]
"""`lost`: a command installed the hub and it is gone; `absent`: the client is not on this machine."""


class ClientInstall(Struct, frozen=True, omit_defaults=True):
    """A program on the hub's machine. `command` installs the hub in it; empty: by hand."""

    client: str
    title: str
    state: InstallState
    command: str
    path: str = ""


class DashboardState(Struct, frozen=True, omit_defaults=True):
    """The hub now. `/api/feed` continues at `cursor` (`epoch:seq`); `calls` are newest first.

    `profile` is the caller's; an `operator` sees all calls. `started` and `now` are Unix seconds; `tools` changes with
    tool lists.
    """

    cursor: str
    mode: DashboardMode
    version: str
    name: str
    started: float
    now: float
    tools: int
    servers: ServerList
    calls: list[CallSummary]
    live: list[CallSummary]
    profile: str | None = None
    operator: bool = False


class DashboardBatch(Struct, frozen=True, omit_defaults=True):
    """Feed news: ended calls; all `live` calls and `servers` if any changed."""

    ended: list[CallSummary] = []
    live: list[CallSummary] | UnsetType = UNSET
    servers: ServerList | UnsetType = UNSET
    tools: int | UnsetType = UNSET


class ToolPlace(Struct, frozen=True, omit_defaults=True):
    """A listed tool: `name` to call, server, the server's name for it, and whether it is pinned."""

    name: str
    server: str
    tool: str
    pinned: bool = False


class SettingInfo(Struct, omit_defaults=True):
    """A configuration key, its masked value, and the value's origin."""

    path: str
    value: str
    origin: Literal["file", "overrides", "default"]


class SettingList(Struct):
    """The effective configuration, and its files."""

    file: str
    overrides: str | None
    settings: list[SettingInfo]


class _ServerAction(Struct, Generic[_Action], forbid_unknown_fields=True):
    server: str
    action: _Action


class RawMessage(Struct, frozen=True, omit_defaults=True):
    """A message between hub and server on the wire, masked.

    `size` in bytes, `at` in Unix seconds; `incoming` from the server; `cut`: `text` is incomplete.
    """

    seq: int
    at: float
    incoming: bool
    size: int
    text: str
    cut: bool = False


class RawList(Struct):
    """A server's recorded messages, oldest first, at most 100. Recording ends in `left` seconds."""

    server: str
    left: float
    messages: list[RawMessage]


RawBody = _ServerAction[Literal["start", "stop"]]
"""Starts (for five minutes) or stops recording a server's messages."""


class ProfileInfo(Struct, frozen=True, omit_defaults=True):
    """The part of the hub in a profile; without a name, all of it.

    `tokens` are of the `tools`' definitions; `principals` have configured tokens of this profile; `clients` have used
    it.
    """

    name: str | None
    servers: list[str]
    tools: list[str]
    tokens: int
    prompts: int = 0
    resources: int = 0
    principals: list[str] = []
    clients: list[str] = []


class WaitingTool(Struct, frozen=True, omit_defaults=True):
    """An unapproved text of a server; lines of `diff` begin with +, - or a space. An approval names the `digest`.

    Texts other than tools and skills have a `subject` and cannot be hidden; `tool` names them, such as `prompt:NAME`.
    """

    server: str
    tool: str
    kind: Literal["changed", "new", "unreadable", "unconfirmed"]
    text: str
    held: bool
    since: str
    digest: str
    diff: list[str] = []
    flags: list[str] = []
    subject: Literal["tool", "prompt", "template", "resource", "event", "instructions"] = "tool"


class ApprovalBody(Struct, forbid_unknown_fields=True):
    """Approves this digest, or rejects and hides the tool by an override."""

    server: str
    tool: str
    digest: str
    action: Literal["approve", "reject"]


class _HintOverride(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Hints that replace the server's; null keeps one."""

    readOnlyHint: bool | None = None
    destructiveHint: bool | None = None
    idempotentHint: bool | None = None
    openWorldHint: bool | None = None


class ToolOverride(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Overrides of a tool: null removes one, a missing key keeps it."""

    hide: bool | None | UnsetType = UNSET
    pin: bool | None | UnsetType = UNSET
    name: str | None | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    annotations: _HintOverride | None | UnsetType = UNSET


class ServerLine(Struct, omit_defaults=True):
    """A line of stderr, or of the hub's log if it has a `level`. `at` is ISO 8601 in UTC."""

    text: str
    at: str = ""
    level: str = ""


class ServerFacts(Struct, omit_defaults=True):
    """A server's effective entry: `text` is its masked command line, URL, module or folder.

    `variables` and `headers` are names only, `limits` in seconds, `client` the source of an import.
    """

    kind: Literal["command", "url", "local", "skills", "scripts"]
    text: str
    variables: list[str] = []
    headers: list[str] = []
    folder: str = ""
    scope: str = ""
    start: str = ""
    limits: dict[str, float] = {}
    client: str = ""


class ServerEntry(Struct, omit_defaults=True):
    """A configured server; if editable, its masked YAML `text` and that one's `digest`."""

    server: str
    facts: ServerFacts
    text: str = ""
    digest: str = ""


class EditFinding(Struct, frozen=True, omit_defaults=True):
    """A mistake, or advice without `error`; lines count from 1."""

    message: str
    code: str
    line: int = 0
    error: bool = False


class EditOutcome(Struct, frozen=True, omit_defaults=True):
    """An edit's effect, or what it would be: nothing, at once, or a proposal that needs approval for these `reasons`.

    Lines of `diff` begin with +, - or a space. An error among the findings prevents the edit. `command` approves a
    proposal on a terminal.
    """

    effect: Literal["none", "now", "proposal"]
    findings: list[EditFinding] = []
    reasons: list[str] = []
    diff: list[str] = []
    command: str = ""


class EditBody(Struct, forbid_unknown_fields=True):
    """The new text of a server's entry; `digest` is the old one's, empty for a new server."""

    server: str
    text: str
    digest: str = ""


SwitchBody = _ServerAction[Literal["enable", "disable", "remove", "withdraw"]]
"""Enables, disables or removes a server, or withdraws its proposal."""


class ProposalInfo(Struct, frozen=True, omit_defaults=True):
    """An edit waiting for approval since `at` (Unix seconds). `new`: it adds the server."""

    server: str
    at: float
    command: str
    reasons: list[str] = []
    diff: list[str] = []
    new: bool = False


class EditState(Struct, omit_defaults=True):
    """Whether servers can be edited, `why` not, waiting proposals, and whether there is a `registry` to search."""

    possible: bool
    why: str = ""
    proposals: list[ProposalInfo] = []
    registry: bool = False


class ServerDetails(Struct, omit_defaults=True):
    """A server's last masked log lines, newest last; whether it takes a `login`; the `fix` of its problem."""

    server: str
    lines: list[ServerLine]
    login: bool = False
    fix: str = ""


class LoginNews(Struct, frozen=True, omit_defaults=True):
    """The `issuer`'s page, to open on the hub's machine, or the outcome; `code` is set on failure."""

    type: Literal["page", "ended"]
    url: str = ""
    issuer: str = ""
    text: str = ""
    code: str = ""
