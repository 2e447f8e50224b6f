"""Frozen records and ids that every layer speaks: no I/O, no behaviour beyond construction.

Payloads (definitions, params, results) are `RawJson`: JSON text as the sender wrote it. They are
spliced, never parsed into models and dumped again.
"""

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, NewType, Self

import msgspec

JsonObject = dict[str, Any]
RawJson = bytes | msgspec.Raw
"""Encoded JSON text of one value, relayed byte for byte."""
RawObject = dict[str, msgspec.Raw]
"""A JSON object decoded one level deep: member values stay encoded."""

CallId = NewType("CallId", str)
"""`st_` + 26 Crockford base32 characters of 128 random bits; also the stream id."""


Origin = tuple[str, str]
"""A server, and its own name, URI or URI template of something."""


class FileStamp(NamedTuple):
    """The fingerprint of a file: its inode, its size, and when it changed."""

    device: int
    inode: int
    modified: int
    changed: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """That of a file that was looked at."""
        return cls(
            device=status.st_dev,
            inode=status.st_ino,
            modified=status.st_mtime_ns,
            changed=status.st_ctime_ns,
            size=status.st_size,
        )

    @property
    def text(self) -> str:
        """The same on one line, to compare."""
        return "-".join(map(str, self))


OWN: Final = ""
"""The server of the hub's own tools: no configured one can have this name."""


class Era(StrEnum):
    """The two families of MCP revisions: up to 2025-11-25 (`initialize`) and from 2026-07-28 (stateless)."""

    HANDSHAKE = "handshake"
    MODERN = "modern"


HANDSHAKE: Final = Era.HANDSHAKE
MODERN: Final = Era.MODERN
"""For the way of a call: Python 3.11 takes some 50 ns to get a member from its class."""


class Kind(StrEnum):
    """The kinds of entries that a server can list."""

    __hash__ = str.__hash__  # that of Enum is a function in Python

    TOOL = "tool"
    RESOURCE = "resource"
    TEMPLATE = "template"
    PROMPT = "prompt"
    SKILL = "skill"


class UpstreamState(StrEnum):
    """Where an upstream is in its life."""

    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing_off"
    FAILED = "failed"
    DRAINING = "draining"
    STOPPED = "stopped"
    DISABLED = "disabled"
    INCOMPATIBLE = "incompatible"


Mode = Literal["full", "search", "names"]
"""The ways to expose the tools of a list; `auto` is a rule that decides for one of these."""

Expose = Literal["auto", "full", "search", "names"]
"""The configured exposure of tools."""

StoreState = Literal["durable", "memory", "out_of_use"]
"""Where streams go: to a file, to memory because that is configured, or to memory because the file cannot be used."""

Status = Literal["working", "input_required", "completed", "tool_error", "failed", "cancelled"]
"""Of a durable stream; the last four are endings. As of a task of 2026-07-28, but `tool_error` for a result that is."""


PartialForm = Literal["line", "text"]
"""The form of partial content as progress messages: one short line, or up to 1 kB of text."""


class ClientKind(msgspec.Struct, frozen=True, eq=False):
    """The key of a list besides the profile: the kind of client that asks. One object a kind: it is a key.

    `expose` None leaves it to the profile. `max_tools` is how many the client takes (None = any number);
    `defers_tools` says that it keeps definitions from its model until they are asked for. `max_result_tokens` are those
    above which its results are cut, 0 for never, None for the profile's. A call that runs for longer than its
    `soft_deadline` in seconds is answered with the output so far, None for never; for such a client `own` are the
    definitions of the hub's own tools. Its first list waits until `first_list_wait` seconds after the start of the hub,
    None for the usual time. `partials` is the form in which it gets partial content as progress messages, None for
    never. Its results follow the last progress of their call after `result_gap` seconds. It `shows_apps` of tools.
    """

    expose: Literal["auto"] | Mode | None = None
    max_tools: int | None = None
    defers_tools: bool = False
    max_result_tokens: int | None = None
    own: tuple[bytes, ...] = ()
    soft_deadline: float | None = None
    first_list_wait: float | None = None
    partials: PartialForm | None = None
    result_gap: float = 0.0
    shows_apps: bool = False


PROGRAM: Final = ClientKind(expose="full", max_result_tokens=0)
"""A client without a model: it gets every tool in lists, and whole results."""


