"""The JSON Schema of `servers.yaml` before `${…}` is filled in, for editors.

A file may contain more than the models: durations as text, `${…}`, empty keys, other clients' keys.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from mcp_hub.config.schema.fields import TRANSPORTS
from mcp_hub.config.schema.settings import Settings
from mcp_hub.types import JsonObject

_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The dialect that every editor knows."""
_DURATION: Final = r"^\s*([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+\s*$|^\s*[0-9]+(\.[0-9]+)?\s*$"
_SIZE: Final = r"^\s*[0-9]+(\.[0-9]+)?\s*([KkMmGg][Ii]?[Bb]|[Bb])?\s*$"
_PLACEHOLDER: Final[JsonObject] = {"type": "string", "pattern": r"\$\{"}
_FILLED: Final = (
    "ServerSettings",
    "HttpSettings",
    "TokenSettings",
    "StoreSettings",
    "TelemetrySettings",
    "AskWebhookSettings",
)
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
    schema: JsonObject = deepcopy(Settings.model_json_schema())
    definitions = schema.pop("$defs")
    filled = {name for section in _FILLED for name in (section, *_below(definitions, section))}
    sections = {name: _section(definition, is_filled=name in filled) for name, definition in definitions.items()}
    server = sections["ServerSettings"]["properties"]
    server["type"] = {"enum": ["stdio", *TRANSPORTS, None], "description": "The transport of a url."}
    server["era"]["anyOf"].append({"const": "auto"})
    server.update(deepcopy(_OTHERS))
    for shorthand in (sections["StoreSettings"], sections["SelectorSettings"], sections["ToolSelector"]):
        shorthand.update({"anyOf": [{"type": "object"}, {"type": "string", "minLength": 1}]})
        shorthand.pop("type")
    condition, ask = sections["_ConditionSettings"]["properties"], sections["AskSettings"]
    for key in ("principal", "client"):
        condition[key]["anyOf"].append({"type": "string", "minLength": 1})
    ask["anyOf"] = [{"type": "object"}, {"type": "array"}, {"enum": ["always", "once"]}]
    del ask["type"]
    sections["HistorySettings"]["anyOf"] = [{"type": "object"}, {"enum": ["off", False]}]
    del sections["HistorySettings"]["type"]
    sections["AuditSettings"]["anyOf"] = [{"type": "object"}, {"enum": ["stderr", "otlp"]}]
    del sections["AuditSettings"]["type"]
    for key, words in (("_AuthorizationSettings", ["on", "off"]), ("_DashboardSettings", ["off", "read", "full"])):
        sections[key]["anyOf"] = [{"type": "object"}, {"enum": words}, {"type": "boolean"}]
        del sections[key]["type"]
    rule = sections["SandboxSettings"]
    rule["anyOf"] = [{"type": "object"}, {"enum": ["off", "on", "prefer"]}, {"type": "boolean"}]
    rule.pop("type")
    top = _section(schema, is_filled=False)
    top["properties"]["mcpServers"] = deepcopy(top["properties"]["servers"])
    top["properties"]["$schema"] = {"type": "string"}
    head = {"$schema": _DIALECT, "title": "servers.yaml of mcp-hub", "type": ["object", "null"]}
    return {**head, "additionalProperties": False, "properties": top["properties"], "$defs": sections}


def _section(section: JsonObject, *, is_filled: bool) -> JsonObject:
    """Leaves out class docstrings, which are for programmers."""
    definition = {key: value for key, value in section.items() if key not in ("title", "description")}
    if "properties" in definition:
        definition["properties"] = {
            key: _key(key_schema, is_filled=is_filled) for key, key_schema in definition["properties"].items()
        }
    return definition


def _key(key_schema: JsonObject, *, is_filled: bool) -> JsonObject:
    value_schema = _value(key_schema, is_filled=is_filled)
    choices = [*value_schema["anyOf"]] if "anyOf" in value_schema else [value_schema]
    if {"type": "null"} not in choices:
        choices.append({"type": "null"})
    default = key_schema.get("default")
    return {"anyOf": choices, **({"default": default} if isinstance(default, str | int | float) else {})}


def _value(schema: Any, *, is_filled: bool) -> Any:
    if isinstance(schema, list):
        return [_value(item, is_filled=is_filled) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: value for key, value in schema.items() if key not in ("title", "writeOnly", "default", "format")}
    if "enum" in plain.get("propertyNames", {}):  # editors complete the names of properties
        names, of_each = plain.pop("propertyNames")["enum"], plain["additionalProperties"]
        plain |= {"properties": dict.fromkeys(names, of_each), "additionalProperties": False}
    if plain.get("const") == "off":
        plain = {"enum": ["off"]}
    if "off" in plain.get("enum", ()):
        plain = {"enum": [*plain["enum"], False]}  # YAML reads a bare `off` as false
    is_plain = plain.get("type") in ("integer", "boolean") or "enum" in plain or "const" in plain
    choices = _KINDS.get(plain.get("type", "")) or ([plain] if is_plain else None)
    if choices is None:
        return {key: _value(value, is_filled=is_filled) for key, value in plain.items()}
    choices = [*deepcopy(choices), *([_PLACEHOLDER] if is_filled else [])]
    return {"anyOf": choices} if len(choices) > 1 else choices[0]


def _below(definitions: JsonObject, name: str) -> Iterator[str]:
    for definition in definitions:
        if f"#/$defs/{definition}'" in str(definitions[name]):
            yield definition
            yield from _below(definitions, definition) if definition != name else ()
