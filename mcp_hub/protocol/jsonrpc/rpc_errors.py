"""JSON-RPC and MCP errors, and their relay to callers of each era.

Source: JSON-RPC 2.0 §5.1; specification 2026-07-28, basic/index "Error Codes".
"""

import re
from typing import Final, Literal

import msgspec

from mcp_hub.errors import RpcError, UpstreamLost, UpstreamUnavailable
from mcp_hub.masking import hide_head, shown
from mcp_hub.protocol.capabilities import missing
from mcp_hub.protocol.jsonrpc.unparsed import is_deeper
from mcp_hub.types import Era, JsonObject, RawJson, reason_for_others, without_paths

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
URL_ELICITATION_REQUIRED: Final = -32042

HTTP_STATUS: Final = {
    **dict.fromkeys((PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS), 400),
    **dict.fromkeys((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), 400),
    METHOD_NOT_FOUND: 404,
}
"""Status of a modern JSON answer that is this error; any other code goes out with 200."""

_MOST_ELICITATIONS: Final = 64
"""URLs that one error may want opened; a caller sees a handful at most."""

_UNKNOWN = re.compile(
    r"\b(?:unknown|no such|unrecognized|invalid) (?:tool|prompt)\b|\b(?:tool|prompt)s? not (?:found|available|known)\b"
    r"|\b(?:tool|prompt):? \S{1,200} (?:was |is |does )?(?:not (?:found|exist|known|available|registered)|unknown)\b",
    re.IGNORECASE,
)
"""The words of servers that do not know the tool of a call, as the SDKs have them."""
LONGEST_UNKNOWN: Final = 1000
"""Bytes of an answer that says no more than that."""
FAILED: Final = re.compile(rb'"isError"\s*:\s*true')
"""The mark of a result that is an error."""

_LONGEST_WORDS: Final = 1000
_DEEPEST: Final = 100
"""Levels of a malformed error that is shown as data: what hides its texts calls itself for each of them."""
_OWN_HOP: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
_RESERVED_MODERN: Final = range(-32099, -32019)
"""-32020…-32099: a modern peer may give only the meanings of the specification to these."""


def is_reserved(code: int) -> bool:
    return code in _RESERVED_MODERN


class _WireError(msgspec.Struct):
    code: int
    message: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode = msgspec.json.Decoder(_WireError).decode
_UNNAMED: Final = " (the server's error named no request; no other one of those in flight was left without an answer)"


