"""JSON-RPC and MCP error codes, and which of them may travel on to a caller of which era.

Source: JSON-RPC 2.0 §5.1; specification 2026-07-28, basic/index "Error Codes"; protocol.md §3 "Lossless".
"""

from typing import Final

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.types import Era, JsonObject, RawJson

__all__ = [
    "HEADER_MISMATCH",
    "HTTP_STATUS",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "MISSING_CAPABILITY",
    "PARSE_ERROR",
    "RESOURCE_NOT_FOUND",
    "UNSUPPORTED_VERSION",
    "URL_ELICITATION_REQUIRED",
    "for_caller",
    "from_wire",
]

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
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""Status of a modern JSON answer that is this error; any other code goes out with 200."""

_OWN_HOP: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
_RESERVED_MODERN: Final = range(-32099, -32019)
"""-32020…-32099: a modern peer may give only the meanings of the specification to these."""


class _WireError(msgspec.Struct):
    code: int
    message: str = ""
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode = msgspec.json.Decoder(_WireError).decode


def from_wire(raw: RawJson) -> RpcError:
    """An upstream's error object as an `RpcError` that is relayed byte for byte.

    One that is not an error object (no integer code) becomes -32603 with the original in `data.upstream`.
    """
    try:
        error = _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return RpcError(
            "upstream answered with a malformed error object",
            data={"upstream": {"error": msgspec.Raw(bytes(raw))}},
        )
    return RpcError(error.message, code=error.code, raw=raw)


def for_caller(error: RpcError, era: Era, server: str | None) -> RpcError:
    """The error that a caller of `era` may see: unchanged, or what the specification puts in its place.

    -32020/-32022 describe the hub's own hop to the upstream and never reach a caller as such; -32021 does where the
    hub passed on the caller's own capabilities (modern to modern). Towards a modern caller -32002 becomes -32602 and
    any other code of the reserved range becomes -32603.
    """
    if error.raw is None or (error.code == MISSING_CAPABILITY and era is Era.MODERN):
        return error
    if error.code in _OWN_HOP:
        return _wrapped(error, server, INTERNAL_ERROR, f"upstream refused the hub's request: {error.message}")
    if era is Era.HANDSHAKE:
        return error
    if error.code == RESOURCE_NOT_FOUND:
        return _recoded(error, INVALID_PARAMS)
    if error.code in _RESERVED_MODERN:
        return _wrapped(error, server, INTERNAL_ERROR, error.message)
    return error


def _wrapped(error: RpcError, server: str | None, code: int, message: str) -> RpcError:
    data: JsonObject = {"upstream": {"server": server, "error": msgspec.Raw(bytes(error.encoded()))}}
    return RpcError(message, code=code, data=data)


def _recoded(error: RpcError, code: int) -> RpcError:
    fields = msgspec.json.decode(error.encoded(), type=dict[str, msgspec.Raw])
    fields["code"] = msgspec.Raw(str(code).encode())
    return RpcError(error.message, code=code, raw=msgspec.json.encode(fields))


def url_elicitations(error: RpcError) -> dict[str, tuple[str, RawJson]] | None:
    """Interim."""
    return None
