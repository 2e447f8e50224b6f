"""Filters of a server or profile: entries by name, by tag and, for tools, by the hints in their annotations."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from mcp_hub.config.schema.scalars import Text
from mcp_hub.config.schema.section import Section, finding

_MOST = 1000
"""Entries of one list: each costs time for every name."""


class SelectorSettings(Section):
    """One entry of a filter: a glob on names, or a mapping all of whose keys have to hold.

    `name` and `tag` are globs (`*`, `?`, `[a-z]`; case matters): `{tag: admin}`, `{name: "get_*", tag: read}`. Tags are
    those of the definition (`tags`, `_meta.tags`, `_meta.fastmcp.tags`) and of `per_tool`.
    """

    wanted: ClassVar[str] = 'expected a glob in quotes, or a mapping such as {tag: "read"}'

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
            raise finding("wrong_type", cls.wanted)
        if all(value is None for value in data.values()):
            raise finding("missing_key", f"is empty: {cls.wanted}")
        return data


class ToolSelector(SelectorSettings):
    """The same, for tools, with the hints of their annotations: `{readOnlyHint: true}`, `{destructiveHint: false}`.

    A hint that a tool does not give counts as the specification says: not read-only, destructive unless it is
    read-only, not idempotent unless it is read-only, open to the world.
    """

    wanted: ClassVar[str] = 'expected a glob in quotes, or a mapping such as {tag: "read"} or {readOnlyHint: true}'

    readOnlyHint: bool | None = None
    destructiveHint: bool | None = None
    idempotentHint: bool | None = None
    openWorldHint: bool | None = None


class FilterSettings(Section):
    """Lets everything through by default; with `allow`, only what one of its entries selects (an empty list: nothing).

    `deny` wins over `allow`: what one of its entries selects is not listed, not found and not usable.
    """

    allow: Annotated[list[SelectorSettings] | None, Field(max_length=_MOST)] = None
    deny: Annotated[list[SelectorSettings], Field(max_length=_MOST)] = []


class ToolFilterSettings(Section):
    """As `FilterSettings`, for tools, whose entries can also ask for hints."""

    allow: Annotated[list[ToolSelector] | None, Field(max_length=_MOST)] = None
    deny: Annotated[list[ToolSelector], Field(max_length=_MOST)] = []