class CacheHint(msgspec.Struct, frozen=True):
    """The time and scope for which a list may be cached (2026-07-28, server/utilities/caching)."""

    ttl_ms: int = 0
    public: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """The lists of one server when they were last read: raw definitions in the upstream's own order.

    `warnings` say what is missing from the lists: pages that were cut off, a kind that could not be listed. `announced`
    counts changes that the server announced and that these lists do not show. `is_apart`: they are those of one caller,
    whose connection lists something else than the one that everybody is listed.
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


class Cause(NamedTuple):
    """Why something failed or ended: a stable code of `mcp_hub.codes`, and the sentence for people."""

    code: str
    reason: str


LAST_OUTPUT: Final = ". Last output: "
"""Between the reason of a `Cause` and the last lines of a server's output."""
LAST_LINE: Final = ", the last is "
"""Between the number of lines that are not messages and the last of them."""
_LOCAL_PATH: Final = re.compile(
    r"(?P<url>\b(?!file:)[A-Za-z][\w+.-]{0,15}://[^\s'\"`<>]*)"
    r"|(?P<quote>['\"`])(?:file://|~)?/[^'\"`\n]*(?P=quote)"
    r"|~/[^\s'\"`]+"
    r"|(?:file://|(?<![\w/.]))/(?!/)[^\s/'\"`|,;()\[\]<>]+/[^\s'\"`]*"
    r"|/(?:home|Users|root|usr|var|etc|opt|tmp|private|mnt|media|srv|run|nix)/[^\s'\"`]*"
)
"""An absolute path of two parts or more, one in quotes, one below the home folder; or a URL, which is not one."""
_WITHHELD_PATH: Final = "…"
_WITHHELD: Final = "the operator of the hub sees why in `mcp-hub doctor`"
_WITHHELD_BY_SANDBOX: Final = "its sandbox refused a start; the operator sees why in `mcp-hub doctor`"

LogRule = Literal["hub", "shared", "turns"]
"""Where log messages of a server go that cannot be attributed to a call (`logs` of docs/configuration.md)."""


class LogFlow(msgspec.Struct, frozen=True):
    """The log messages of a server that were sent on to calls, and those that were kept in the hub's log."""

    rule: LogRule
    sent: int = 0
    kept: int = 0


class SandboxState(msgspec.Struct, frozen=True):
    """The sandbox of a server: as its latest start has it, `pending` before that, and the refusals so far."""

    state: Literal["on", "absent", "pending"]
    refused: int


class UpstreamStatus(msgspec.Struct, frozen=True):
    """The state of an upstream at one moment, for people; `reason` says why it is not ready, `code` is its code.

    One that is ready has a `reason` where processes of its own for single sessions have failed.
    `listed_at` is when its lists were read last, in Unix seconds, None if they never were; `rests` says that it is
    stopped only until it is needed. `failures` counts those in a row. `noise` counts the lines of its output that are
    not messages, with the last one. `second` is the connection in the server's other era, where there is one beside.
    `scope` is `session` or `call` for one with a process for each. `asks`: the server asks its callers and does not say
    which one, so that others wait for the answer. `unsteady` has a sentence about each list that is never
    twice the same. Upstreams do not know their `sandbox`; the state of the whole hub has it.
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


def plural(count: int, noun: str) -> str:
    """The count with its noun: `1 call`, `2 calls`, `2 entries`."""
    if count == 1:
        return f"1 {noun}"
    is_regular = not noun.endswith("y") or noun[-2:-1] in "aeiou"
    return f"{count} {noun}s" if is_regular else f"{count} {noun[:-1]}ies"


def condition(state: UpstreamState, reason: str | None, failures: int = 0) -> str:
    """The state as the end of a sentence that begins with the server's name."""
    if state not in (UpstreamState.STARTING, UpstreamState.BACKING_OFF):
        return {"failed": "has failed", "draining": "is stopping"}.get(state.value, f"is {state.value}")
    if not reason:
        return "is still starting"
    words = "is being restarted" if state is UpstreamState.STARTING else "is restarted soon"
    return f"failed {plural(failures, 'time')} and {words}" if failures else words


def without_paths(text: str) -> str:
    """The text with `…` in place of each path of this machine, as far as its form shows it; URLs stay."""
    return _LOCAL_PATH.sub(lambda match: match[0] if match["url"] else _WITHHELD_PATH, text)


def reason_for_others(code: str | None, reason: str) -> str:
    """The reason of a `Cause` for callers who do not operate the hub: without names of files of its machine.

    That of a sandbox names paths and hosts, and is left out as a whole. A path may hold blanks, so that the hub's part
    of another reason is left out if it names one; in the output of a server the paths alone are.
    """
    if (code or "").startswith("sandbox"):
        return _WITHHELD_BY_SANDBOX
    head, mark, output = reason.partition(LAST_OUTPUT)
    return f"{head if without_paths(head) == head else _WITHHELD}{mark}{without_paths(output)}"
