"""What can happen to a call: the `CallEvent` union that upstreams send and readers pull.

Payloads stay encoded. `Completed`, `Failed` and `Cancelled` end a call; exactly one of them is its last event
(product.md, promise 1). A question (`InputRequired`) is open until its `InputReceived`.
"""

from dataclasses import dataclass

from mcp_hub.errors import RpcError
from mcp_hub.types import Era, RawJson, RawObject

__all__ = [
    "CallEvent",
    "Cancelled",
    "Completed",
    "Delta",
    "Ending",
    "Failed",
    "InputReceived",
    "InputRequired",
    "Log",
    "Progress",
    "Started",
]


@dataclass(frozen=True, slots=True)
class Started:
    """The call has its record and its task."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One `notifications/progress` of the upstream, params without the token, values as sent.

    `progress` and `total` are decoded for the monotony guard; `rest` holds every other member (message, `_meta`,
    unknown ones) encoded. `skipped` counts earlier progress that was merged into this one for a slow reader.
    """

    progress: float
    total: float | None = None
    rest: RawObject | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """Partial content: `content` is an encoded array of content blocks that extends the text at `index`."""

    content: RawJson
    index: int = 0


@dataclass(frozen=True, slots=True)
class Log:
    """One `notifications/message`: `params` as sent, `level` lifted out for filters."""

    level: str
    params: RawJson


@dataclass(frozen=True, slots=True)
class InputRequired:
    """A question of the upstream to the caller: `sampling/createMessage`, `elicitation/create` or `roots/list`.

    `key` is unique within the call; `params` are as sent.
    """

    key: str
    method: str
    params: RawJson


@dataclass(frozen=True, slots=True)
class InputReceived:
    """A question is no longer open: it was answered, declined or withdrawn. `remaining` others still are."""

    key: str
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class Completed:
    """The result object as sent, and the era whose shape it has."""

    result: RawJson
    era: Era = Era.HANDSHAKE


@dataclass(frozen=True, slots=True)
class Failed:
    """A JSON-RPC error, the upstream's or the hub's."""

    error: RpcError


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The caller, a deadline of the caller or shutdown ended the call."""

    reason: str | None = None


Ending = Completed | Failed | Cancelled
CallEvent = Started | Progress | Delta | Log | InputRequired | InputReceived | Completed | Failed | Cancelled
