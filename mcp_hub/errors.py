"""The hub's own errors: one shallow tree below `HubError`.

A `RpcError` goes to the client as a JSON-RPC error, with its code and data. Codes of the hub's own, 1001 to 1010, lie
outside -32768…-32000, which JSON-RPC reserves. The others stay inside the hub, or end a command or a start.
"""

import re
from collections import Counter
from typing import ClassVar, Final, Self

import msgspec

from mcp_hub.masking import hide_within, shown
from mcp_hub.types import Cause, JsonObject, RawJson, plural, without_paths


class HubError(Exception):
    """Any error of the hub itself. The message names the thing and says what to do."""


class ConfigFinding(msgspec.Struct, frozen=True):
    """One mistake or warning about the configuration: its code, a sentence for people, and the place if it is known.

    `path` is that of the key, as people write it: `servers.git.args[0]`.
    """

    code: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str = ""

    def __str__(self) -> str:
        """`file:line: path: message [code]`."""
        location = [str(part) for part in (self.file, self.line, self.column) if part is not None]
        parts = [":".join(location), self.path, f"{self.message} [{self.code}]"]
        return ": ".join(part for part in parts if part)


class ConfigError(HubError):
    """An invalid configuration; the message has one finding a line."""

    def __init__(self, *findings: ConfigFinding) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.findings = findings

    @property
    def code(self) -> str:
        """The code of the first finding."""
        return self.findings[0].code


class StartFailed(HubError):
    """An upstream did not become ready; the message says what was tried and why it failed, without secrets.

    Of the folders that were `searched` the message gives the number; `brief` is the message without it.
    """

    def __init__(self, code: str, message: str, searched: tuple[str, ...] = ()) -> None:
        were, them = ("was", "it") if len(searched) == 1 else ("were", "them")
        places = f" {plural(len(searched), 'folder')} {were} searched; mcp-hub doctor shows {them}." if searched else ""
        super().__init__(shown(message) + places)
        self.brief = shown(message)
        self.code = code
        self.searched = searched

    @property
    def cause(self) -> Cause:
        """Code and message."""
        return Cause(self.code, str(self))


class LookupFailed(StartFailed):
    """A program gave no value for a server. `can_retry`: it gave one before, so the next start may go better."""

    def __init__(self, code: str, message: str, *, can_retry: bool = False) -> None:
        super().__init__(code, message)
        self.can_retry = can_retry


class HubMisuse(HubError):
    """A host program used a hub wrongly; `code`: `hub_not_open`, `hub_open_already`, `hub_other_task`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ModelMismatch(HubError):
    """A result does not fit the model that a host program asked for; it is available as raw JSON."""

    code = "model_mismatch"


class NotKept(HubError):
    """The post was taken, but not stored in time: post it again under the same number."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The store did not take this within {seconds:g} s. Post it again under the same number.")


class StoreError(HubError):
    """The store cannot do what it was asked to; the message says why."""

    @property
    def public(self) -> str:
        """The message for callers: without the place of the store, which is in the log."""
        return without_paths(re.sub(r"^store /.*?: ", "store: ", str(self)))


class Fenced(StoreError):
    """Another process owns the stream now, or it has ended: nothing can be appended."""


class KeyTaken(StoreError):
    """The principal has a stream with this idempotency key already."""


class KeyReused(HubError):
    """The idempotency key stands for another request of the principal."""


class PostRefused(HubError):
    """A refused request of a worker; nothing has changed. `members` are details for programs."""

    def __init__(self, code: str, message: str, **members: object) -> None:
        super().__init__(message)
        self.code = code
        self.members = members


_SYMBOLS: Final = {
    -32700: "parse_error",
    -32600: "invalid_request",
    -32601: "method_not_found",
    -32602: "invalid_params",
    -32020: "header_mismatch",
    -32021: "missing_capability",
    -32022: "unsupported_version",
}
"""Of errors whose numeric code says all: JSON-RPC 2.0 §5.1; specification 2026-07-28, basic/index "Error Codes"."""
_SPECIFIED: Final = range(-32099, -32019)
"""Codes whose `data` the specification of 2026-07-28 defines: nothing is added to it."""


