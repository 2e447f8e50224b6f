"""Notifications outside of calls, subscriptions to them, and strictly increasing progress.

Source: specification 2026-07-28, basic/patterns/subscriptions; 2025-11-25, server/resources "Subscriptions".
"""

import math
import re
from collections.abc import Iterator
from typing import Final, final

import msgspec
from msgspec.structs import replace

from mcp_hub.events import Progressed
from mcp_hub.globs import late
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.protocol.jsonrpc.envelope import read_as
from mcp_hub.types import Kind, RawJson, RawObject

UPDATED: Final = "notifications/resources/updated"
ROOTS_CHANGED: Final = "notifications/roots/list_changed"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CANCELLED: Final = "notifications/cancelled"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
"""The reserved `_meta` key that says which `subscriptions/listen` a message belongs to: its request id, verbatim."""

HOOK: Final = "events/subscribe"
"""The request for a webhook, and the method of the durable stream that holds its subscription."""
FEED: Final = "events/stream"
"""The request that opens a stream of events, and the method of durable streams that hold them."""
OF_EVENTS: Final = frozenset(
    f"notifications/events/{name}" for name in ("active", "event", "heartbeat", "error", "terminated")
)
"""The messages of an `events/stream` (SEP-3415)."""
_PART_BEGINS: Final = late("[/#]")
_LONGEST: Final = 2048
"""Characters of a URI whose wholes are looked for; bounds the work of one notification."""
_TIMEOUT: Final = late(
    r"(?:\w*Error: )?(?:MCP error -32001: )?(?:request timed out|request timeout|timed out(?: after [-+.\de]+ ?s)?"
    r"|(?:the operation|signal) timed out\.?|the operation was aborted due to timeout)",
    re.IGNORECASE,
)
_LONGEST_TIMEOUT: Final = 100
"""Characters of a reason that may be one."""


@final
class ListenFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter requested by `subscriptions/listen`, or granted."""

    toolsListChanged: bool = False
    promptsListChanged: bool = False
    resourcesListChanged: bool = False
    resourceSubscriptions: tuple[str, ...] = ()
    taskIds: tuple[str, ...] = ()
    eventsListChanged: bool = False

    @property
    def list_methods(self) -> frozenset[str]:
        return frozenset(list_changed(kind) for kind in Kind if getattr(self, f"{KINDS[kind].capability}ListChanged"))


def list_changed(kind: Kind) -> str:
    """Resources and templates share one notification."""
    return f"notifications/{KINDS[kind].capability}/list_changed"


ON_LISTEN: Final = frozenset({UPDATED, ACKNOWLEDGED, CANCELLED, *OF_EVENTS})
"""Notifications of what was subscribed to."""
CHANGED_LISTS: Final = {
    list_changed(Kind.TOOL): (Kind.TOOL,),
    list_changed(Kind.PROMPT): (Kind.PROMPT,),
    list_changed(Kind.EVENT): (Kind.EVENT,),
    list_changed(Kind.RESOURCE): (Kind.RESOURCE, Kind.TEMPLATE, Kind.SKILL),
}
"""Kinds whose lists have changed, by the notification."""


def given_reason(params: RawObject) -> str | None:
    return read_as(params.get("reason", b"null"), str)


def names_timeout(reason: str | None) -> bool:
    """Whether a client's time was over, in the words of an SDK (docs/timeouts.md)."""
    return reason is not None and len(reason) <= _LONGEST_TIMEOUT and _TIMEOUT.fullmatch(reason) is not None


def covering(uri: str) -> Iterator[str]:
    """The URI and resources that may contain it, some twice (schema, `ResourceUpdatedNotificationParams`)."""
    yield uri
    if len(uri) <= _LONGEST:
        for beginning in _PART_BEGINS.finditer(uri):
            yield uri[: beginning.start()]
            yield uri[: beginning.end()]


CEILING: Final = 1e15
"""Above it doubles have steps of more than 1/8, and `last + step` would soon not be larger than `last`."""
_STEP: Final = 1e-6
_REAL: Final = frozenset({int, float})
_NUMBERS: Final = ("progress", "total")
_OPTIONAL: Final = ("message", "_meta")
_NOTHING: Final = msgspec.Raw(b"")
_NULL: Final = msgspec.Raw(b"null")
_decode_number = msgspec.json.Decoder[int | float](int | float).decode


