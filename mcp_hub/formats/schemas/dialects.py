"""The subsets of JSON Schema that providers document; each cites its page and date."""

import re
from typing import Final

import msgspec

_COMMON: Final = frozenset(("$ref", "$defs", "type", "title", "description", "enum", "items", "anyOf", "properties"))
_OBJECTS: Final = _COMMON | {"required", "additionalProperties"}

_FORMATS: Final = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))


class Dialect(msgspec.Struct, frozen=True):
    """A provider's subset. None: no restriction.

    `keywords` apply below the root. `enums`: types of enum values. `parameters`: a pattern of names. `all_required`:
    optional properties may be null. `levels`, `properties`, `strings` and `values` bound a strict schema; 0: no bound.
    """

    keywords: frozenset[str] | None
    formats: frozenset[str] | None = None
    enums: frozenset[str] = frozenset()
    parameters: re.Pattern[str] | None = None
    is_strict: bool = False
    all_required: bool = False
    takes_cycles: bool = True
    least_items: bool = True
    levels: int = 0
    properties: int = 0
    strings: int = 0
    values: int = 0


ANTHROPIC: Final = Dialect(None, parameters=re.compile(r"[a-zA-Z0-9_.-]{1,64}"))
"""All of 2020-12, but no alternatives at the top (platform.claude.com, "Define tools", 2026-11-24)."""

OPENAI: Final = Dialect(None)
"""Any schema of an object; it is not enforced (developers.openai.com, guide "Function calling", 2026-11-24)."""

GEMINI: Final = Dialect(
    _OBJECTS | {"format", "prefixItems", "minItems", "maxItems", "minimum", "maximum"},
    enums=frozenset(("string", "integer", "number")),
    parameters=re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}"),
)
"""The keywords at `response_json_schema`, names at `FunctionDeclaration` (google-genai 3.6.1, types, 2026-11-24)."""

ANTHROPIC_STRICT: Final = Dialect(
    _OBJECTS | {"format", "default", "pattern", "minItems"},
    formats=_FORMATS | {"uri"},
    enums=frozenset(("string", "integer", "number", "boolean", "null")),
    parameters=ANTHROPIC.parameters,
    is_strict=True,
    takes_cycles=False,
    least_items=False,
)
"""platform.claude.com, "Structured outputs", "JSON Schema limitations", 2026-11-24."""

OPENAI_STRICT: Final = Dialect(
    _OBJECTS
    | {"format", "pattern", "minItems", "maxItems", "minimum", "maximum"}
    | {"exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    formats=_FORMATS,
    enums=frozenset(("string", "integer", "number", "boolean", "null")),
    is_strict=True,
    all_required=True,
    levels=10,
    properties=5000,
    strings=120_000,
    values=1000,
)
"""developers.openai.com, guide "Structured Outputs", "Supported schemas", 2026-11-24."""

STRICT_TOOLS: Final = 20
STRICT_OPTIONAL: Final = 24
STRICT_UNIONS: Final = 16
"""Strict tools of one request to Anthropic, their optional parameters and those with alternatives, in all
(platform.claude.com, "Structured outputs", "Explicit limits", 2026-11-24)."""
