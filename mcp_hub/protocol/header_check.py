"""Members of a modern request that HTTP headers repeat, as a server checks them: they have to agree with the body.

Source: specification 2026-07-28, basic/transports/streamable-http "Server Validation" and "Custom Headers". Order and
verdicts are the SDK's (`mcp.shared.inbound`), which would cost 0.3 s of the start of a hub over HTTP; a contract test
holds them equal.
"""

import base64
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from mcp_hub.errors import RpcError
from mcp_hub.protocol.eras import MODERN_VERSIONS, unsupported_version
from mcp_hub.protocol.headers import annotated, param_headers, rendered, value_at
from mcp_hub.protocol.meta import CAPABILITIES, VERSION
from mcp_hub.protocol.rpc_errors import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION
from mcp_hub.types import JsonObject

NAMED_BY: Final[Mapping[str, str]] = {
    **{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"},
    **{"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"},
}
"""The parameter that `Mcp-Name` repeats, by method; those of tasks by the tasks extension (SEP-2663)."""
_ROUTING: Final = ("mcp-protocol-version", "mcp-method", "mcp-name")
_BASE64: Final = re.compile(r"=\?base64\?(.*)\?=")
_DECIMAL: Final = re.compile(r"(-?[0-9]+)(?:\.0+)?")


def repeated(names: Iterable[str]) -> frozenset[str]:
    """The names of a request's header lines that are there more than once, in lower case."""
    return frozenset(name for name, count in Counter(map(str.lower, names)).items() if count > 1)


def header_text(value: str | None) -> str | None:
    """The value of a header, decoded from its Base64 form if it has that; None if it is missing or broken."""
    found = _BASE64.fullmatch(value) if value is not None else None
    if found is None:
        return value
    try:
        text = base64.b64decode(found[1])
        return text.decode() if base64.b64encode(text).decode() == found[1] else None
    except ValueError:
        return None


def check_version(version: object) -> None:
    """Raises `RpcError` for a modern version that is not served."""
    if not isinstance(version, str):
        raise RpcError(f"params._meta {VERSION} is not a string", code=INVALID_PARAMS)
    if version not in MODERN_VERSIONS:
        raise RpcError(
            f"protocol version {version[:100]} is not supported",
            code=UNSUPPORTED_VERSION,
            data=unsupported_version(version),
        )


def check_request(
    method: str, params: JsonObject, headers: Mapping[str, str], twice: Collection[str] = frozenset()
) -> None:
    """Envelope and routing headers.

    `params` has `_meta` and what `NAMED_BY` names; `headers` has names in lower case; `twice` is `repeated`.
    Raises `RpcError`: the first of what is wrong.
    """
    for name in _ROUTING:
        if name in twice:
            raise _mismatch(f"{name} header appears more than once")
    meta = params.get("_meta")
    absent = [key for key in (VERSION, CAPABILITIES) if not isinstance(meta, Mapping) or key not in meta]
    if not isinstance(meta, Mapping) or absent:
        raise RpcError(f"params._meta lacks {', '.join(absent)}", code=INVALID_PARAMS)
    version = meta[VERSION]
    if version is None or headers.get("mcp-protocol-version") != version:
        raise _mismatch("mcp-protocol-version header does not match the version in the request body's _meta")
    if headers.get("mcp-method") != method:
        raise _mismatch("mcp-method header does not match the request body's method")
    key = NAMED_BY.get(method)
    named = params.get(key) if key is not None else None
    if named is not None and header_text(headers.get("mcp-name")) != named:
        raise _mismatch(f"mcp-name header does not match the request body's {key!r} parameter")
    check_version(version)


def check_arguments(
    schema: object, arguments: object, headers: Mapping[str, str], twice: Collection[str] = frozenset()
) -> None:
    """The headers that repeat arguments of a `tools/call`, each of which is there with its argument or not at all.

    A schema whose annotations are forbidden demands nothing: clients leave its tool out. Raises `RpcError`.
    """
    try:
        wanted = param_headers(schema)
    except ValueError:
        return
    types = {path: node.get("type") for path, node in annotated(schema)}
    for name, path in wanted.items():
        header, value, where = headers.get(name), value_at(arguments, path), ".".join(path)
        if name in twice:
            raise _mismatch(f"{name} header appears more than once")
        text = rendered(value)
        if (header is None) != (text is None):
            raise _mismatch(f"{name} header and the request body's {where!r} argument are not both there")
        if header is not None and text is not None and not _agrees(types[path], value, text, header):
            raise _mismatch(f"{name} header does not match the request body's {where!r} argument")


def _agrees(kind: object, value: Any, text: str, header: str) -> bool:
    """Whole numbers as numbers, anything else as text."""
    said = header_text(header)
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if said is not None and kind == "integer" and is_whole and not isinstance(value, bool):
        if number := _DECIMAL.fullmatch(said):
            try:
                return int(number[1]) == int(value)
            except ValueError:  # thousands of digits
                return False
    return said == text


def _mismatch(message: str) -> RpcError:
    return RpcError(message, code=HEADER_MISMATCH)