class _PlainProgress(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Params of a progress notification as most servers write them."""

    progressToken: int
    progress: int | float
    total: int | float | msgspec.UnsetType = msgspec.UNSET
    message: msgspec.Raw = _NOTHING


_decode_plain = msgspec.json.Decoder(_PlainProgress).decode


def plain_progress(params: msgspec.Raw) -> tuple[int, Progressed, None] | None:
    """The token and the event of a progress notification; None: it has to be read member by member."""
    try:
        plain = _decode_plain(params)
    except (msgspec.DecodeError, RecursionError):
        return None
    message, total = plain.message, plain.total
    if message is _NOTHING:
        members = None
    elif message == _NULL:
        return None
    else:
        members = {"message": message}
    return plain.progressToken, Progressed(plain.progress, None if total is msgspec.UNSET else total, members), None


def progressed(params: RawObject) -> Progressed:
    """The event of a progress notification without its token; an unreadable number is NaN."""
    members = {name: value for name, value in params.items() if name not in _NUMBERS and not _is_unset(name, value)}
    total = params.get("total")
    return Progressed(_number(params["progress"]), None if total is None else _number(total), members or None)


def _is_unset(name: str, value: RawJson) -> bool:
    return name in _OPTIONAL and bytes(value) == b"null"


def _number(raw: RawJson) -> float:
    try:
        return _decode_number(raw)
    except (msgspec.DecodeError, ValueError, OverflowError):
        return float("nan")


class ProgressGuard:
    """Guards one call's progress. `dropped` counts unusable values.

    `left` is the last progress under another hub; `has_messages`: the server has sent one.
    """

    __slots__ = ("_last", "_message", "_server_value", "_total", "dropped", "has_messages")

    def __init__(self, last: Progressed | None = None) -> None:
        self._last: float | None = None
        self._server_value: float | None = None
        self._total: float | None = None
        self._message: msgspec.Raw | None = None
        self.dropped = 0
        self.has_messages = False
        if last is not None:
            self._remember(last)

    def admit(self, event: Progressed) -> Progressed | None:
        """The event, with its value raised slightly if not above the last; None if unusable.

        Only the text of a hub message counts.
        """
        if event.is_hubs:
            return self.between(event.members.get("message") if event.members else None)
        value, total, last = event.progress, event.total, self._last
        if type(value) in _REAL and -CEILING <= value <= CEILING and (last is None or value > last):
            if total is None or (type(total) in _REAL and -CEILING <= total <= CEILING):  # as almost all are
                self._last = self._server_value = value
                if total is not None:
                    self._total = total
                if event.members:
                    self._hear(event)
                return event
        if not _is_number(value) or abs(value) > CEILING:
            self.dropped += 1
            return None
        server_value: float | msgspec.UnsetType = msgspec.UNSET
        if last is not None and value <= last:
            server_value, value = value, _above(last)
            if value > CEILING:
                self.dropped += 1
                return None
        total = total if _is_number(total) else None
        if server_value is not msgspec.UNSET or total != event.total:
            event = replace(event, progress=value, total=total, server_value=server_value)
        self._remember(event)
        return event

    def between(self, message: msgspec.Raw | None = None) -> Progressed | None:
        """A hub event slightly above the last value, with the last message; None at the ceiling.

        A reached total is omitted, as the call still runs.
        """
        value = 0 if self._last is None else _above(self._last)
        if value > CEILING:
            return None
        if message is not None:
            self._message = message
        self._last = value
        total = self._total if self._total is not None and value < self._total else None
        members = None if self._message is None else {"message": self._message}
        return Progressed(value, total, members, server_value=self._server_value, is_hubs=True)

    def _remember(self, event: Progressed) -> None:
        self._last = event.progress
        self._server_value = event.progress if event.server_value is msgspec.UNSET else event.server_value
        if event.total is not None:
            self._total = event.total
        self._hear(event)

    def _hear(self, event: Progressed) -> None:
        if event.members and "message" in event.members:
            self._message = event.members["message"]
            self.has_messages = self.has_messages or not event.is_hubs


def _above(value: float) -> float:
    return max(value + _STEP, math.nextafter(value, math.inf))


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