class RpcError(HubError):
    """A JSON-RPC error answer. `raw` is the error object as an upstream sent it, if one did; it is relayed
    byte for byte where the caller's era allows its code.

    `symbol` is the stable name of the hub's own errors (`mcp_hub.codes`); it travels as `data.code`, but for errors
    whose `data` the specification defines.
    """

    code = -32603
    symbol = "internal_error"

    def __init_subclass__(cls, *, code: int | None = None, symbol: str | None = None) -> None:
        """`class Lost(RpcError, code=…, symbol=…)`; a member that is not given is that of the class above."""
        cls.code = cls.code if code is None else code
        cls.symbol = cls.symbol if symbol is None else symbol

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        data: JsonObject | None = None,
        raw: RawJson | None = None,
        symbol: str | None = None,
    ) -> None:
        if raw is None:
            message = shown(message)
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.data = data
        self.raw = raw
        if symbol is not None:
            self.symbol = symbol
        elif self.symbol == RpcError.symbol:
            self.symbol = _SYMBOLS.get(self.code, "upstream_error" if "upstream" in (data or {}) else self.symbol)

    @classmethod
    def restored(cls, message: str, code: int, data: JsonObject | None, raw: RawJson | None = None) -> Self:
        """An error of this class from its parts, where `data` may have the symbol: its constructor may take others."""
        error = cls.__new__(cls)
        RpcError.__init__(error, message, code=code, data=data, raw=raw)
        if raw is None and data is not None and data.get("code") == error.symbol:
            error.data = {name: value for name, value in data.items() if name != "code"} or None
        return error

    @property
    def about_upstream(self) -> JsonObject:
        """The part of `data` about the server: its name, its state, and the code of its failure."""
        upstream = (self.data or {}).get("upstream")
        return upstream if isinstance(upstream, dict) else {}

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether the call may have had its effect."""
        return (self.data or {}).get("outcome") == "unknown"

    def encoded(self) -> RawJson:
        """The error object for the wire, with `symbol` as `data.code`.

        It holds no secret that the hub knows and no control character unless an upstream sent it.
        """
        if self.raw is not None:
            return self.raw
        error: JsonObject = {"code": self.code, "message": self.message}
        data = self.data or {}
        is_own = self.code == RpcError.code or self.symbol != RpcError.symbol  # any other is of a tool's author
        if is_own and self.code not in _SPECIFIED:
            data = {"code": self.symbol, **data}
        if data or self.data is not None:
            error["data"] = hide_within(data, shown)
        return msgspec.json.encode(error)


class InvalidParams(RpcError, code=-32602, symbol="invalid_params"):
    """The caller's request is wrong: a member is missing, of a wrong type or out of range."""


class UnknownState(InvalidParams, symbol="unknown_state"):
    """A `requestState` that was used, has expired, or belongs to another request or client."""


class UnknownEntry(InvalidParams, symbol="unknown_entry"):
    """A name or URI that the caller's view does not hold (hidden and absent are the same)."""


class ToolRemoved(UnknownEntry, symbol="tool_removed"):
    """A tool that callers of this view were listed and are no longer."""


class MethodNotFound(RpcError, code=-32601, symbol="method_not_found"):
    """The method does not exist, or not in this version or for this caller."""


class UpstreamUnavailable(RpcError, code=1001, symbol="upstream_unavailable"):
    """The server is not up; the call was not sent."""


class SessionElsewhere(UpstreamUnavailable, symbol="session_elsewhere"):
    """The server's process for this session runs at another replica of the hub; the call was not sent."""


class UpstreamLost(RpcError, code=1002, symbol="upstream_crashed"):
    """The connection to the server broke while the call ran; its outcome is unknown."""


