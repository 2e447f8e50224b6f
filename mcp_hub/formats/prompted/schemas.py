"""As much of JSON Schema as calls and signatures need: input schemas of strangers, of which nothing is certain."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

JSON_TYPES: Final = {
    **{str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"},
    type(None): "null",
}
"""Types of decoded JSON → their names."""
_MAX_SCHEMAS: Final = 48  # schemas that are looked at for one type, so that one which refers to itself comes to an end


def input_schema(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The input schema of a definition, empty if it is not an object."""
    schema = tool.get("inputSchema")
    return schema if isinstance(schema, Mapping) else {}


def properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its properties, empty if they are not an object."""
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def types_of(root: Mapping[str, Any], name: str) -> set[str]:
    """The types that the schema of parameter `name` allows; empty if it allows any."""
    return set(_types(properties_of(root).get(name), root))


def _types(schema: Any, root: Mapping[str, Any]) -> Iterator[str]:
    waiting = [schema]
    for _ in range(_MAX_SCHEMAS):
        if not waiting:
            return
        found = waiting.pop()
        if not isinstance(found, Mapping):
            continue
        named = found.get("type")
        if named is not None:
            yield from (name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str))
        elif isinstance(values := found.get("enum", [found["const"]] if "const" in found else None), list):
            yield from (JSON_TYPES.get(type(value), "string") for value in values)
        elif isinstance(reference := found.get("$ref"), str):
            waiting.append(referred(reference, root))
        else:
            waiting += [member for union in ("anyOf", "oneOf", "allOf") for member in _list(found.get(union))]


def referred(reference: str, root: Mapping[str, Any]) -> Any:
    """The schema that a reference into `root` by names means, as `#/$defs/Point` or `#`; None if there is none."""
    found: Any = root
    for step in reference.split("/", _MAX_SCHEMAS)[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
