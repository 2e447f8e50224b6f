"""Errors over REST: `application/problem+json` (RFC 9457) with a stable `code`."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from http import HTTPStatus
from typing import Final

import msgspec

from mcp_hub.errors import (
    Busy,
    EventsGone,
    HubError,
    HubStopping,
    InvalidParams,
    Rejected,
    RpcError,
    StoreError,
    StoreUnavailable,
    UnknownEntry,
    UnknownStream,
)
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_PARAMS, RESOURCE_NOT_FOUND
from mcp_hub.protocol.rest.calls import FailedCall

PROBLEM_JSON: Final = "application/problem+json"
_PATIENCE: Final = 5
"""Seconds after which what was refused for being too much may be tried again."""


class Problem(HubError):
    """An error response. `members` extend its body, `headers` the response."""

    media = PROBLEM_JSON

    def __init__(
        self, status: int, code: str, detail: str, *, headers: tuple[tuple[bytes, bytes], ...] = (), **members: object
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = headers
        self._members = members

    def encoded(self) -> bytes:
        """The body."""
        title = HTTPStatus(self.status).phrase
        return object_bytes(
            {"title": title, "status": self.status, "code": self.code, "detail": str(self), **self._members}
        )


class _Code(msgspec.Struct):
    code: int = 0


class _Patience(msgspec.Struct):
    class Data(msgspec.Struct):
        retryAfter: int
        limit: str = ""

    data: Data


_STATUS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("invalid_params", "not_read_only"), 400),
    **dict.fromkeys(("unknown_entry", "tool_removed"), 404),
    "busy": 503,
    "upstream_unavailable": 503,
    "hub_stopped": 503,
    "hub_restarted": 503,
    "owner_lost": 503,
    "session_elsewhere": 503,
    **dict.fromkeys(("account_needed", "not_approved"), 403),
    "code_unavailable": 503,
    "deadline_exceeded": 504,
    "internal_error": 500,
}
"""By the code of an `error` event; any other says that the upstream failed: 502."""
_REFUSED: Final[Mapping[str, int]] = {
    "unknown_executor_or_call": 404,
    "login_unknown": 404,
    "login_unavailable": 503,
    "code_wrong": 403,
    "stale_epoch": 403,
    "gap": 409,
    "name_taken": 409,
    "call_ended": 410,
    "too_large": 413,
    "idempotency_key_reused": 422,
    "no_credit": 429,
    "busy": 503,
    "not_kept": 503,
}
"""By the code of a `Rejected`; any other says that the request cannot be read: 400."""
_RETRY_AFTER: Final = {"no_credit": b"1", "busy": b"5", "not_kept": b"1"}
"""Seconds after which such a request may be sent again."""
_RELAYED: Final = {INVALID_PARAMS: 400, RESOURCE_NOT_FOUND: 404}
"""By the code of a server's own error."""


def ended_in(stream: str, failed: FailedCall) -> Problem:
    """The problem of a failed call, with its JSON-RPC error in `jsonrpc`, byte for byte."""
    status = _STATUS.get(failed.code, 502)
    if status == 503 and failed.outcome is not None:
        status = 502  # it may have been done: a client must not simply try again
    if failed.code == "tool_error":
        status = _RELAYED.get(_code(failed.jsonrpc), status)
    patience = _PATIENCE
    if (refusal := _retry_after(failed)) is not None:
        patience = refusal.retryAfter
        status = 429 if failed.group == "rate_limit" or refusal.limit == "rate" else 503
    members: dict[str, object] = {"class": failed.group, "retryable": failed.retryable}
    if failed.outcome is not None:
        members["outcome"] = failed.outcome
    headers = ((b"retry-after", b"%d" % patience),) if status in (429, 503) else ()
    return Problem(
        status, failed.code, failed.detail, headers=headers, stream=stream, **members, jsonrpc=failed.jsonrpc
    )


def _code(error: msgspec.Raw) -> int:
    try:
        return msgspec.json.decode(error, type=_Code).code
    except msgspec.DecodeError:
        return 0


def _retry_after(failed: FailedCall) -> _Patience.Data | None:
    if failed.code not in ("upstream_refused", "busy"):
        return None
    try:
        return msgspec.json.decode(failed.jsonrpc, type=_Patience).data
    except msgspec.DecodeError:
        return None


def problem_for(error: HubError) -> Problem:
    """The problem of a hub's error."""
    match error:
        case Problem():
            return error
        case UnknownStream():
            return Problem(404, "unknown_stream", str(error))
        case EventsGone(earliest=earliest):
            return Problem(410, "events_gone", str(error), earliest=earliest)
        case UnknownEntry() | InvalidParams(symbol="not_approved"):
            status, code = (404, "unknown_tool") if isinstance(error, UnknownEntry) else (403, "not_approved")
            return Problem(status, code, str(error), **(error.data or {}))
        case InvalidParams():
            return Problem(400, "invalid_params", str(error))
        case Rejected(code=code):
            retry = ((b"retry-after", _RETRY_AFTER[code]),) if code in _RETRY_AFTER else ()
            return Problem(_REFUSED.get(code, 400), code, str(error), headers=retry, **error.members)
        case Busy():
            status = 429 if error.is_rate else 503
            retry = ((b"retry-after", b"%d" % error.retry_after),)
            return Problem(status, "busy", str(error), headers=retry, **(error.data or {}))
        case HubStopping() | StoreError() | StoreUnavailable():
            code = "hub_stopped" if isinstance(error, HubStopping) else "store_unavailable"
            reason = error.public if isinstance(error, StoreError) else str(error)
            return Problem(503, code, reason, headers=((b"retry-after", b"%d" % _PATIENCE),))
        case RpcError():
            return _unknown_outcome(error)
        case _:
            return Problem(500, "internal_error", str(error))


def _unknown_outcome(error: RpcError) -> Problem:
    """An error of the hub itself. Nothing invites to a retry: the call may have taken effect."""
    if error.symbol == StoreUnavailable.symbol:
        return Problem(503, "store_unavailable", str(error), **(error.data or {}))
    return Problem(500, "internal_error", str(error), jsonrpc=msgspec.Raw(bytes(error.encoded())))


def unknown_server(name: str, names: Iterable[str] = ()) -> Problem:
    """A 404 for a server; `names` are those that the caller may see."""
    close = get_close_matches(name[:64], list(names), n=1, cutoff=0.65)
    hint = f'. Did you mean "{hide_head(close[0], 100)}"?' if close else "."
    return Problem(404, "unknown_server", f'There is no server "{hide_head(name, 100)}"{hint}')


def unknown_call() -> Problem:
    """The refusal of an id that is not in the history, or not the caller's."""
    return Problem(404, "not_in_history", "There is no such call in the history.")