class HttpRefused(UpstreamLost, symbol="upstream_refused"):
    """The answer to a request is an HTTP status rather than a message.

    `retry_after`: the seconds that the server wants to be left alone for. Then it has not begun with the request.
    `answer` is the JSON-RPC error that came along.
    """

    def __init__(
        self, server: str, status: int, text: str, retry_after: int | None = None, answer: RawJson | None = None
    ) -> None:
        upstream: JsonObject = {"server": server, "status": status, "code": _code_of_status(status)}
        if answer is not None:
            upstream["error"] = msgspec.Raw(bytes(answer))
        data: JsonObject = {"upstream": upstream}
        if retry_after is not None:
            data["retryAfter"] = retry_after
            text += f". Try again in {retry_after} s"
        elif not 300 <= status < 500:
            data["outcome"] = "unknown"
        super().__init__(f'server "{server}" answered with {text}', data=data)

    @property
    def status(self) -> int:
        """The HTTP status; 0 where it is not known any more."""
        return _integer(self.about_upstream.get("status"))


def _code_of_status(status: int) -> str:
    match status:
        case 401 | 403:
            return "not_admitted"
        case 429:
            return "rate_limited"
        case 404 | 405 | 410:
            return "no_endpoint"
        case _ if status >= 500:
            return "server_error"
        case _:
            return "no_endpoint" if status < 400 else "request_refused"


class DeadlineExceeded(RpcError, code=1003, symbol="deadline_exceeded"):
    """The call ran out of time; the server was asked to cancel it."""


class Busy(RpcError, code=1004, symbol="busy"):
    """A limit of the hub is reached: nothing was done, and the same may be tried again.

    `refusals` counts those of this process by the key of the limit.
    """

    refusals: ClassVar[Counter[str]] = Counter()

    @classmethod
    def at(cls, subject: str, setting: str, value: float, *, retry_after: int = 5) -> Self:
        """The error for a limit: `data` has its name, value and key, and the seconds to wait.

        `setting` without a dot is the name of a limit that has no key.
        """
        _, is_key, limit = setting.rpartition(".")
        cls.refusals[setting] += 1
        key: JsonObject = {"setting": setting} if is_key else {}
        data: JsonObject = {"limit": limit, "value": value, **key, "retryAfter": retry_after}
        advice = f", or raise {setting}" if is_key else ""
        return cls(f"Busy: {subject}. Try again in {retry_after} s{advice}.", data=data)

    @property
    def retry_after(self) -> int:
        """Seconds after which it makes sense to try again."""
        seconds = (self.data or {}).get("retryAfter")
        return seconds if isinstance(seconds, int) else 5


class StoreUnavailable(RpcError, code=1011, symbol="store_unavailable"):
    """The store does not answer: nothing was done, and the same may be tried again in `retry_after` seconds."""

    retry_after = 5

    def __init__(self, message: str) -> None:
        super().__init__(message, data={"retryAfter": self.retry_after})


class HubStopping(RpcError, code=1005, symbol="hub_stopped"):
    """The hub stops while the call runs, or before it was sent."""


class HubRestarted(RpcError, code=1006, symbol="hub_restarted"):
    """The hub was restarted and cannot continue the call; its outcome is unknown."""


class OwnerLost(HubRestarted, symbol="owner_lost"):
    """The replica of the hub that ran the call is gone or cut off from the store; the call's outcome is unknown."""


class ExecutorLost(RpcError, code=1007, symbol="executor_lost"):
    """No worker of the executor answers for the call any more."""


class CallCancelled(RpcError, code=1009, symbol="cancelled"):
    """The call was cancelled by somebody else than its caller."""


class NotApproved(InvalidParams, code=1010, symbol="not_approved"):
    """The tool or prompt is held back until a person approves its current definition; nothing was sent."""


class NotReadOnly(InvalidParams, symbol="not_read_only"):
    """The tool is not known to only read, and `read_tool` runs no other; nothing was sent."""


class UnknownStream(InvalidParams, symbol="unknown_stream"):
    """The stream does not exist, or belongs to somebody else; the error does not say which."""

    def __init__(self) -> None:
        super().__init__("Unknown stream: it has expired, does not belong to you, or never existed.")


class EventsGone(RpcError, code=1008, symbol="events_gone"):
    """Events behind the cursor are no longer kept; `earliest` is the first that is."""

    def __init__(self, earliest: int) -> None:
        message = f"Events after this cursor are gone. The earliest that is kept is {earliest}."
        super().__init__(message, data={"earliest": earliest})

    @property
    def earliest(self) -> int:
        """The number of the first event that is kept; 0 where it is not known any more."""
        return _integer((self.data or {}).get("earliest"))


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0
