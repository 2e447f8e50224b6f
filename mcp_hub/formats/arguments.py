"""The arguments of a call: read within limits, in the tool's own names."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mcp_hub.formats.records import CallFault
from mcp_hub.formats.schemas.canonical import canonical
from mcp_hub.formats.schemas.dialects import Dialect
from mcp_hub.formats.schemas.emitters import renames
from mcp_hub.formats.schemas.nodes import MAX_DEPTH, Node, accepts_null, chosen, expanded
from mcp_hub.formats.schemas.root import rooted
from mcp_hub.types import JsonObject

MAX_BYTES: Final = 1 << 20
"""The most bytes of a call's arguments."""
_TOO_LARGE: Final = CallFault("arguments_too_large", f"The arguments have more than {MAX_BYTES} bytes. Send less.")


def read_arguments(text: str) -> JsonObject | CallFault:
    """The object in `text`, empty for blank text; or the fault."""
    if not text.strip():
        return {}
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        return _TOO_LARGE
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return CallFault(
            "invalid_arguments",
            f"The arguments are not valid JSON: {error}. The tool was not called. "
            "Call it again with arguments that are one complete JSON object.",
        )
    return checked(value, is_measured=True)


def checked(value: object, *, is_measured: bool = False) -> JsonObject | CallFault:
    """The value, if it is an object within the limits of depth and size."""
    if not isinstance(value, dict):
        return CallFault(
            "invalid_arguments", "The arguments are not a JSON object. Call the tool again with an object."
        )
    if _is_deeper(value, MAX_DEPTH):
        return CallFault("arguments_too_deep", f"The arguments have more than {MAX_DEPTH} levels. Send flatter ones.")
    return value if is_measured or len(msgspec.json.encode(value)) <= MAX_BYTES else _TOO_LARGE


def _is_deeper(value: object, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ())
        ]
        if not level:
            return False
    return True


class ArgumentNames:
    """Maps a tool's parameter names to a provider's."""

    def __init__(self, input_schema: object, dialect: Dialect) -> None:
        self._schema: Node = canonical(input_schema, [])
        self._new = renames(rooted(self._schema, []), dialect.parameters)
        self._old = {new: old for old, new in self._new.items()}
        self._drops_null = dialect.all_required

    def restored(self, arguments: JsonObject) -> JsonObject:
        """A model's arguments in the tool's names, without null for omitted parameters."""
        if not self._old and not self._drops_null:
            return arguments
        renamed: JsonObject = self._walked(arguments, [self._schema], self._old, self._drops_null)
        return renamed

    def for_provider(self, arguments: JsonObject) -> JsonObject:
        """A tool's arguments in the provider's names."""
        if not self._new:
            return arguments
        renamed: JsonObject = self._walked(arguments, [self._schema], self._new, False)
        return renamed

    def _walked(self, value: Any, nodes: list[Node], names: Mapping[str, str], drops_null: bool) -> Any:
        if isinstance(value, list):
            return [self._walked(item, self._items(nodes, at), names, drops_null) for at, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        alternatives = chosen(self._schema, nodes, value) if drops_null else expanded(self._schema, nodes)
        properties = {
            name for node in alternatives for name in (*node.get("properties", ()), *node.get("required", ()))
        }
        renamed: JsonObject = {}
        for key, item in value.items():
            name = names.get(key, key)
            tool_name = name if names is self._old else key
            if tool_name not in properties or (name != key and name in value):
                name = tool_name = key
            parts = [node["properties"][tool_name] for node in alternatives if tool_name in node.get("properties", ())]
            if item is None and drops_null and parts and not self._may_be_null(tool_name, parts, alternatives):
                continue
            if not parts:
                parts = [
                    additional
                    for node in alternatives
                    if isinstance(additional := node.get("additionalProperties"), dict)
                ]
            renamed[name] = self._walked(item, parts, names, drops_null)
        return renamed

    def _may_be_null(self, name: str, parts: list[Node], alternatives: list[Node]) -> bool:
        is_required = any(name in node.get("required", ()) for node in alternatives)
        return is_required or any(accepts_null(self._schema, part) for part in parts)

    def _items(self, nodes: list[Node], at: int) -> list[Node]:
        items = []
        for node in expanded(self._schema, nodes):
            heads = node.get("prefixItems", ())
            items += [heads[at]] if at < len(heads) else [node["items"]] if "items" in node else []
        return items
