"""Past calls over REST: pages, single calls, figures."""

import math
from collections.abc import Collection, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Final, Literal, Protocol

from msgspec import UNSET, Raw, Struct, UnsetType

from mcp_hub.globs import any_matches, late
from mcp_hub.masking import hide_head
from mcp_hub.types import OWN

_AGE: Final = late(r"([0-9]{1,9})(s|m|h|d|w)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_UNIX: Final = late(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_CURSOR: Final = late(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)-([0-9]{1,16})-(in_[0-9A-Za-z_-]{1,64})")
MOST: Final = 1000
MOST_DETAILS: Final = 200
"""Calls of one answer, and of one with their texts."""
SPANS: Final = {"1h": (60.0, 60), "1d": (1800.0, 48), "7d": (7200.0, 84)}
"""The seconds of a step, and how many, of each span that there are figures of."""

HUB: Final = "hub"
"""The name of the server of the hub's own tools in a query."""
_MOST_NAMES: Final = 500
"""Names that are compared with one that no call has."""
_LIKE: Final = 0.65
_SHOWN: Final = 100

PastStatus = Literal["completed", "tool_error", "failed", "cancelled", "timed_out"]
KeepingNow = Literal["off", "none", "hash", "full"]
RunCode = Literal["masked", "hashed", "cut", "not_kept", "changed", "gone", "not_a_tool"]


class _Names(Protocol):
    @property
    def server(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def client(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def parent(self) -> str: ...


class HistoryQuery(Struct, frozen=True):
    """A filter of calls. Times are Unix seconds; `tool` is a glob, `before` an answer's cursor."""

    server: str = ""
    tool: str = ""
    failed: bool = False
    status: str = ""
    client: str = ""
    principal: str = ""
    method: str = ""
    parent: str = ""
    since: float = 0.0
    until: float = float("inf")
    before: str = ""
    limit: int = 100
    details: bool = False

    def fits(self, call: _Names) -> bool:
        """Whether the call matches, apart from its time."""
        members = ("status", "client", "principal", "method", "parent")
        if any(getattr(self, name) not in ("", getattr(call, name)) for name in members):
            return False
        if (self.failed and call.status == "completed") or self.server not in ("", _server(call)):
            return False
        return not self.tool or any_matches((self.tool,), (call.tool, call.name))

    def hints(self, calls: Sequence[_Names], servers: Collection[str]) -> list[str]:
        """Sentences on names in the query that no call has; `servers` are the hub's, if known."""
        called = {_server(call) for call in calls}
        names = {name for call in calls for name in (call.tool, call.name)}
        clients = {call.client for call in calls}
        when = "in the history" if not self.since and self.until == math.inf else "in this time"
        hints = []
        if self.server and self.server not in called:
            if servers and self.server not in (*servers, HUB):
                hints.append(f'There is no server "{hide_head(self.server, _SHOWN)}".')
            near = () if self.server in servers else called | {*servers}
            hints.append(_no_call("server", self.server, when, near))
        if self.tool and not any_matches((self.tool,), names):
            hints.append(_no_call("tool", self.tool, when, names))
        if self.client and self.client not in clients:
            hints.append(_no_call("client", self.client, when, clients))
        return hints


def _server(call: _Names) -> str:
    return HUB if call.server == OWN else call.server


def _no_call(noun: str, name: str, when: str, names: Collection[str]) -> str:
    close = get_close_matches(name[:64], sorted(names)[:_MOST_NAMES], 1, _LIKE)
    hint = f' Did you mean "{hide_head(close[0], _SHOWN)}"?' if close else ""
    return f'No call of {noun} "{hide_head(name, _SHOWN)}" is {when}.{hint}'


class RunInfo(Struct, frozen=True, omit_defaults=True):
    """Whether the call can be repeated; else a code and a reason."""

    possible: bool
    code: RunCode | Literal[""] = ""
    text: str = ""


class HistoryCall(Struct, frozen=True, omit_defaults=True):
    """An ended call. `at` is its start in Unix seconds; `took` and `waited` are seconds.

    `took` is 0 where it is unknown, because the hub was killed meanwhile.
    `tool` is the server's name, `name` the called one. `stream`: it has or had one. `parent`: the run of a script that
    made it. Texts need `details=1` or a single
    call; `arguments` and `result` are JSON, else `…_text`. Tokens are estimates.
    """

    id: str
    server: str
    tool: str
    name: str
    method: str
    principal: str
    client: str
    status: str
    at: float
    took: float
    waited: float = 0.0
    hub: str = ""
    code: str = ""
    message: str = ""
    stream: bool = False
    arguments_bytes: int = 0
    result_bytes: int = 0
    keeping: str = ""
    arguments: Raw | UnsetType = UNSET
    arguments_text: str = ""
    arguments_hash: str = ""
    arguments_masked: bool = False
    arguments_cut: bool = False
    result: Raw | UnsetType = UNSET
    result_text: str = ""
    result_masked: bool = False
    result_cut: bool = False
    tokens_in: int = 0
    tokens_out: int = 0
    run: RunInfo | UnsetType = UNSET
    parent: str = ""


class HistoryLoss(Struct, frozen=True, omit_defaults=True):
    """Calls missing from the history; `at` in Unix seconds."""

    kind: str
    at: float
    text: str
    hub: str = ""
    count: int = 0


class HistoryPage(Struct, frozen=True, omit_defaults=True):
    """Calls, newest first. `before` is the next page's cursor; `failing`: why calls cannot be stored now.

    Without calls, `hints` name parts of the query that no call has.
    """

    calls: list[HistoryCall]
    keeping: KeepingNow
    before: str = ""
    location: str = ""
    losses: list[HistoryLoss] = []
    failing: str = ""
    hints: list[str] = []


class HistoryRow(Struct, frozen=True):
    """Figures of a tool, or of a server if `tool` is empty, in seconds.

    `series`: point, calls, failed calls, median, 95th percentile.
    """

    server: str
    tool: str
    calls: int
    failed: int
    p50: float
    p95: float
    max: float
    series: list[list[float]]


class HistoryFigures(Struct, frozen=True):
    """Figures in `points` steps of `step` seconds since `since`, most calls first; `more` tools are left out."""

    span: str
    since: float
    until: float
    step: float
    points: int
    rows: list[HistoryRow]
    servers: list[HistoryRow]
    more: int


class HistoryCleared(Struct, frozen=True):
    """The number of removed calls."""

    removed: int


def moment(text: str, now: float) -> float:
    """Unix seconds from an age (`15m`, `1d`), Unix seconds, or ISO 8601 with a zone. Raises `ValueError`."""
    if age := _AGE.fullmatch(text):
        return now - int(age[1]) * _UNITS[age[2]]
    if _UNIX.fullmatch(text):
        return float(text)
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        date = None
    if date is None or date.tzinfo is None:
        raise ValueError("write an age such as 15m, 1h or 7d, Unix seconds, or a time such as 2026-11-28T20:00:00Z")
    return date.timestamp()


def cursor(ended: float, number: int, hub: str) -> str:
    return f"{ended:.9f}-{number}-{hub}"


def place_of(cursor_text: str) -> tuple[float, int, str]:
    """Raises `ValueError`."""
    matched = _CURSOR.fullmatch(cursor_text)
    if matched is None:
        raise ValueError("is not a cursor of this history")
    return float(matched[1]), int(matched[2]), matched[3]
