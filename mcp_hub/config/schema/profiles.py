"""One entry under `profiles`: a named narrower view of the hub."""

from mcp_hub.config.schema.filters import FilterSettings, ToolFilterSettings
from mcp_hub.config.schema.scalars import Amount, Expose, Globs, Text
from mcp_hub.config.schema.section import Section

__all__ = ["ProfileSettings"]


class ProfileSettings(Section):
    """A named narrower view: only these servers (None = all), and what the filters let through of what they offer.

    Filters see what clients see: exported names, and URIs, besides the servers' own URIs. They hold in addition to
    those of the servers. `expose`, `budget`, `compact`, `pinned` and `max_result_tokens` left out are the hub's; a list
    under `pinned` takes the place of the hub's. Clients get a profile by `serve --profile`, by a token that is bound to
    it, or by URL: `/mcp/p/<name>`, `/sse/p/<name>`, `/v1/…?profile=<name>`.
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
