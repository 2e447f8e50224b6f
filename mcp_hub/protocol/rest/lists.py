"""Resources, prompts and tool search over REST."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from mcp_hub.protocol.rest.calls import JsonObjectText
from mcp_hub.types import JsonObject


class ResourceList(Struct, rename="camel"):
    """The caller's resources and templates as MCP defines them."""

    resources: list[JsonObjectText]
    resource_templates: list[JsonObjectText]


class PromptList(Struct):
    """The caller's prompts as MCP defines them."""

    prompts: list[JsonObjectText]


class SearchBody(Struct, forbid_unknown_fields=True):
    """A search for tools by `query`, or by a model's `call` in the request's format.

    `tools` and `server` restrict it; `limit` is at most 50.
    """

    query: str | None = None
    call: JsonObject | None = None
    tools: list[str] | None = None
    server: str | None = None
    limit: Annotated[int, Meta(ge=1)] = 8
    detail: str = "brief"


class FoundTool(Struct, omit_defaults=True):
    """A match: `name` to call, first line of the `description`, near-duplicates in `also`.

    `parts` add up to `score`; `definition` on request.
    """

    name: str
    server: str
    description: str
    score: float
    parts: Mapping[str, float]
    also: list[str] = []
    definition: JsonObjectText | UnsetType = UNSET


class FoundTools(Struct):
    """Matches, best first. `weak`: none fits well. `starting` servers are missing."""

    query: str
    weak: bool
    hits: list[FoundTool]
    starting: list[str]


class LossInfo(Struct):
    """A part of a schema that a format lacks: its path, its fate, and its text."""

    path: str
    kind: str
    what: str


class ToolLosses(Struct):
    """Losses of an export by tool; tools without any are omitted."""

    format: str
    losses: dict[str, list[LossInfo]]
