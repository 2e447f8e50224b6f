"""What can happen to a call: the `CallEvent` union that upstreams send and readers pull.

Payloads stay encoded. `Completed`, `Failed` and `Cancelled` end a call; exactly one of them is its last event
(product.md, promise 1). A question (`InputRequired`) is open until its `InputReceived`.
"""

import msgspec

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


class Started(msgspec.Struct, frozen=True, gc=False):
    """The call has its record and its task."""


class Progress(msgspec.Struct, frozen=True, gc=False):
    """One `notifications/progress` of the upstream, params without the token, values as sent.

    `progress` and `total` are decoded for the monotony guard; `rest` holds every other member (message, `_meta`,
    unknown ones) encoded. `skipped` counts earlier progress that was merged into this one for a slow reader.
    """

    progress: float
    total: float | None = None
    rest: RawObject | None = None
    skipped: int = 0


class Delta(msgspec.Struct, frozen=True, gc=False):
    """Partial content: `content` is an encoded array of content blocks that extends the text at `index`."""

    content: RawJson
    index: int = 0


class Log(msgspec.Struct, frozen=True, gc=False):
    """One `notifications/message`: `params` as sent, `level` lifted out for filters."""

    level: str
    params: RawJson


class InputRequired(msgspec.Struct, frozen=True, gc=False):
    """A question of the upstream to the caller: `sampling/createMessage`, `elicitation/create` or `roots/list`.

    `key` is unique within the call; `params` are as sent.
    """

    key: str
    method: str
    params: RawJson


class InputReceived(msgspec.Struct, frozen=True, gc=False):
    """A question is no longer open: it was answered, declined or withdrawn. `remaining` others still are."""

    key: str
    remaining: int = 0


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The result object as sent, and the era whose shape it has."""

    result: RawJson
    era: Era = Era.HANDSHAKE


class Failed(msgspec.Struct, frozen=True):
    """A JSON-RPC error, the upstream's or the hub's."""

    error: RpcError


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """The caller, a deadline of the caller or shutdown ended the call."""

    reason: str | None = None


Ending = Completed | Failed | Cancelled
CallEvent = Started | Progress | Delta | Log | InputRequired | InputReceived | Completed | Failed | Cancelled
