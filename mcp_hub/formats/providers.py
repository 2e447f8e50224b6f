"""The formats, and facts that tools, calls and results share."""

import re
from enum import StrEnum
from typing import Final

import msgspec

from mcp_hub.errors import FormatRefused
from mcp_hub.formats.schemas.dialects import (
    ANTHROPIC,
    ANTHROPIC_STRICT,
    GEMINI,
    OPENAI,
    OPENAI_STRICT,
    Dialect,
)


class Format(StrEnum):
    """A shape of tools, calls and results."""

    MCP = "mcp"
    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    OPENAI_RESPONSES = "openai-responses"
    GEMINI = "gemini"


class _FormatFacts(msgspec.Struct, frozen=True):
    """Limits on tools: names, count, schemas, deferral, groups."""

    names: re.Pattern[str]
    plain: Dialect
    strict: Dialect | None = None
    most_tools: int = 0
    defers: bool = False
    groups: bool = False


_OPENAI_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

FACTS: Final = {
    Format.ANTHROPIC: _FormatFacts(re.compile(r"[a-zA-Z0-9_-]{1,128}"), ANTHROPIC, ANTHROPIC_STRICT, defers=True),
    Format.OPENAI: _FormatFacts(_OPENAI_NAME, OPENAI, OPENAI_STRICT, most_tools=128),
    Format.OPENAI_RESPONSES: _FormatFacts(
        _OPENAI_NAME, OPENAI, OPENAI_STRICT, most_tools=128, defers=True, groups=True
    ),
    Format.GEMINI: _FormatFacts(re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}"), GEMINI),
}
"""Facts about each format of a provider; names as of 2026-11-24."""


def format_named(name: str) -> Format:
    """Raises: FormatRefused (`unknown_format`)."""
    try:
        return Format(name)
    except ValueError:
        names = ", ".join(Format)
        raise FormatRefused("unknown_format", f'unknown format "{name}". Use one of: {names}.') from None
