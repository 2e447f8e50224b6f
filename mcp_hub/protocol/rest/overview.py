"""The whole hub at a glance, for the dashboard: calls of every kind, clients, settings, changed tools."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from mcp_hub.protocol.rest.servers import ServerList
from mcp_hub.types import Era, JsonObject, Status

DashboardMode = Literal["off", "read", "full"]
"""The rights of the dashboard: none at all, to show, or to change as well."""


class CallSummary(Struct, frozen=True, gc=False, omit_defaults=True):
    """One call in a line. `at` is when it started in Unix seconds, `took` its seconds so far or in all.

    `name` is what the client called. `stream` says that it has a durable stream, which can be opened. `client` is the
    name that the client gives itself. `message` is the last progress or why it failed, with secrets masked.
    `questions` are open; `question` is the text of the oldest, masked and cut, if it has one. A call that is `waiting`
    waits for what `waits_for` says, such as `slow_tool of Cursor`, since `waits_since` in Unix seconds.
    """

    id: str
    server: str
    name: str
    method: str
    principal: str
    status: Status | Literal["waiting"]
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
    """A client that was seen. `connected` is null for one of single requests; `tokens` are those of its tool list."""

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
    """The clients that were seen since the hub started, those that came last first; `kinds` are all that are known."""

    clients: list[ClientSummary]
    kinds: list[str]


InstallState = Literal["installed", "lost", "missing", "unreadable", "absent"]
"""Of the hub in a client: `lost` was put there by a command and is gone, `absent` are clients that are not here."""


class ClientInstall(Struct, frozen=True, omit_defaults=True):
    """A client program on the machine of the hub. `command` installs the hub in it; empty: that is done by hand."""

    client: str
    title: str
    state: InstallState
    command: str
    path: str = ""


class InstallList(Struct):
    """All clients that the hub knows."""

    clients: list[ClientInstall]


class DashboardState(Struct, frozen=True, omit_defaults=True):
    """The hub now. `cursor` (`epoch:seq`) is where `/api/feed` continues; `calls` are the newest first.

    `profile` is that of the caller; `operator`: it operates the whole hub, and sees the calls of everybody. `started`
    and `now` in Unix seconds; `tools` changes with the lists of tools.
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
    """News of the feed: calls that ended, all `live` ones if any of them changed, servers if one changed."""

    ended: list[CallSummary] = []
    live: list[CallSummary] | UnsetType = UNSET
    servers: ServerList | UnsetType = UNSET
    tools: int | UnsetType = UNSET


class ToolPlace(Struct, frozen=True, omit_defaults=True):
    """A listed tool: the name to call it by, its server and that one's own name for it, and if it is pinned."""

    name: str
    server: str
    tool: str
    pinned: bool = False


class ToolPlaces(Struct):
    """The tools that the caller may use; `overrides` are the keys that the overrides file has, by server and tool."""

    tools: list[ToolPlace]
    overrides: dict[str, dict[str, JsonObject]] = {}


class SettingInfo(Struct, omit_defaults=True):
    """A key of the configuration: its value as text, with secrets masked, and where the value comes from."""

    path: str
    value: str
    origin: Literal["file", "overrides", "default"]


class SettingList(Struct):
    """The effective configuration and the files that it was read from."""

    file: str
    overrides: str | None
    settings: list[SettingInfo]


class RawMessage(Struct, frozen=True, omit_defaults=True):
    """A message between the hub and a server as it is on the wire, secrets masked.

    `size` in bytes, `at` in Unix seconds. `incoming`: the server sent it. `cut`: `text` is its beginning.
    """

    seq: int
    at: float
    incoming: bool
    size: int
    text: str
    cut: bool = False


class RawList(Struct):
    """Messages of one server, the oldest first, at most 100; they are recorded for `left` seconds more."""

    server: str
    left: float
    messages: list[RawMessage]


class RawBody(Struct, forbid_unknown_fields=True):
    """Starts to record the messages of a server for five minutes, or ends that."""

    server: str
    action: Literal["start", "stop"]


class ProfileInfo(Struct, frozen=True, omit_defaults=True):
    """The part of the hub that a profile opens, without a name all of it, and for whom.

    `tools` are names to call by, `tokens` those of their definitions. `principals` have a token of the configuration
    that is bound to it, `clients` came with it since the start.
    """

    name: str | None
    servers: list[str]
    tools: list[str]
    tokens: int
    prompts: int = 0
    resources: int = 0
    principals: list[str] = []
    clients: list[str] = []


class ProfileList(Struct):
    """The hub without a profile, then every profile, in the order of the configuration."""

    profiles: list[ProfileInfo]


