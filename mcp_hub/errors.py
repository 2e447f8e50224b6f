"""The hub's errors. `RpcError`s reach clients; their own codes are 1001 to 1011, outside JSON-RPC's reserved range."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Final, Self

import msgspec

from mcp_hub.masking import hide_within, shown
from mcp_hub.types import Cause, JsonObject, RawJson, plural, without_paths


class HubError(Exception):
    """An error of the hub; it names the thing and says what to do."""


class ConfigFinding(msgspec.Struct, frozen=True):
    """A mistake or warning in the configuration; `path` is like `servers.git.args[0]`."""

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
    """An invalid configuration; one finding per line. `snippet`: what a person may insert by hand."""

    def __init__(self, *findings: ConfigFinding, snippet: str = "") -> None:
        super().__init__("\n".join(map(str, findings)))
        self.findings = findings
        self.snippet = snippet

    @property
    def code(self) -> str:
        return self.findings[0].code


class StartFailed(HubError):
    """An upstream did not become ready; free of secrets. `brief` leaves out the `searched` folders.

    `can_retry`: whether another start may succeed; None: as usual for its kind of connection.
    """

    def __init__(
        self, code: str, message: str, searched: tuple[str, ...] = (), *, can_retry: bool | None = None
    ) -> None:
        were, them = ("was", "it") if len(searched) == 1 else ("were", "them")
        places = f" {plural(len(searched), 'folder')} {were} searched; mcp-hub doctor shows {them}." if searched else ""
        super().__init__(shown(message) + places)
        self.brief = shown(message)
        self.code = code
        self.searched = searched
        self.can_retry = can_retry

    @property
    def cause(self) -> Cause:
        return Cause(self.code, str(self))


class HubMisuse(HubError):
    """Wrong use of a hub by a host program; `code`: `hub_not_open`, `hub_open_already`, `hub_other_task`,
    `hub_other_loop`, `hub_needs_asyncio`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ModelMismatch(HubError):
    """A result that does not fit the expected model."""

    code = "model_mismatch"


class StoreError(HubError):
    """An operation of the store failed; `is_outage`: every other one would now, too."""

    is_outage = False

    @property
    def public(self) -> str:
        return without_paths(re.sub(r"^store /.*?: ", "store: ", str(self)))


class Fenced(StoreError):
    """The stream has ended or another process owns it."""


class KeyTaken(StoreError):
    """The principal already has a stream with this idempotency key."""


class Rejected(HubError):
    """A refused REST request, worker's post, or use of a provider's format. `members` are for programs.

    It had no effect; only a post that was `not_kept` in time may still be stored.
    """

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
"""For standard codes (JSON-RPC 2.0 §5.1; 2026-07-28, basic/index "Error Codes")."""
_SPECIFIED: Final = range(-32099, -32019)
"""Codes whose `data` 2026-07-28 defines: nothing is added."""


class RpcError(HubError):
    """A JSON-RPC error. `raw` is an upstream's error object, relayed unchanged where the caller's era allows its code.

    `symbol` (`mcp_hub.codes`) is sent as `data.code` unless the specification defines `data`.
    """

    code = -32603
    symbol = "internal_error"

    def __init_subclass__(cls, *, code: int | None = None, symbol: str | None = None) -> None:
        """Sets `code` and `symbol`, which are inherited otherwise."""
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
    def restored(
        cls, message: str, code: int, data: JsonObject | None, raw: RawJson | None = None, symbol: str | None = None
    ) -> Self:
        """An error from its parts, bypassing the constructor."""
        error = cls.__new__(cls)
        symbol = None if symbol == RpcError.symbol else symbol  # `data` may make it more precise
        RpcError.__init__(error, message, code=code, data=data, raw=raw, symbol=symbol)
        if raw is None and data is not None and data.get("code") == error.symbol:
            error.data = {name: value for name, value in data.items() if name != "code"} or None
        return error

    @property
    def about_upstream(self) -> JsonObject:
        """`data.upstream`: server, state, failure code."""
        upstream = (self.data or {}).get("upstream")
        return upstream if isinstance(upstream, dict) else {}

    @property
    def is_outcome_unknown(self) -> bool:
        return (self.data or {}).get("outcome") == "unknown"

    def encoded(self) -> RawJson:
        """The error object for the wire, with `symbol` as `data.code`.

        Known secrets and control characters are masked, except in `raw`.
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
    """A wrong request: a member is missing, of a wrong type or out of range.

    `not_approved` (1010): the definition awaits a person's approval. `not_read_only`: `read_tool` refused a tool that
    is not known to be so. Nothing was sent.
    """


def not_approved(message: str, data: JsonObject | None = None) -> InvalidParams:
    return InvalidParams(message, code=1010, data=data, symbol="not_approved")


class UnknownEntry(InvalidParams, symbol="unknown_entry"):
    """A name or URI outside the caller's view; `tool_removed`: a formerly listed tool."""


