"""What a modern request repeats in HTTP headers, from the client's side.

Source: specification 2026-07-28, basic/transports/streamable-http "Request Metadata". The codec repeats the SDK's
(`mcp.shared.inbound`), which costs 0.5 s to import; a contract test holds them equal.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["Path", "header_value", "mirrored", "param_headers"]

Path = tuple[str, ...]
"""The chain of `properties` keys that leads to a parameter."""

_PLAIN: Final = re.compile(r"[\x20-\x7e]*")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_ANNOTATION: Final = "x-mcp-header"
_TYPES: Final = ("string", "integer", "boolean")
_DATA: Final = frozenset({"default", "examples", "const", "enum"})
"""Keywords whose values are instances: what looks like an annotation there is none."""
_MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose values map names to schemas: the names are no keywords."""


def header_value(text: str) -> str:
    """`text`, in the Base64 form where HTTP could not carry it or it looks like that form already."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def param_headers(schema: object) -> dict[str, Path]:
    """The headers that arguments travel in besides the body, each with its parameter.

    Raises `ValueError` for annotations that the specification forbids: a client must leave the tool out.
    """
    found: dict[str, Path] = {}
    for path, annotated in _annotated(schema):
        token, kind = annotated[_ANNOTATION], annotated.get("type")
        if not path:
            raise ValueError(f"{_ANNOTATION} on something that is no property of the arguments")
        where = ".".join(path)
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ValueError(f"{where}: {_ANNOTATION} is no header name")
        if kind not in _TYPES:
            raise ValueError(f"{where}: {_ANNOTATION} is for strings, integers and booleans only")
        name = f"mcp-param-{token.lower()}"
        if name in found:
            raise ValueError(f"{where}: {_ANNOTATION} {token} is used twice")
        found[name] = path
    return found


def _annotated(schema: object) -> Iterator[tuple[Path | None, dict[str, object]]]:
    """Every annotated schema with its path; None off the chain of `properties`."""
    rest: list[tuple[Path | None, object]] = [((), schema)]
    while rest:
        path, node = rest.pop()
        if isinstance(node, list):
            rest += [(None, item) for item in node]
        elif isinstance(node, dict):
            if _ANNOTATION in node:
                yield path, node
            for keyword, value in node.items():
                rest += _inside(path, keyword, value)


def _inside(path: Path | None, keyword: str, value: object) -> list[tuple[Path | None, object]]:
    if keyword in _DATA or keyword == _ANNOTATION:
        return []
    if keyword in _MAPS and isinstance(value, dict):
        chain = path if keyword == "properties" else None
        return [((*chain, name) if chain is not None else None, inner) for name, inner in value.items()]
    return [(None, value)]


def mirrored(headers: Mapping[str, Path], arguments: object) -> dict[str, str]:
    """The headers with the values that `arguments` have; one without a value, or with null, is left out."""
    values = {name: _rendered(_at(arguments, path)) for name, path in headers.items()}
    return {name: header_value(value) for name, value in values.items() if value is not None}


def _at(value: object, path: Path) -> object:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _rendered(value: object) -> str | None:
    """A primitive as text, else None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return str(value) if isinstance(value, str | int | float) else None
    except ValueError:  # an integer of thousands of digits
        return None
