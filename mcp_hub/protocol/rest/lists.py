"""Lists over REST besides that of tools, and the search among tools."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from mcp_hub.protocol.rest.calls import JsonObjectText
from mcp_hub.types import JsonObject


class ResourceList(Struct, rename="camel"):
    """Every resource and template that the caller may use, as MCP defines them, under the URIs to read them by."""

    resources: list[JsonObjectText]
    resource_templates: list[JsonObjectText]


class PromptList(Struct):
    """Every prompt that the caller may use, as MCP defines it, under the name to get it by."""

    prompts: list[JsonObjectText]


class SearchBody(Struct, forbid_unknown_fields=True):
    """A search for tools by a `query`, or by the `call` in which a model asks for it, in the format of the request.

    `tools` and `server` restrict it to what the user selected; `limit` is at most 50.
    """

    query: str | None = None
    call: JsonObject | None = None
    tools: list[str] | None = None
    server: str | None = None
    limit: Annotated[int, Meta(ge=1)] = 8
    detail: str = "brief"


class FoundTool(Struct, omit_defaults=True):
    """A tool that fits: `name` to call it by, the first line of its `description`, and near-duplicates in `also`.

    `parts` add up to `score`. The `definition` is there if it was asked for.
    """

    name: str
    server: str
    description: str
    score: float
    parts: Mapping[str, float]
    also: list[str] = []
    definition: JsonObjectText | UnsetType = UNSET


class FoundTools(Struct):
    """The tools that fit a query, the best first. `weak`: none fits well. Tools of `starting` servers are unknown."""

    query: str
    weak: bool
    hits: list[FoundTool]
    starting: list[str]


class LossInfo(Struct):
    """One thing that a format does not carry: where in the schema, what became of it, and what it was."""

    path: str
    kind: str
    what: str


class ToolLosses(Struct):
    """By tool the losses of an export; a tool without one is not named."""

    format: str
    losses: dict[str, list[LossInfo]]
