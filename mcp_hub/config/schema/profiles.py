"""One entry under `profiles`: a named narrower view of the hub."""

from mcp_hub.config.schema.filters import FilterSettings, ToolFilterSettings
from mcp_hub.config.schema.scalars import Amount, Expose, Globs, Text
from mcp_hub.config.schema.section import Section


class ProfileSettings(Section):
    """A named narrower view: only these servers (None = all), with filters besides those of the servers.

    Filters see exported names and URIs, and the servers' own URIs. `expose`, `budget`, `compact`, `pinned` and
    `max_result_tokens` left out are the hub's. docs/profiles.md says how clients get a profile.
    """

    servers: list[Text] | None = None
    tools: ToolFilterSettings = ToolFilterSettings()
    resources: FilterSettings = FilterSettings()
    prompts: FilterSettings = FilterSettings()
    expose: Expose | None = None
    budget: Amount | None = None
    compact: bool | None = None
    pinned: Globs | None = None
    max_result_tokens: Amount | None = None
