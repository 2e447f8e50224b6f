"""Frozen records and ids of every layer, without I/O. Payloads are `RawJson`, as sent."""

import os
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, NewType, Self, get_args

import msgspec

from mcp_hub.globs import late

JsonObject = dict[str, Any]
RawJson = bytes | msgspec.Raw
"""JSON text of one value, relayed byte for byte."""
RawObject = dict[str, msgspec.Raw]
"""A JSON object with encoded members."""

CallId = NewType("CallId", str)
"""`st_` and 26 Crockford base32 characters; also the stream's id."""


Origin = tuple[str, str]
"""A server, and its own name or URI of something."""


class FileStamp(NamedTuple):
    """The fingerprint of a file: inode, size and times of change."""

    device: int
    inode: int
    modified: int
    changed: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        return cls(
            device=status.st_dev,
            inode=status.st_ino,
            modified=status.st_mtime_ns,
            changed=status.st_ctime_ns,
            size=status.st_size,
        )

    @property
    def text(self) -> str:
        return "-".join(map(str, self))


OWN: Final = ""
"""The hub's own tools; no configured server has this name."""
RUN_CODE: Final = "run_code"
"""The tool that runs a script over the tools."""


class Era(StrEnum):
    """The families of MCP revisions: up to 2025-11-25 (`initialize`), and from 2026-07-28 (stateless)."""

    HANDSHAKE = "handshake"
    MODERN = "modern"


HANDSHAKE: Final = Era.HANDSHAKE
MODERN: Final = Era.MODERN
"""Constants: Python 3.11 takes 50 ns for an enum's member."""


class Kind(StrEnum):
    """The kinds of listed entries."""

    __hash__ = str.__hash__  # that of Enum is a function in Python

    TOOL = "tool"
    RESOURCE = "resource"
    TEMPLATE = "template"
    PROMPT = "prompt"
    SKILL = "skill"
    EVENT = "event"


class UpstreamState(StrEnum):
    """The states of an upstream."""

    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing_off"
    FAILED = "failed"
    DRAINING = "draining"
    STOPPED = "stopped"
    DISABLED = "disabled"
    INCOMPATIBLE = "incompatible"


Mode = Literal["full", "search", "names"]
"""Ways to expose a list's tools; `auto` chooses one of these."""

Expose = Literal["auto", "full", "search", "names"]
"""The configured exposure of tools."""

CodeMode = Literal["off", "reads", "ask", "all"]
"""Tools that scripts may call, from none to all; `ask`: those that write after a question."""

StoreState = Literal["durable", "memory", "out_of_use"]
"""Streams go to a file, to memory by configuration, or to memory because the file fails."""

Status = Literal["working", "input_required", "completed", "tool_error", "failed", "cancelled"]
"""A durable stream's; the last four are endings. Task statuses of 2026-07-28, and `tool_error`."""


PartialForm = Literal["line", "text"]
"""Partial content in progress messages: a short line, or up to 1 kB of text."""


class ClientKind(msgspec.Struct, frozen=True, eq=False):
    """A kind of client, compared by identity.

    `expose` and `max_result_tokens` None: the profile decides. `max_tools` None: any number. `defers_tools`: its model
    sees definitions on demand. `max_result_tokens` 0: no cut. After `soft_deadline` seconds a call is answered with its
    output so far. `hub_tools` are definitions of the hub's own about calls. `first_list_wait` is in seconds from the
    hub's start, `result_gap` between last progress and result.
    """

    expose: Literal["auto"] | Mode | None = None
    max_tools: int | None = None
    defers_tools: bool = False
    max_result_tokens: int | None = None
    hub_tools: tuple[bytes, ...] = ()
    soft_deadline: float | None = None
    first_list_wait: float | None = None
    partials: PartialForm | None = None
    result_gap: float = 0.0
    shows_apps: bool = False


PROGRAM: Final = ClientKind(expose="full", max_result_tokens=0)
"""A client without a model: all tools, whole results."""


class CacheHint(msgspec.Struct, frozen=True):
    """Time and scope for caching a list (2026-07-28, server/utilities/caching)."""

    ttl_ms: int = 0
    public: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """A server's raw lists as last read.

    `warnings` say what is missing. `announced` counts changes not yet read. `is_apart`: one caller's. `is_own`: made by
    the hub, so nobody has to approve them.
    """

    server: str
    era: Era
    lists: Mapping[Kind, tuple[bytes, ...]]
    hints: Mapping[Kind, CacheHint] = msgspec.field(default_factory=dict)
    capabilities: JsonObject = msgspec.field(default_factory=dict)
    instructions: str | None = None
    warnings: tuple[str, ...] = ()
    announced: int = 0
    is_apart: bool = False
    is_own: bool = False


class Cause(NamedTuple):
    """The reason of a failure or end: a code of `mcp_hub.codes` and a sentence."""

    code: str
    reason: str


