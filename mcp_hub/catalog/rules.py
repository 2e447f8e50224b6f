"""The settings of lists, as frozen data: of one server, and of one kind of caller."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from mcp_hub.catalog.filters import EVERYTHING, Filter
from mcp_hub.catalog.overrides import Override
from mcp_hub.types import Expose


class ServerRules(msgspec.Struct, frozen=True):
    """The settings of one server's listing. No `prefix` means `never`; `rename` maps upstream names.

    `tools` and `prompts` see the upstream's and the exported name; `resources` sees URIs and URI templates.
    `overrides` are those of tools, by upstream name or glob. `expose` and `compact` None are those of the view. Of one
    that `yields` nothing takes a name from another server's: what clients of the hub list themselves.
    """

    prefix: str | None = None
    always: bool = False
    rename: Mapping[str, str] = msgspec.field(default_factory=dict)
    tools: Filter = EVERYTHING
    resources: Filter = EVERYTHING
    prompts: Filter = EVERYTHING
    overrides: Mapping[str, Override] = msgspec.field(default_factory=dict)
    expose: Literal["full", "search"] | None = None
    compact: bool | None = None
    yields: bool = False


class ViewRules(msgspec.Struct, frozen=True):
    """The servers in the order of their lists, and the profile's own filters.

    `tools` and `prompts` see exported names, `resources` URIs and URI templates, the upstream's and the exported ones.
    `shared` is a claim that no profile, token or session influences the answer. `pinned` are globs on exported names of
    tools. `budget` and `max_result_tokens` in tokens, the latter 0 for never.
    """

    servers: Mapping[str, ServerRules]
    tools: Filter = EVERYTHING
    max_name_length: int = 48
    shared: bool = True
    resources: Filter = EVERYTHING
    prompts: Filter = EVERYTHING
    pinned: tuple[str, ...] = ()
    expose: Expose = "full"
    budget: int = 8000
    compact: bool = False
    max_result_tokens: int = 8000
