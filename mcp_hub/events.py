"""The events of a call: the `CallEvent` union that upstreams send and readers pull.

Payloads stay encoded. `Completed`, `Failed` and `Cancelled` end a call; exactly one of them is its last event. A
question (`InputRequired`) is open until its `InputReceived`.
"""

from collections.abc import Mapping
from typing import Final, Self

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.masking import hide_head
from mcp_hub.types import Era, RawJson, RawObject

BY_CLIENT: Final = "cancelled by the client"
"""The reason of a call whose client has taken its request back, or ended its session."""


_CLIENTS_REASON: Final = f"{BY_CLIENT}: "
_LONGEST_REASON: Final = 1000
"""Characters of a client's reason that are kept and passed on."""


def cancelled_by_client(reason: str | None) -> str:
    """The reason of a call whose client has cancelled it, with the client's own `reason`, if it gave any."""
    return f"{_CLIENTS_REASON}{hide_head(reason, _LONGEST_REASON)}" if reason else BY_CLIENT


def is_by_client(reason: str | None) -> bool:
    """Whether a cancelled call was cancelled by its own client, which gets no answer any more."""
    return reason is not None and (reason == BY_CLIENT or reason.startswith(_CLIENTS_REASON))


def said_of_cancel(reason: str | None) -> str:
    """The sentence about a cancelled call."""
    if not reason:
        return "The call was cancelled."
    return f"The call was {reason}." if reason.startswith("cancelled") else f"The call was cancelled: {reason}."


class Started(msgspec.Struct, frozen=True, gc=False):
    """The call has its record and its task."""


def hubs_message(text: str) -> "Progressed":
    """A message of the hub's own about a call to which its server has said nothing yet."""
    return Progressed(0, None, {"message": msgspec.Raw(msgspec.json.encode(text))}, server_value=None, is_hubs=True)


class Progressed(msgspec.Struct, frozen=True, gc=False):
    """One `notifications/progress` of the upstream, params without the token, values as sent.

    `progress` and `total` are decoded for the monotony guard; `members` holds every other member (message, `_meta`,
    unknown ones) encoded. `skipped` counts earlier progress that was merged into this one for a slow reader.
    `server_value`: the last value that the server sent, where `progress` differs; None if it has sent none. `is_hubs`:
    the hub made this event, as a sign of life or as a message.
    """

    progress: float
    total: float | None = None
    members: RawObject | None = None
    skipped: int = 0
    server_value: float | None | msgspec.UnsetType = msgspec.UNSET
    is_hubs: bool = False

    @property
    def sent(self) -> float:
        """The value that the server sent; that of the hub where the server has sent none."""
        return self.progress if self.server_value is None or self.server_value is msgspec.UNSET else self.server_value

    @property
    def message(self) -> str | None:
        """The message for people, if there is one."""
        raw = self.members.get("message") if self.members else None
        try:
            return None if raw is None else msgspec.json.decode(raw, type=str | None)
        except msgspec.DecodeError:
            return None


class _Block(msgspec.Struct, gc=False):
    """A content block, as far as it is text."""

    type: str = ""
    text: str = ""


class Delta(msgspec.Struct, frozen=True, gc=False):
    """Partial content: `content` is an encoded array of content blocks that extends what `channel` has at `index`.

    All of channel `content` at one index, one after the other, is the final text; channel `aux` is something beside it.
    """

    content: RawJson
    index: int = 0
    channel: str = "content"

    @property
    def text(self) -> str:
        """The text of its text blocks; empty if there is none."""
        try:
            blocks = msgspec.json.decode(self.content, type=list[_Block])
        except (msgspec.DecodeError, RecursionError):
            return ""
        return "".join(block.text for block in blocks if block.type == "text")


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
    """A question is no longer open, `remaining` others are; `action` answered an elicitation, where it is known."""

    key: str
    remaining: int = 0
    action: str | None = None


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """The tool calls another one on the way; `arguments` is an encoded object. Only for people who watch."""

    call: str
    name: str
    arguments: RawJson

    @classmethod
    def of(cls, call: str, name: str, arguments: Mapping[str, object]) -> Self:
        """A call with these arguments, which are values of JSON."""
        return cls(call, name, msgspec.json.encode(arguments))


class ToolResult(msgspec.Struct, frozen=True, gc=False):
    """The result of an earlier `ToolCall`; `content` is an encoded array of content blocks."""

    call: str
    content: RawJson
    is_error: bool = False

    @classmethod
    def of(cls, call: str, *texts: str, is_error: bool = False) -> Self:
        """A result that says these texts."""
        return cls(call, msgspec.json.encode([{"type": "text", "text": text} for text in texts]), is_error)


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """The call failed and is made again: this is the attempt of that `number`, `after` so many seconds.

    `reason` is the class of the failure (`calls.retries.RetryClass`), `detail` a sentence about it.
    """

    number: int
    reason: str
    after: float
    detail: str = ""


class Reset(msgspec.Struct, frozen=True, gc=False):
    """Partial content so far belongs to a failed attempt: content from event `discard_from` on is to be discarded.

    The number is that of the durable stream, whose writer puts it in.
    """

    number: int
    reason: str
    discard_from: int = 0


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The result object as sent, and the era whose shape it has.

    `is_plain`: it is known to be texts and nothing else, not an error, which a handshake client gets unchanged.
    """

    result: RawJson
    era: Era = Era.HANDSHAKE
    is_plain: bool = False

    @classmethod
    def of(cls, *texts: str, is_error: bool = False) -> Self:
        """The result of a tool that says these texts."""
        blocks = [{"type": "text", "text": text} for text in texts]
        return cls(msgspec.json.encode({"content": blocks, "isError": is_error}))


class Failed(msgspec.Struct, frozen=True):
    """A JSON-RPC error, the upstream's or the hub's."""

    error: RpcError


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """The call was ended from outside. Where its own client did so (`is_by_client`) that gets no answer any more."""

    reason: str | None = None


Ending = Completed | Failed | Cancelled


def reason_of_client(ending: Ending | None) -> str | None:
    """The words of the client that has cancelled a call; None if it gave none, or the call ends otherwise."""
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
