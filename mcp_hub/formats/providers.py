"""The table of formats, and the format of MCP itself, which no model streams."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from mcp_hub.errors import Rejected
from mcp_hub.formats.anthropic import ANTHROPIC
from mcp_hub.formats.arguments import checked
from mcp_hub.formats.gemini import GEMINI
from mcp_hub.formats.interactions import INTERACTIONS
from mcp_hub.formats.openai import OPENAI
from mcp_hub.formats.provider import (
    Answered,
    CallResults,
    Provider,
    extra_members,
    id_members,
    model_call,
    text_member,
)
from mcp_hub.formats.reader import OutputReader
from mcp_hub.formats.records import NO_ID, ModelCall
from mcp_hub.formats.responses import RESPONSES
from mcp_hub.formats.schemas.dialects import Dialect
from mcp_hub.types import JsonObject


class Format(StrEnum):
    """A shape of tools, calls and results."""

    MCP = "mcp"
    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    OPENAI_RESPONSES = "openai-responses"
    GEMINI = "gemini"
    GEMINI_INTERACTIONS = "gemini-interactions"


def _read_call(item: JsonObject, at: int) -> ModelCall:
    has_id = isinstance(item.get("id"), str)
    extra = {**extra_members(item, "id", "name", "arguments"), **({} if has_id else {NO_ID: True})}
    name = text_member(item, "name", "mcp")
    return model_call(item["id"] if has_id else f"call_{at}", name, checked(item.get("arguments", {})), extra)


def _write_call(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    return {**id_members(call), "name": call.name, "arguments": arguments, **extra}


def _write_results(answered: Answered) -> list[JsonObject]:
    return [{**id_members(call), "result": result} for call, result in answered]


def _read_results(messages: Sequence[JsonObject]) -> CallResults:
    return [(message.get("id", ""), message["result"]) for message in messages]


_MCP: Final = Provider(
    names=re.compile(r".+", re.DOTALL),
    plain=Dialect(None),
    write_tool=lambda definition, schema, is_strict: definition,
    read_tools=list,
    inside=("calls",),
    is_call=lambda item: "name" in item,
    read_call=_read_call,
    write_call=_write_call,
    write_results=_write_results,
    read_results=_read_results,
    reader=None,
)

FORMATS: Final[Mapping[Format, Provider]] = {
    Format.MCP: _MCP,
    Format.ANTHROPIC: ANTHROPIC,
    Format.OPENAI: OPENAI,
    Format.OPENAI_RESPONSES: RESPONSES,
    Format.GEMINI: GEMINI,
    Format.GEMINI_INTERACTIONS: INTERACTIONS,
}
"""Every format; the rest of the hub asks here what a format has."""
PROVIDERS: Final[Mapping[Format, Provider]] = {name: entry for name, entry in FORMATS.items() if entry is not _MCP}
"""The formats of model providers."""


def format_named(name: str) -> Format:
    """Raises: Rejected (`unknown_format`)."""
    try:
        return Format(name)
    except ValueError:
        names = ", ".join(Format)
        raise Rejected("unknown_format", f'unknown format "{name}". Use one of: {names}.') from None


def output_reader(out_of: Format) -> OutputReader:
    """A reader for one output. Raises: Rejected (`unknown_format`), also for MCP."""
    reader = FORMATS[out_of].reader
    if reader is None:
        raise Rejected("unknown_format", f'the format "{out_of}" has no streams. Use that of a provider.')
    return reader()
