"""The events of a call, sent by upstreams and pulled by readers. Payloads stay encoded.

The last event is exactly one of `Completed`, `Failed` and `Cancelled`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.masking import hide_head
from mcp_hub.types import Era, RawJson, RawObject

BY_CLIENT: Final = "cancelled by the client"
"""The client cancelled its request or ended its session."""


_CLIENTS_REASON: Final = f"{BY_CLIENT}: "
BY_SESSION: Final = f"{_CLIENTS_REASON}its session has ended"
"""The session that began the call has ended; another one may have joined the call."""
_LONGEST_REASON: Final = 1000
"""Characters of a client's reason."""


def cancelled_by_client(reason: str | None) -> str:
    """The reason of a cancellation by the call's own client."""
    return f"{_CLIENTS_REASON}{hide_head(reason, _LONGEST_REASON)}" if reason else BY_CLIENT


def is_by_client(reason: str | None) -> bool:
    """Whether the call's own client cancelled it, which gets no answer."""
    return reason is not None and (reason == BY_CLIENT or reason.startswith(_CLIENTS_REASON))


def said_of_cancel(reason: str | None) -> str:
    """A sentence about a cancelled call."""
    if not reason:
        return "The call was cancelled."
    return f"The call was {reason}." if reason.startswith("cancelled") else f"The call was cancelled: {reason}."


_decode_text = msgspec.json.Decoder[str | None](str | None).decode


class Started(msgspec.Struct, frozen=True, gc=False):
    """The call has begun."""


def hubs_message(text: str) -> "Progressed":
    """A progress message of the hub's own."""
    return Progressed(0, None, {"message": msgspec.Raw(msgspec.json.encode(text))}, server_value=None, is_hubs=True)


class Progressed(msgspec.Struct, frozen=True, gc=False):
    """One `notifications/progress` of the upstream, without the token.

    `members` has all but `progress` and `total`. `skipped` counts merged events. `server_value` is the server's where
    `progress` differs; None: none yet.
    """

    progress: float
    total: float | None = None
    members: RawObject | None = None
    skipped: int = 0
    server_value: float | None | msgspec.UnsetType = msgspec.UNSET
    is_hubs: bool = False

    @property
    def sent(self) -> float:
        return self.progress if self.server_value is None or self.server_value is msgspec.UNSET else self.server_value

    @property
    def message(self) -> str | None:
        """Its text for people, if any."""
        raw = self.members.get("message") if self.members else None
        try:
            return None if raw is None else _decode_text(raw)
        except msgspec.DecodeError:
            return None


class _Block(msgspec.Struct, gc=False):
    """A content block."""

    type: str = ""
    text: str = ""


class Delta(msgspec.Struct, frozen=True, gc=False):
    """Partial content: `content`, an encoded array of blocks, extends `channel` at `index`.

    Channel `content` joins to the final text. `origin`: its number in the sending server's stream, else 0.
    """

    content: RawJson
    index: int = 0
    channel: str = "content"
    origin: int = 0

    @property
    def text(self) -> str:
        """Its text blocks, joined."""
        try:
            blocks = msgspec.json.decode(self.content, type=list[_Block])
        except (msgspec.DecodeError, RecursionError):
            return ""
        return "".join(block.text for block in blocks if block.type == "text")


class Log(msgspec.Struct, frozen=True, gc=False):
    """One `notifications/message`; `params` as sent. With a `method`, one of a server's own (`passthrough`)."""

    level: str
    params: RawJson
    method: str | None = None


class InputRequired(msgspec.Struct, frozen=True, gc=False):
    """An upstream's question, params as sent: `sampling/createMessage`, `elicitation/create`, `roots/list`."""

    key: str
    method: str
    params: RawJson


class InputReceived(msgspec.Struct, frozen=True, gc=False):
    """A question is closed and `remaining` are open; `action` is an elicitation's, if known."""

    key: str
    remaining: int = 0
    action: str | None = None


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """The tool calls another one; `arguments` is an encoded object, `line` that of a script. Only for display."""

    call: str
    name: str
    arguments: RawJson
    line: int = 0

    @classmethod
    def of(cls, call: str, name: str, arguments: Mapping[str, object]) -> Self:
        return cls(call, name, msgspec.json.encode(arguments))


class ToolResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a `ToolCall`; `content` is an encoded array of blocks."""

    call: str
    content: RawJson
    is_error: bool = False

    @classmethod
    def of(cls, call: str, *texts: str, is_error: bool = False) -> Self:
        return cls(call, msgspec.json.encode([{"type": "text", "text": text} for text in texts]), is_error)


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """The failed call is retried: attempt `number`, `after` seconds. `reason` is a `calls.plan.RetryClass`."""

    number: int
    reason: str
    after: float
    detail: str = ""


class Reset(msgspec.Struct, frozen=True, gc=False):
    """Content from event `discard_from` of the durable stream on is not part of the result: its attempt has failed, or
    its server takes it back from `origin` of its own stream on.
    """

    number: int
    reason: str
    discard_from: int = 0
    origin: int = 0


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The result object as sent, in the shape of `era`. `is_plain`: only texts, no error."""

    result: RawJson
    era: Era = Era.HANDSHAKE
    is_plain: bool = False

    @classmethod
    def of(cls, *texts: str, is_error: bool = False) -> Self:
        """A result of texts."""
        blocks = [{"type": "text", "text": text} for text in texts]
        return cls(msgspec.json.encode({"content": blocks, "isError": is_error}))


class Failed(msgspec.Struct, frozen=True):
    """A JSON-RPC error of the upstream or the hub."""

    error: RpcError


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """The call was ended from outside."""

    reason: str | None = None


Ending = Completed | Failed | Cancelled


def failed_by(ending: Ending | None, error: type[RpcError] | str) -> bool:
    """Whether it failed with an error of this class, or with this symbol."""
    if not isinstance(ending, Failed):
        return False
    return ending.error.symbol == error if isinstance(error, str) else isinstance(ending.error, error)


def reason_of_client(ending: Ending | None) -> str | None:
    """The words of the client that cancelled a call, else None."""
    reason = ending.reason if isinstance(ending, Cancelled) else None
    return reason.removeprefix(_CLIENTS_REASON) if reason and reason.startswith(_CLIENTS_REASON) else None


CallEvent = (
    Started
    | Progressed
    | Delta
    | Log
    | ToolCall
    | ToolResult
    | InputRequired
    | InputReceived
    | Attempt
    | Reset
    | Completed
    | Failed
    | Cancelled
)


class Post(msgspec.Struct, frozen=True):
    """A worker's post for one call.

    Without `epoch` and `seq` it is the next one; without events a sign of life. `content` is one text delta.
    """

    epoch: int | None
    seq: int | None
    events: Sequence[RawJson] = ()
    content: str | None = None
    complete: bool = False
    result: RawJson | None = None
    error: RawJson | None = None
