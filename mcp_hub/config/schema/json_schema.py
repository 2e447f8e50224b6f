"""The JSON Schema of `servers.yaml` before `${…}` is filled in, for editors.

It adds to the models what a file may also contain: durations as text, `${…}`, empty keys, keys of other clients.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from mcp_hub.config.schema.remote import TRANSPORTS
from mcp_hub.config.schema.settings import Settings
from mcp_hub.types import JsonObject

_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The dialect that every editor knows."""
_DURATION: Final = r"^\s*([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+\s*$|^\s*[0-9]+(\.[0-9]+)?\s*$"
_SIZE: Final = r"^\s*[0-9]+(\.[0-9]+)?\s*([KkMmGg][Ii]?[Bb]|[Bb])?\s*$"
_PLACEHOLDER: Final[JsonObject] = {"type": "string", "pattern": r"\$\{"}
_FILLED: Final = ("ServerSettings", "HttpSettings", "TokenSettings", "StoreSettings", "TelemetrySettings")
"""The sections in which `${…}` is filled in, with all below them."""
_KINDS: Final[dict[str, list[JsonObject]]] = {
    "number": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _DURATION}],
    "size": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _SIZE}],
}
"""Forms in a file by the models' type; every number is a duration."""
_OTHERS: Final[dict[str, JsonObject]] = {
    "disabled": {"type": "boolean", "description": "The opposite of enabled."},
    "transport": {"enum": ["stdio", *TRANSPORTS], "description": "The same as type."},
    "auth": {"const": "oauth", "description": "The same as oauth: {}."},
}
"""Server keys as other clients write them."""


def json_schema() -> JsonObject:
    """The schema, draft 7: admits every valid file, and some that `mcp-hub check` refuses.

    Unknown keys are refused, except where the hub ignores parts of other clients' files.
    """
    found: JsonObject = deepcopy(Settings.model_json_schema())
    definitions = found.pop("$defs")
    filled = {name for section in _FILLED for name in (section, *_below(definitions, section))}
    made = {name: _section(own, is_filled=name in filled) for name, own in definitions.items()}
    server = made["ServerSettings"]["properties"]
    server["type"] = {"enum": ["stdio", *TRANSPORTS, None], "description": "The transport of a url."}
    server["era"]["anyOf"].append({"const": "auto"})
    server.update(deepcopy(_OTHERS))
    for place in (made["StoreSettings"], made["SelectorSettings"], made["ToolSelector"]):
        place.update({"anyOf": [{"type": "object"}, {"type": "string", "minLength": 1}]})
        place.pop("type")
    made["HistorySettings"]["anyOf"] = [{"type": "object"}, {"enum": ["off", False]}]
    del made["HistorySettings"]["type"]
    rule = made["SandboxSettings"]
    rule["anyOf"] = [{"type": "object"}, {"enum": ["off", "on", "prefer"]}, {"type": "boolean"}]
    rule.pop("type")
    top = _section(found, is_filled=False)
    top["properties"]["mcpServers"] = deepcopy(top["properties"]["servers"])
    top["properties"]["$schema"] = {"type": "string"}
    about = {"$schema": _DIALECT, "title": "servers.yaml of mcp-hub", "type": ["object", "null"]}
    return {**about, "additionalProperties": False, "properties": top["properties"], "$defs": made}


def _section(section: JsonObject, *, is_filled: bool) -> JsonObject:
    """Leaves out class docstrings, which are for programmers."""
    made = {key: value for key, value in section.items() if key not in ("title", "description")}
    if "properties" in made:
        made["properties"] = {key: _key(own, is_filled=is_filled) for key, own in made["properties"].items()}
    return made


def _key(own: JsonObject, *, is_filled: bool) -> JsonObject:
    made = _value(own, is_filled=is_filled)
    choices = [*made["anyOf"]] if "anyOf" in made else [made]
    if {"type": "null"} not in choices:
        choices.append({"type": "null"})
    default = own.get("default")
    return {"anyOf": choices, **({"default": default} if isinstance(default, str | int | float) else {})}


def _value(own: Any, *, is_filled: bool) -> Any:
    if isinstance(own, list):
        return [_value(item, is_filled=is_filled) for item in own]
    if not isinstance(own, dict):
        return own
    kept = {key: value for key, value in own.items() if key not in ("title", "writeOnly", "default", "format")}
    if kept.get("const") == "off":
        kept = {"enum": ["off"]}
    if "off" in kept.get("enum", ()):
        kept = {"enum": [*kept["enum"], False]}  # YAML reads a bare `off` as false
    is_plain = kept.get("type") in ("integer", "boolean") or "enum" in kept or "const" in kept
    choices = _KINDS.get(kept.get("type", "")) or ([kept] if is_plain else None)
    if choices is None:
        return {key: _value(value, is_filled=is_filled) for key, value in kept.items()}
    choices = [*deepcopy(choices), *([_PLACEHOLDER] if is_filled else [])]
    return {"anyOf": choices} if len(choices) > 1 else choices[0]


def _below(definitions: JsonObject, name: str) -> Iterator[str]:
    for other in definitions:
        if f"#/$defs/{other}'" in str(definitions[name]):
            yield other
            yield from _below(definitions, other) if other != name else ()
