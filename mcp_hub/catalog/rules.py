"""The settings of lists, as frozen data: of one server, and of one kind of caller."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from mcp_hub.catalog.filters import EVERYTHING, Filter
from mcp_hub.catalog.hints import HintRule
from mcp_hub.catalog.overrides import Override
from mcp_hub.types import Expose


class ServerRules(msgspec.Struct, frozen=True):
    """The settings of one server's listing. No `prefix` means `never`; `always` repeats one that a name has already.

    Filters see the upstream's and the exported names and URIs; `rename` and `overrides` (globs, too) the upstream's.
    `expose` and `compact` None are those of the view. What `yields` takes no name from another server's. `description`
    takes the place of what the server says of itself. `hints` says which hints of its tools are used. Without `apps`
    its tools have no user interfaces.
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
    description: str | None = None
    hints: HintRule = "trust"
    apps: bool = True


class ViewRules(msgspec.Struct, frozen=True):
    """The servers in the order of their lists, and the profile's own filters.

    `tools`, `prompts` and `pinned` see exported names, `resources` both URIs. `shared` claims that no profile, token or
    session influences the answer. `budget` and `max_result_tokens` in tokens, the latter 0 for never.
    `instructions` come before those of the hub.
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
    instructions: str | None = None