LAST_OUTPUT: Final = ". Last output: "
"""Separates a `Cause`'s reason from a server's last output."""
LAST_LINE: Final = ", the last is "
"""Separates the number of odd lines from the last one."""
_LOCAL_PATH: Final = late(
    r"(?P<url>\b(?!file:)[A-Za-z][\w+.-]{0,15}://[^\s'\"`<>]*)"
    r"|(?P<quote>['\"`])(?:file://|~)?/[^'\"`\n]*(?P=quote)"
    r"|~/[^\s'\"`]+"
    r"|(?:file://|(?<![\w/.]))/(?!/)[^\s/'\"`|,;()\[\]<>]+/[^\s'\"`]*"
    r"|/(?:home|Users|root|usr|var|etc|opt|tmp|private|mnt|media|srv|run|nix)/[^\s'\"`]*"
)
"""An absolute path (two parts, quoted, or in the home), or a URL."""
_WITHHELD_PATH: Final = "…"
_WITHHELD: Final = "the operator of the hub sees why in `mcp-hub doctor`"
_WITHHELD_BY_SANDBOX: Final = "its sandbox refused a start; the operator sees why in `mcp-hub doctor`"

LogRule = Literal["hub", "shared", "turns"]
"""The destination of log messages that belong to no call (`logs` of docs/configuration.md)."""


class LogFlow(msgspec.Struct, frozen=True):
    """A server's log messages: sent to calls, or only in the hub's log."""

    rule: LogRule
    sent: int = 0
    kept: int = 0


SandboxState = Literal["on", "absent", "pending"]
"""A server's sandbox at its latest start."""


class UpstreamStatus(msgspec.Struct, frozen=True):
    """An upstream's state at one moment; `reason` says why it, or a session's process, is not ready.

    `listed_at` is in Unix seconds. `rests`: stopped until needed. `failures` are those in a row. `noise` describes
    output that is not messages. `second` is the connection in the other era. `scope`: `session` or `call` with a
    process for each. `asks`: its questions name no call, so sessions wait. `unsteady` names lists that never repeat.
    `connections`: open ones of principals, with an account for each.
    Only the hub's own state has `sandbox`, with its `refusals` so far.
    """

    server: str
    state: UpstreamState
    reason: str | None = None
    era: Era | None = None
    version: str | None = None
    server_info: JsonObject | None = None
    restarts: int = 0
    pid: int | None = None
    stderr: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    listed_at: float | None = None
    rests: bool = False
    code: str | None = None
    failures: int = 0
    noise: str | None = None
    second: "UpstreamStatus | None" = None
    logs: LogFlow | None = None
    scope: str = ""
    asks: bool = False
    unsteady: tuple[str, ...] = ()
    sandbox: SandboxState | None = None
    refusals: int = 0
    connections: int | None = None


def has_settled(status: UpstreamStatus) -> bool:
    """Whether the server has left `starting` once."""
    return status.state is not UpstreamState.STARTING or status.restarts > 0


def not_ready(statuses: Iterable[UpstreamStatus]) -> list[UpstreamStatus]:
    """Enabled servers that are not ready, without stopped idle ones."""
    return [s for s in statuses if s.state not in (UpstreamState.READY, UpstreamState.DISABLED) and not s.rests]


def plural(count: int, noun: str) -> str:
    """`1 call`, `2 calls`, `2 entries`."""
    if count == 1:
        return f"1 {noun}"
    is_regular = not noun.endswith("y") or noun[-2:-1] in "aeiou"
    return f"{count} {noun}s" if is_regular else f"{count} {noun[:-1]}ies"


def condition(state: UpstreamState, reason: str | None, failures: int = 0) -> str:
    """The state as a predicate, after the server's name."""
    if state not in (UpstreamState.STARTING, UpstreamState.BACKING_OFF):
        return {"failed": "has failed", "draining": "is stopping"}.get(state.value, f"is {state.value}")
    if not reason:
        return "is still starting"
    words = "is being restarted" if state is UpstreamState.STARTING else "is restarted soon"
    return f"failed {plural(failures, 'time')} and {words}" if failures else words


def without_paths(text: str) -> str:
    """The text with local paths replaced by `…`; URLs stay."""
    return _LOCAL_PATH.sub(lambda match: match[0] if match["url"] else _WITHHELD_PATH, text)


def reason_for_others(code: str | None, reason: str) -> str:
    """A reason without local paths, for callers who do not operate the hub.

    A sandbox's is withheld, and so is the hub's part if it names a path.
    """
    if (code or "").startswith("sandbox"):
        return _WITHHELD_BY_SANDBOX
    head, mark, output = reason.partition(LAST_OUTPUT)
    return f"{head if without_paths(head) == head else _WITHHELD}{mark}{without_paths(output)}"


UNKNOWN_CLIENT: Final = "unknown"
"""The entry for every client that no other entry matches."""


class Format(StrEnum):
    """A shape of tools, calls and results."""

    MCP = "mcp"
    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    OPENAI_RESPONSES = "openai-responses"
    GEMINI = "gemini"
    GEMINI_INTERACTIONS = "gemini-interactions"


Connector = Literal["anthropic-mcp", "openai-mcp", "gemini-mcp"]
"""The request entry by which a provider connects to the hub: a value of `format`."""
CONNECTORS: Final[tuple[Connector, ...]] = get_args(Connector)
