"""Filters of a server or profile, by name, tag and tool hints."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from mcp_hub.config.schema.scalars import Text
from mcp_hub.config.schema.section import Section, finding

_MOST = 1000  # entries of one list: each costs time for every name


class HintSettings(Section):
    """A tool's hints by their MCP names."""

    readOnlyHint: bool | None = None
    destructiveHint: bool | None = None
    idempotentHint: bool | None = None
    openWorldHint: bool | None = None


class SelectorSettings(Section):
    """A filter entry: a glob on names, or conditions that must all hold."""

    expected: ClassVar[str] = 'expected a glob in quotes, or a mapping such as {tag: "read"}'

    name: Text | None = None
    tag: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_glob(cls, data: object) -> object:
        if data == "":
            raise finding("out_of_range", "must not be empty")
        if isinstance(data, str):
            return {"name": data}
        if not isinstance(data, dict):
            raise finding("wrong_type", cls.expected)
        if all(value is None for value in data.values()):
            raise finding("missing_key", f"is empty: {cls.expected}")
        return data


class ToolSelector(SelectorSettings, HintSettings):
    """A filter entry for tools, with hints: `{readOnlyHint: true}`."""

    expected: ClassVar[str] = 'expected a glob in quotes, or a mapping such as {tag: "read"} or {readOnlyHint: true}'


class FilterSettings(Section):
    """Passes `allow` (None: all; empty: nothing) without `deny`."""

    allow: Annotated[list[SelectorSettings] | None, Field(max_length=_MOST)] = None
    deny: Annotated[list[SelectorSettings], Field(max_length=_MOST)] = []


class ToolFilterSettings(Section):
    """`FilterSettings` for tools, with hints."""

    allow: Annotated[list[ToolSelector] | None, Field(max_length=_MOST)] = None
    deny: Annotated[list[ToolSelector], Field(max_length=_MOST)] = []
