"""HTTP headers of modern requests: writing and checks.

Source: specification 2026-07-28, basic/transports/streamable-http; `mcp.shared.inbound` of the SDK.
"""

import base64
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.masking import hide_head
from mcp_hub.protocol.eras import MODERN_VERSIONS, unsupported_version
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.protocol.jsonrpc.rpc_errors import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION
from mcp_hub.protocol.meta import CAPABILITIES, VERSION
from mcp_hub.types import JsonObject, RawJson, RawObject

Path = tuple[str, ...]
"""The chain of `properties` keys that leads to a parameter."""

NAMED_BY: Final[Mapping[str, str]] = {
    **{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"},
    **{"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"},
}
"""The parameter that `Mcp-Name` repeats, by method; those of tasks by the tasks extension (SEP-2663)."""
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_ANNOTATION: Final = "x-mcp-header"
_TYPES: Final = ("string", "integer", "boolean")
_ROUTING: Final = ("mcp-protocol-version", "mcp-method", "mcp-name")
_BASE64: Final = re.compile(r"=\?base64\?(.*)\?=")
_DECIMAL: Final = re.compile(r"(-?[0-9]+)(?:\.0+)?")
_ONE: Final = frozenset(
    "items contains unevaluatedItems additionalProperties propertyNames unevaluatedProperties "
    "not if then else contentSchema".split()
)
"""Keywords of JSON Schema 2020-12 whose value is a schema."""
_LISTS: Final = frozenset("allOf anyOf oneOf prefixItems".split())
"""Keywords with a list of schemas."""
_MAPS: Final = frozenset("properties patternProperties dependentSchemas $defs definitions".split())
"""Keywords with schemas by name. Under other keywords an annotation is data."""


def header_value(text: str) -> str:
    """The text, in Base64 form if HTTP cannot carry it or it looks encoded."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def request_headers(version: str, method: str, params: RawJson) -> dict[str, str]:
    """Headers of every modern request; an unreadable name is omitted."""
    headers = {"mcp-protocol-version": version, "mcp-method": method}
    key = NAMED_BY.get(method)
    name = _decoded((raw_object(params) or {}).get(key)) if key is not None else None
    if isinstance(name, str):
        headers["mcp-name"] = header_value(name)
    return headers


class Mirrors:
    """Arguments that a server's tools repeat in headers."""

    def __init__(self) -> None:
        self._paths: dict[str, dict[str, Path]] = {}

    def learn(self, definitions: Iterable[bytes]) -> tuple[list[bytes], list[str]]:
        """Replaces the tools; the usable ones, and reasons for the others."""
        self._paths = {}
        usable, refused = [], []
        for raw in definitions:
            try:
                if _ANNOTATION.encode() in raw:
                    self._learn_one(raw_object(raw) or {})
                usable.append(raw)
            except ValueError as exc:
                refused.append(str(exc))
        return usable, refused

    def _learn_one(self, members: RawObject) -> None:
        name = _decoded(members.get("name"))
        if isinstance(name, str):  # a tool without a name is refused elsewhere
            try:
                self._paths[name] = param_headers(_decoded(members.get("inputSchema")))
            except ValueError as exc:
                raise ValueError(f"{hide_head(name, 100)} is left out: {exc}") from None

    def headers(self, params: RawObject) -> dict[str, str] | None:
        """Headers for a `tools/call`; missing and null arguments have none."""
        paths = self._paths.get(str(_decoded(params.get("name")))) if self._paths else None
        if not paths:
            return None
        arguments = _decoded(params.get("arguments"))
        values = {name: rendered(value_at(arguments, path)) for name, path in paths.items()}
        return {name: header_value(value) for name, value in values.items() if value is not None}


def _decoded(raw: RawJson | None) -> object:
    try:
        return msgspec.json.decode(raw) if raw is not None else None
    except (msgspec.DecodeError, RecursionError):
        return None


def param_headers(schema: object) -> dict[str, Path]:
    """Headers and their parameters. Raises `ValueError` for invalid annotations."""
    paths: dict[str, Path] = {}
    for path, node in annotated(schema):
        token, kind = node[_ANNOTATION], node.get("type")
        if not path:
            raise ValueError(f"{_ANNOTATION} on something that is not a property of the arguments")
        where = ".".join(path)
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ValueError(f"{where}: {_ANNOTATION} is not a header name")
        if kind not in _TYPES:
            raise ValueError(f"{where}: {_ANNOTATION} is for strings, integers and booleans only")
        name = f"mcp-param-{token.lower()}"
        if name in paths:
            raise ValueError(f"{where}: {_ANNOTATION} {token} is used twice")
        paths[name] = path
    return paths


def annotated(schema: object) -> Iterator[tuple[Path | None, dict[str, object]]]:
    """Annotated schemas with paths; None outside of `properties`."""
    pending: list[tuple[Path | None, object]] = [((), schema)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, dict):
            if _ANNOTATION in node:
                yield path, node
            for keyword, value in node.items():
                pending += _inside(path, keyword, value)


def _inside(path: Path | None, keyword: str, value: object) -> list[tuple[Path | None, object]]:
    if keyword in _ONE:
        return [(None, value)]
    if keyword in _LISTS and isinstance(value, list):
        return [(None, inner) for inner in value]
    if keyword in _MAPS and isinstance(value, dict):
        chain = path if keyword == "properties" else None
        return [((*chain, name) if chain is not None else None, inner) for name, inner in value.items()]
    return []


def value_at(value: object, path: Path) -> object:
    """None for a missing value."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def rendered(value: object) -> str | None:
    """A primitive as text, else None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return str(value) if isinstance(value, str | int | float) else None
    except ValueError:  # an integer of thousands of digits
        return None


# -- as a server checks them


def repeated(names: Iterable[str]) -> frozenset[str]:
    """Repeated names in lower case."""
    return frozenset(name for name, count in Counter(map(str.lower, names)).items() if count > 1)


def header_text(value: str | None) -> str | None:
    """The decoded value; None if missing or broken."""
    encoded = _BASE64.fullmatch(value) if value is not None else None
    if encoded is None:
        return value
    try:
        text = base64.b64decode(encoded[1])
        return text.decode() if base64.b64encode(text).decode() == encoded[1] else None
    except ValueError:
        return None


def check_version(version: object) -> None:
    """Raises `RpcError` for an unsupported version."""
    if not isinstance(version, str):
        raise RpcError(f"params._meta {VERSION} is not a string", code=INVALID_PARAMS)
    if version not in MODERN_VERSIONS:
        message = f"protocol version {hide_head(version, 100)} is not supported"
        raise RpcError(message, code=UNSUPPORTED_VERSION, data=unsupported_version(version))


def check_request(method: str, params: JsonObject, headers: Mapping[str, str], twice: Collection[str] = ()) -> None:
    """Checks `_meta` and routing headers (lower case). Raises `RpcError`."""
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


def check_arguments(schema: object, arguments: object, headers: Mapping[str, str], twice: Collection[str] = ()) -> None:
    """Checks headers that repeat arguments. Raises `RpcError`."""
    try:
        paths = param_headers(schema)
    except ValueError:  # clients leave the tool out
        return
    types = {path: node.get("type") for path, node in annotated(schema)}
    for name, path in paths.items():
        header, value, where = headers.get(name), value_at(arguments, path), ".".join(path)
        if name in twice:
            raise _mismatch(f"{name} header appears more than once")
        text = rendered(value)
        if (header is None) != (text is None):
            raise _mismatch(f"{name} header and the request body's {where!r} argument are not both there")
        if header is not None and text is not None and not _agrees(types[path], value, text, header):
            raise _mismatch(f"{name} header does not match the request body's {where!r} argument")


def _agrees(kind: object, value: object, text: str, header: str) -> bool:
    header_value = header_text(header)
    whole = int(value) if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) else None
    if header_value is not None and kind == "integer" and whole is not None and not isinstance(value, bool):
        if number := _DECIMAL.fullmatch(header_value):
            try:
                return int(number[1]) == whole
            except ValueError:  # thousands of digits
                return False
    return header_value == text


def _mismatch(message: str) -> RpcError:
    return RpcError(message, code=HEADER_MISMATCH)