def method_not_found(message: str) -> RpcError:
    """The method does not exist in this version or for this caller."""
    return RpcError(message, code=-32601)


class UpstreamUnavailable(RpcError, code=1001, symbol="upstream_unavailable"):
    """The server is down; the call was not sent."""


class AccountNeeded(RpcError, code=1001, symbol="account_needed"):
    """`principal` has no account at `server`, which has one for each; nothing was sent.

    `names`: missing values of the account; empty: a login.
    """

    def __init__(self, server: str, principal: str, names: Sequence[str] = (), *, why: str = "") -> None:
        lack = f"the values {', '.join(names)} of your account are not set" if names else "you are not logged in there"
        text = f'server "{server}" needs an account of your own, and {why or lack}.'
        super().__init__(text, data={"upstream": {"server": server, "code": "account_needed"}})
        self.server = server
        self.principal = principal
        self.names = tuple(names)


class UpstreamLost(RpcError, code=1002, symbol="upstream_crashed"):
    """The connection to the server broke during the call; its outcome is unknown."""


class HttpRefused(UpstreamLost, symbol="upstream_refused"):
    """The server answered with an HTTP status, and `answer` in its body.

    With `retry_after` (seconds) it has not begun the request.
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
    """The call ran out of time and was cancelled at the server."""


class Busy(RpcError, code=1004, symbol="busy"):
    """A limit is reached; nothing was done. `refusals` counts by key. `is_rate`: it is one of requests per second."""

    refusals: ClassVar[Counter[str]] = Counter()
    is_rate = False

    @classmethod
    def at(cls, subject: str, setting: str, value: float, *, retry_after: int = 5, is_rate: bool = False) -> Self:
        """The error for a limit; a `setting` without a dot is not a key of the configuration."""
        _, is_key, limit = setting.rpartition(".")
        cls.refusals[setting] += 1
        key: JsonObject = {"setting": setting} if is_key else {}
        data: JsonObject = {"limit": limit, "value": value, **key, "retryAfter": retry_after}
        advice = f", or raise {setting}" if is_key else ""
        error = cls(f"Busy: {subject}. Try again in {retry_after} s{advice}.", data=data)
        error.is_rate = is_rate
        return error

    @property
    def retry_after(self) -> int:
        """Seconds to wait before a retry."""
        seconds = (self.data or {}).get("retryAfter")
        return seconds if isinstance(seconds, int) else 5


class StoreUnavailable(RpcError, code=1011, symbol="store_unavailable"):
    """The store does not answer; nothing was done. Retry in `retry_after` seconds."""

    retry_after = 5

    def __init__(self, message: str) -> None:
        super().__init__(message, data={"retryAfter": self.retry_after})


class HubStopping(RpcError, code=1005, symbol="hub_stopped"):
    """The hub stops during the call or before it was sent."""


class HubRestarted(RpcError, code=1006, symbol="hub_restarted"):
    """The hub was restarted and cannot continue the call; its outcome is unknown.

    `owner_lost`: the replica that ran the call is lost.
    """


def owner_lost(message: str, data: JsonObject) -> HubRestarted:
    return HubRestarted(message, data=data, symbol="owner_lost")


def executor_lost(message: str, data: JsonObject) -> RpcError:
    """No worker answers for the call."""
    return RpcError(message, code=1007, data=data, symbol="executor_lost")


class CallCancelled(RpcError, code=1009, symbol="cancelled"):
    """Somebody other than the caller cancelled the call."""


class UnknownStream(InvalidParams, symbol="unknown_stream"):
    """The stream does not exist or belongs to another principal."""

    def __init__(self) -> None:
        super().__init__("Unknown stream: it has expired, does not belong to you, or never existed.")


class EventsGone(RpcError, code=1008, symbol="events_gone"):
    """Events behind the cursor are deleted; `earliest` is the first left."""

    def __init__(self, earliest: int) -> None:
        message = f"Events after this cursor are gone. The earliest that is kept is {earliest}."
        super().__init__(message, data={"earliest": earliest})

    @property
    def earliest(self) -> int:
        return _integer((self.data or {}).get("earliest"))


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0
