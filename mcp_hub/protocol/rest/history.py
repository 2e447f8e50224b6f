"""The history of calls over REST: calls that have ended, one of them with its texts, and figures over time."""

import math
import re
from collections.abc import Collection, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Final, Literal, Protocol

from msgspec import UNSET, Raw, Struct, UnsetType

from mcp_hub.globs import any_matches
from mcp_hub.masking import hide_head
from mcp_hub.types import OWN

_AGE: Final = re.compile(r"([0-9]{1,9})(s|m|h|d|w)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_UNIX: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_CURSOR: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)-([0-9]{1,15})-(in_[0-9A-Za-z_-]{1,64})")
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
    """The names of a call that has ended, and how it ended."""

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


class HistoryQuery(Struct, frozen=True):
    """The calls that are asked for. Times are Unix seconds; `tool` is a glob, `before` the cursor of an answer."""

    server: str = ""
    tool: str = ""
    failed: bool = False
    status: str = ""
    client: str = ""
    principal: str = ""
    method: str = ""
    since: float = 0.0
    until: float = float("inf")
    before: str = ""
    limit: int = 100
    details: bool = False

    def fits(self, call: _Names) -> bool:
        """Whether calls with these names are asked for; their times are not looked at."""
        members = ("status", "client", "principal", "method")
        if any(getattr(self, name) not in ("", getattr(call, name)) for name in members):
            return False
        if (self.failed and call.status == "completed") or self.server not in ("", _server(call)):
            return False
        return not self.tool or any_matches((self.tool,), (call.tool, call.name))

    def hints(self, calls: Sequence[_Names], servers: Collection[str]) -> list[str]:
        """Sentences on names in the query that none of these calls has; `servers` are those of the hub, if known."""
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
    """The name that the server of a call has in a query."""
    return HUB if call.server == OWN else call.server


def _no_call(noun: str, name: str, when: str, names: Collection[str]) -> str:
    close = get_close_matches(name[:64], sorted(names)[:_MOST_NAMES], 1, _LIKE)
    hint = f' Did you mean "{hide_head(close[0], _SHOWN)}"?' if close else ""
    return f'No call of {noun} "{hide_head(name, _SHOWN)}" is {when}.{hint}'


class RunInfo(Struct, frozen=True, omit_defaults=True):
    """Whether a call can be made again; else a code, and the reason for people."""

    possible: bool
    code: RunCode | Literal[""] = ""
    text: str = ""


class HistoryCall(Struct, frozen=True, omit_defaults=True):
    """A call that has ended. `at` is when it started in Unix seconds, `took` and `waited` are seconds.

    `tool` is the server's name for it, `name` the one that was called. `stream`: it has a durable stream, or had one.
    The texts are there for one call, or with `details=1`: `arguments` and `result` are JSON, or a text where what was
    kept is none. `tokens_in` and `tokens_out` are estimates, of a result that was cut by its size.
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
    kept: str = ""
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


class HistoryLoss(Struct, frozen=True, omit_defaults=True):
    """Calls that are not in the history, and why. `at` are Unix seconds."""

    kind: str
    at: float
    text: str
    hub: str = ""
    count: int = 0


class HistoryPage(Struct, frozen=True, omit_defaults=True):
    """Calls, the newest first. `before` is the cursor of the next page; `failing`: why calls cannot be kept now.

    Where there are none, `hints` are sentences on names that were asked for and that no call has.
    """

    calls: list[HistoryCall]
    keeping: KeepingNow
    before: str = ""
    place: str = ""
    losses: list[HistoryLoss] = []
    failing: str = ""
    hints: list[str] = []


class HistoryRow(Struct, frozen=True):
    """Figures of a tool, or of a server (an empty `tool`), in seconds.

    `series` has a list for each point with calls: its number, calls, failed ones, median, 95th percentile.
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
    """Calls in `points` steps of `step` seconds from `since` on; those with the most calls first.

    `more` tools are left out.
    """

    span: str
    since: float
    until: float
    step: float
    points: int
    rows: list[HistoryRow]
    servers: list[HistoryRow]
    more: int


class HistoryCleared(Struct, frozen=True):
    """The number of calls that were removed."""

    removed: int


def moment(text: str, now: float) -> float:
    """Unix seconds of an age (`15m`, `1d`), of Unix seconds, or of ISO 8601 with a zone. Raises `ValueError`."""
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
    """The place behind which the next page begins."""
    return f"{ended:.9f}-{number}-{hub}"


def place_of(cursor_text: str) -> tuple[float, int, str]:
    """The place of a cursor. Raises `ValueError`."""
    matched = _CURSOR.fullmatch(cursor_text)
    if matched is None:
        raise ValueError("is not a cursor of this history")
    return float(matched[1]), int(matched[2]), matched[3]
