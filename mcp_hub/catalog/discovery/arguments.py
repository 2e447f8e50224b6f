"""Whether a tool's arguments look wrong, to say what it takes once its server has refused them. Pure.

The server validates. Only what a model gets wrong is looked for, at the top level: missing and unknown names, types.
"""

from collections.abc import Mapping
from typing import Any, Final

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_OPEN: Final = ("additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if")
"""Keywords under which properties that are not listed may still be meant."""


def look_wrong(arguments: object, schema: object) -> bool:
    """Whether a refusal of `arguments` is likely to be their fault; both decoded, of any shape."""
    if not isinstance(arguments, dict):
        return True
    if not isinstance(schema, dict):
        return False
    required = schema.get("required")
    if isinstance(required, list) and any(isinstance(name, str) and name not in arguments for name in required):
        return True
    known = schema.get("properties")
    if not isinstance(known, dict):
        return False
    if any(name not in known for name in arguments) and not any(schema.get(keyword) for keyword in _OPEN):
        return True
    return any(name in known and _has_other_type(value, known[name]) for name, value in arguments.items())


def _has_other_type(value: Any, schema: object) -> bool:
    wanted = schema.get("type") if isinstance(schema, dict) else None
    names = wanted if isinstance(wanted, list) else [wanted]
    known = [_TYPES[name] for name in names if isinstance(name, str) and name in _TYPES]
    if not known:
        return False
    if isinstance(value, bool):  # which Python takes for a number
        return not any(bool in types for types in known)
    return not any(isinstance(value, types) for types in known)
