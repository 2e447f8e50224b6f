"""Members of a modern request that HTTP headers repeat, as a client sends them.

Source: specification 2026-07-28, basic/transports/streamable-http "Request Metadata". The codec repeats the SDK's
(`mcp.shared.inbound`), which costs 0.5 s to import; a contract test holds them equal.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import RawJson, RawObject

Path = tuple[str, ...]
"""The chain of `properties` keys that leads to a parameter."""

_PLAIN: Final = re.compile(r"[\x20-\x7e]*")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_ANNOTATION: Final = "x-mcp-header"
_TYPES: Final = ("string", "integer", "boolean")
_NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that `Mcp-Name` repeats, by method."""
_ONE: Final = frozenset(
    "items contains unevaluatedItems additionalProperties propertyNames unevaluatedProperties "
    "not if then else contentSchema".split()
)
"""Keywords of JSON Schema 2020-12 whose value is a schema."""
_LISTS: Final = frozenset("allOf anyOf oneOf prefixItems".split())
"""Those whose value is a list of schemas."""
_MAPS: Final = frozenset("properties patternProperties dependentSchemas $defs definitions".split())
"""Those whose value maps names to schemas. Under any other keyword what looks like an annotation is data."""


def header_value(text: str) -> str:
    """`text`, in the Base64 form where HTTP could not carry it or it looks like that form already."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def request_headers(version: str, method: str, params: RawJson) -> dict[str, str]:
    """The headers that every request of the modern era has; a name that cannot be read is left to the server."""
    headers = {"mcp-protocol-version": version, "mcp-method": method}
    key = _NAMED_BY.get(method)
    name = _decoded((raw_object(params) or {}).get(key)) if key is not None else None
    if isinstance(name, str):
        headers["mcp-name"] = header_value(name)
    return headers


class Mirrors:
    """Which arguments of a server's tools travel in headers besides the body, as of its last list."""

    def __init__(self) -> None:
        self._wanted: dict[str, dict[str, Path]] = {}

    def learn(self, definitions: Iterable[bytes]) -> tuple[list[bytes], list[str]]:
        """The tools of a list that may be used, and for each other one why not."""
        self._wanted = {}
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
                self._wanted[name] = param_headers(_decoded(members.get("inputSchema")))
            except ValueError as exc:
                raise ValueError(f"{name[:100]} is left out: {exc}") from None

    def headers(self, params: RawObject) -> dict[str, str] | None:
        """The headers that the arguments of this `tools/call` add."""
        wanted = self._wanted.get(str(_decoded(params.get("name")))) if self._wanted else None
        return mirrored(wanted, _decoded(params.get("arguments"))) if wanted else None


def _decoded(raw: RawJson | None) -> object:
    """The value; None for what cannot be decoded, about which the server has the last word."""
    try:
        return msgspec.json.decode(raw) if raw is not None else None
    except (msgspec.DecodeError, RecursionError):
        return None


def param_headers(schema: object) -> dict[str, Path]:
    """The headers that arguments travel in besides the body, each with its parameter.

    Raises `ValueError` for annotations that the specification forbids: a client must leave the tool out.
    """
    found: dict[str, Path] = {}
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
        if name in found:
            raise ValueError(f"{where}: {_ANNOTATION} {token} is used twice")
        found[name] = path
    return found


def annotated(schema: object) -> Iterator[tuple[Path | None, dict[str, object]]]:
    """Every annotated schema with its path; None off the chain of `properties`."""
    rest: list[tuple[Path | None, object]] = [((), schema)]
    while rest:
        path, node = rest.pop()
        if isinstance(node, dict):
            if _ANNOTATION in node:
                yield path, node
            for keyword, value in node.items():
                rest += _inside(path, keyword, value)


def _inside(path: Path | None, keyword: str, value: object) -> list[tuple[Path | None, object]]:
    if keyword in _ONE:
        return [(None, value)]
    if keyword in _LISTS and isinstance(value, list):
        return [(None, inner) for inner in value]
    if keyword in _MAPS and isinstance(value, dict):
        chain = path if keyword == "properties" else None
        return [((*chain, name) if chain is not None else None, inner) for name, inner in value.items()]
    return []


def mirrored(headers: Mapping[str, Path], arguments: object) -> dict[str, str]:
    """The headers with the values that `arguments` have; one without a value, or with null, is left out."""
    values = {name: rendered(value_at(arguments, path)) for name, path in headers.items()}
    return {name: header_value(value) for name, value in values.items() if value is not None}


def value_at(value: object, path: Path) -> object:
    """The value at the end of a chain of members; None where it breaks off."""
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