def from_wire(raw: RawJson, who: Literal["upstream", "client"] = "upstream") -> RpcError:
    """A peer's error, byte for byte.

    A malformed one becomes -32603 with its words, and the masked original in `data[who]`.
    """
    try:
        error = _decode(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        words = hide_head(shown(_words(raw)), _LONGEST_WORDS)
        return RpcError(
            f"{who} answered with a malformed error object: {exc}{words and f': {words}'}",
            data={who: {"error": _quoted(bytes(raw))}},
            symbol="upstream_error" if who == "upstream" else "client_error",
        )
    return RpcError(error.message, code=error.code, raw=raw)


def unnamed(raw: RawJson) -> bytes:
    """An error that named no request, as the answer to the one that it must have been; its message says so."""
    try:
        error = _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return bytes(raw)
    error.message += _UNNAMED
    return msgspec.json.encode(error)


def _words(raw: RawJson) -> str:
    """The first text of a malformed error, `message` before others; codes have no words."""
    try:
        error = None if is_deeper(bytes(raw), _DEEPEST) else msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return ""
    while isinstance(error, dict | list) and error:
        if isinstance(error, list):
            error = error[0]
        else:
            named = {key: value for key, value in error.items() if value and key not in ("code", "data")}
            error = named.get("message") or next(iter(named.values()), None)
    return error if isinstance(error, str) else ""


def _quoted(raw: bytes) -> object:
    text = raw.decode("utf-8", "replace")
    if shown(text) == text:
        return msgspec.Raw(raw)
    try:
        return text if is_deeper(raw, _DEEPEST) else msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return text


def for_caller(error: RpcError, era: Era, server: str | None, capabilities: JsonObject | None = None) -> RpcError:
    """The error as the caller may see it.

    -32020 and -32022 are wrapped; -32021 passes if the caller lacks the capability. For modern callers -32002 becomes
    -32602, other reserved codes -32603. The hub's own errors name the server.
    """
    if error.raw is None:
        return _about(error, server)
    if error.code == MISSING_CAPABILITY and missing(_required(error), capabilities or {}) is not None:
        return error
    if error.code in _OWN_HOP:
        return _wrapped(error, server, f"the server refused the hub's request: {error.message}")
    if era is Era.HANDSHAKE:
        return error
    if error.code == RESOURCE_NOT_FOUND:
        fields = msgspec.json.decode(error.encoded(), type=dict[str, msgspec.Raw])
        fields["code"] = msgspec.Raw(b"%d" % INVALID_PARAMS)
        return RpcError(error.message, code=INVALID_PARAMS, raw=msgspec.json.encode(fields))
    if error.code in _RESERVED_MODERN:
        return _wrapped(error, server, error.message)
    return error


def for_others(error: RpcError) -> RpcError:
    """The error without the hub's paths, for callers that do not operate it."""
    if error.raw is not None or not isinstance(error, UpstreamLost | UpstreamUnavailable):
        return error
    about, message, data = error.about_upstream, error.message, error.data
    if isinstance(reason := about.get("reason"), str):
        head, public = message.removesuffix(shown(reason)), reason_for_others(str(about.get("code", "")), reason)
        said = without_paths(head) if head != message else f'server "{about.get("server", "")}" is not available: '
        message, data = said + shown(public), {**(data or {}), "upstream": {**about, "reason": public}}
    else:
        message = without_paths(message)
    return error if message == error.message else type(error).restored(message, error.code, data, symbol=error.symbol)


class _MissingData(msgspec.Struct, rename="camel"):
    required_capabilities: JsonObject


class _MissingError(msgspec.Struct):
    data: _MissingData


def _required(error: RpcError) -> JsonObject:
    try:
        return msgspec.json.decode(error.encoded(), type=_MissingError).data.required_capabilities
    except (msgspec.DecodeError, RecursionError):
        return {}


def _about(error: RpcError, server: str | None) -> RpcError:
    upstream = (error.data or {}).get("upstream", {})
    if server is None or not isinstance(upstream, dict) or "server" in upstream:
        return error
    data = {**(error.data or {}), "upstream": {"server": server, **upstream}}
    return type(error).restored(error.message, error.code, data, symbol=error.symbol)


def _wrapped(error: RpcError, server: str | None, message: str) -> RpcError:
    return RpcError(message, data={"upstream": {"server": server, "error": msgspec.Raw(bytes(error.encoded()))}})


class _Elicitation(msgspec.Struct):
    mode: Literal["url"]
    url: str
    message: str


class _ElicitationData(msgspec.Struct):
    elicitations: list[msgspec.Raw]


class _ElicitationError(msgspec.Struct):
    data: _ElicitationData


def url_elicitations(error: RpcError) -> dict[str, tuple[str, RawJson]] | None:
    """Params of `elicitation/create` by key, in place of -32042 for a modern caller.

    None for other, malformed or more than 64.
    """
    if error.code != URL_ELICITATION_REQUIRED:
        return None
    try:
        raws = msgspec.json.decode(error.encoded(), type=_ElicitationError).data.elicitations
        for raw in raws:
            msgspec.json.decode(raw, type=_Elicitation)
        asked = [msgspec.json.decode(raw, type=dict[str, msgspec.Raw]) for raw in raws]
    except (msgspec.DecodeError, RecursionError):
        return None
    if not 0 < len(asked) <= _MOST_ELICITATIONS:
        return None
    for params in asked:
        params.pop("elicitationId", None)  # not a part of the modern era
    return {
        f"elicitation-{n}": ("elicitation/create", msgspec.json.encode(params)) for n, params in enumerate(asked, 1)
    }


def is_unknown(error: RpcError) -> bool:
    """Whether the error says that the tool or prompt is unknown."""
    return _UNKNOWN.search(error.message, 0, LONGEST_UNKNOWN) is not None


def is_unknown_result(result: RawJson) -> bool:
    """Whether an error result says so."""
    view = memoryview(result)
    return view.nbytes <= LONGEST_UNKNOWN and _UNKNOWN.search(bytes(view).decode("utf-8", "replace")) is not None