class WaitingTool(Struct, frozen=True, omit_defaults=True):
    """A text of a server that is not what was approved, with the difference as lines that begin with +, - or a space.

    `digest` stands for the definition that is shown; an approval has to name it. Other texts than a tool's and a
    skill's have a `subject`, and cannot be hidden here: `tool` is then `prompt:NAME`, `template:URI` or
    `server:instructions`.
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
    subject: Literal["tool", "prompt", "template", "resource", "instructions"] = "tool"


class ApprovalList(Struct):
    """The tools and other texts that wait for an approval."""

    waiting: list[WaitingTool]


class ApprovalBody(Struct, forbid_unknown_fields=True):
    """Approves a tool with this digest, or rejects it: then it is hidden by an override."""

    server: str
    tool: str
    digest: str
    action: Literal["approve", "reject"]


class HintOverride(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Hints in place of those of the server; None for those that stay."""

    readOnlyHint: bool | None = None
    destructiveHint: bool | None = None
    idempotentHint: bool | None = None
    openWorldHint: bool | None = None


class ToolOverride(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of one tool. A key that is null is no longer overridden; one that is left out stays as it is."""

    hide: bool | None | UnsetType = UNSET
    pin: bool | None | UnsetType = UNSET
    name: str | None | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    annotations: HintOverride | None | UnsetType = UNSET


class OverridesBody(Struct, forbid_unknown_fields=True):
    """Overrides to be written, by server and the server's own name of the tool."""

    servers: dict[str, dict[str, ToolOverride]]


class ServerLine(Struct, omit_defaults=True):
    """A line that a server wrote to stderr; with a `level`, one that the hub says about it. `at` is ISO 8601 in UTC."""

    text: str
    at: str = ""
    level: str = ""


class ServerFacts(Struct, omit_defaults=True):
    """The entry of a server as the hub uses it: `text` is its command line, URL, module or folder, secrets masked.

    `variables` are names of environment variables that its process gets, `headers` names that its URL is sent,
    `limits` the time limits that hold for it, in seconds. `client` is the client that it was imported from.
    """

    kind: Literal["command", "url", "local", "skills"]
    text: str
    variables: list[str] = []
    headers: list[str] = []
    folder: str = ""
    scope: str = ""
    start: str = ""
    limits: dict[str, float] = {}
    client: str = ""


class ServerEntry(Struct, omit_defaults=True):
    """A server in the configuration. Where it can be edited, `text` is its YAML, secrets masked, of the `digest`."""

    server: str
    facts: ServerFacts
    text: str = ""
    digest: str = ""


class EditFinding(Struct, frozen=True, omit_defaults=True):
    """A mistake in the text of an entry, or advice without `error`; `line` counts from 1."""

    message: str
    code: str
    line: int = 0
    error: bool = False


class EditJudgement(Struct, frozen=True, omit_defaults=True):
    """The effect of an edit: nothing, at once, or a proposal, which needs a person for these `reasons`.

    `diff` has lines that begin with +, - or a space, secrets masked. With an error among the findings nothing is done.
    """

    effect: Literal["none", "now", "proposal"]
    findings: list[EditFinding] = []
    reasons: list[str] = []
    diff: list[str] = []


class EditDone(Struct, frozen=True, omit_defaults=True):
    """An edit that was made, or proposed: then `command` shows it on a terminal and asks."""

    effect: Literal["none", "now", "proposal"]
    command: str = ""


class EditBody(Struct, forbid_unknown_fields=True):
    """The text of a server's entry, in place of the one with the `digest`; that is empty for a new server."""

    server: str
    text: str
    digest: str = ""


class SwitchBody(Struct, forbid_unknown_fields=True):
    """Switches a server on or off, removes it, or withdraws the proposal for it."""

    server: str
    action: Literal["enable", "disable", "remove", "withdraw"]


class ProposalInfo(Struct, frozen=True, omit_defaults=True):
    """An edit that waits for a person on a terminal, since `at` in Unix seconds. `new`: there is no such server yet."""

    server: str
    at: float
    command: str
    reasons: list[str] = []
    diff: list[str] = []
    new: bool = False


class EditState(Struct, omit_defaults=True):
    """Whether servers can be changed here, `why` not, the edits that wait, and the JSON Schema of an entry."""

    possible: bool
    why: str = ""
    proposals: list[ProposalInfo] = []


class ServerDetails(Struct, omit_defaults=True):
    """The last lines of and about a server, the newest last, with secrets masked. `login`: it takes a login.

    `fix` is what to do about its problem.
    """

    server: str
    lines: list[ServerLine]
    login: bool = False
    fix: str = ""


class LoginBody(Struct, forbid_unknown_fields=True):
    """Starts a login to a remote server."""

    server: str


class LoginNews(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """News of a login."""


class LoginPage(LoginNews, frozen=True, omit_defaults=True, tag="page"):
    """The page of the issuer that a person has to open, in a browser on the machine of the hub."""

    url: str
    issuer: str


class LoginEnded(LoginNews, frozen=True, omit_defaults=True, tag="ended"):
    """The outcome, in a sentence; `code` has a value if the login failed."""

    text: str
    code: str = ""
