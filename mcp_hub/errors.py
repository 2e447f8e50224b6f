"""The hub's own errors, one shallow tree; each that can reach a client knows its JSON-RPC code.

    HubError
    ├── ConfigError            exit 2: servers.yaml, flags
    ├── ProtocolError          a peer broke the wire format
    │   └── FrameTooLong       one line over the limit
    ├── RpcError               goes to the client as a JSON-RPC error, with code and data
    │   ├── InvalidParams      -32602
    │   │   ├── UnknownEntry   -32602 (handshake resources: -32002), names the nearest entries
    │   │   └── UnknownStream  -32602, the same for one that is foreign, expired or never was
    │   ├── MethodNotFound     -32601
    │   ├── UpstreamUnavailable   hub code 1001: not ready, with state and reason
    │   ├── UpstreamLost       hub code 1002: gone or garbled while the call ran, outcome unknown
    │   │   └── HttpRefused    a remote server answered with a status instead
    │   ├── DeadlineExceeded   hub code 1003: silent for too long
    │   ├── Busy               hub code 1004: a limit of the hub is reached
    │   ├── HubStopping        hub code 1005: the hub ends while the call runs, outcome unknown, or before it was sent
    │   ├── HubRestarted       hub code 1006: the hub that ran the call is gone, outcome unknown
    │   ├── CallCancelled      hub code 1009: somebody else than this caller has cancelled the call
    │   ├── NotApproved        hub code 1010: the tool has changed, or is new, and was not approved
    │   ├── ExecutorLost       hub code 1007: the client that executes a virtual tool is gone, outcome unknown
    │   └── EventsGone         hub code 1008: the events behind a cursor are no longer kept
    ├── NotKept                a worker's post was taken but not stored in time
    └── StartFailed            an upstream did not come up; the message is for people

Hub codes lie outside -32768…-32000, which JSON-RPC reserves (protocol.md §3, "Lossless").
"""

from collections import Counter
from typing import ClassVar, Self

import msgspec

from mcp_hub.masking import hide_within, shown
from mcp_hub.types import JsonObject, RawJson

__all__ = [
    "Busy",
    "CallCancelled",
    "ConfigError",
    "DeadlineExceeded",
    "EventsGone",
    "ExecutorLost",
    "FrameTooLong",
    "HttpRefused",
    "HubError",
    "HubRestarted",
    "HubStopping",
    "InvalidParams",
    "MethodNotFound",
    "NotApproved",
    "NotKept",
    "ProtocolError",
    "RpcError",
    "StartFailed",
    "UnknownEntry",
    "UnknownStream",
    "UpstreamLost",
    "UpstreamUnavailable",
]


class HubError(Exception):
    """Anything the hub itself reports; the message is lower-case, names the thing and helps."""


class ConfigError(HubError):
    """Configuration that cannot be used. Carries one finding a line, each `file:line: path: what and how to mend`."""


class StartFailed(HubError):
    """An upstream did not become ready; the message says what was tried and why it failed, without secrets."""

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))


class NotKept(HubError):
    """The post was taken, but the store has not got it in time: to be posted again under the same number."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the store has not taken this within {seconds:g} s; post it again under the same number")


class ProtocolError(HubError):
    """A peer sent bytes that are not the protocol."""


class FrameTooLong(ProtocolError):
    """A line longer than the framer's limit; the rest of it was skipped."""


class RpcError(HubError):
    """A JSON-RPC error answer. `raw` is the error object as an upstream sent it, if one did; it is relayed
    byte for byte where the caller's era allows its code."""

    code = -32603

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        data: JsonObject | None = None,
        raw: RawJson | None = None,
    ) -> None:
        if raw is None:
            message = shown(message)
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.data = data
        self.raw = raw

    def encoded(self) -> RawJson:
        """The error object for the wire; no secret that the hub knows and no control character is in it unless an
        upstream sent it."""
        if self.raw is not None:
            return self.raw
        error: JsonObject = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = hide_within(self.data, shown)
        return msgspec.json.encode(error)


class InvalidParams(RpcError):
    code = -32602


class UnknownEntry(InvalidParams):
    """A name or URI that the caller's view does not hold (hidden and absent are the same)."""


class MethodNotFound(RpcError):
    code = -32601


class UpstreamUnavailable(RpcError):
    code = 1001


class UpstreamLost(RpcError):
    code = 1002


class HttpRefused(UpstreamLost):
    """The answer to a request is an HTTP status rather than a message."""

    def __init__(self, server: str, status: int, said: str) -> None:
        data: JsonObject = {"upstream": {"server": server, "status": status}}
        if not 300 <= status < 500:
            data["outcome"] = "unknown"
        super().__init__(f'upstream "{server}" answered with {said}', data=data)
        self.status = status


class DeadlineExceeded(RpcError):
    code = 1003


class Busy(RpcError):
    """A limit of the hub is reached: nothing was done, and the same may be tried again.

    `refusals` counts those of this process by the key of the limit.
    """

    code = 1004
    refusals: ClassVar[Counter[str]] = Counter()

    @classmethod
    def at(cls, what: str, setting: str, value: float, *, retry_after: int = 5) -> Self:
        """One for a limit that is configuration: `data` has its name, value and key, and the seconds to wait."""
        limit = setting.rpartition(".")[2]
        cls.refusals[setting] += 1
        data: JsonObject = {"limit": limit, "value": value, "setting": setting, "retryAfter": retry_after}
        return cls(f"busy: {what}; try again in {retry_after} s or raise {setting}", data=data)

    @property
    def retry_after(self) -> int:
        """Seconds after which it makes sense to try again."""
        seconds = (self.data or {}).get("retryAfter")
        return seconds if isinstance(seconds, int) else 5


class HubStopping(RpcError):
    code = 1005


class HubRestarted(RpcError):
    code = 1006


class ExecutorLost(RpcError):
    code = 1007


class CallCancelled(RpcError):
    code = 1009


class NotApproved(InvalidParams):
    """The tool is held back until a person approves what its server says of it now; nothing was sent."""

    code = 1010


class UnknownStream(InvalidParams):
    """No such stream, or not this caller's: nobody can tell the two apart."""

    def __init__(self) -> None:
        super().__init__("unknown stream: it has expired, is not yours or never was")


class EventsGone(RpcError):
    """Events behind the cursor were let go; `earliest` is the first that can still be had."""

    code = 1008

    def __init__(self, earliest: int) -> None:
        super().__init__(f"events are gone: the earliest that is kept is {earliest}", data={"earliest": earliest})
        self.earliest = earliest
