"""All of `servers.yaml` after interpolation. `load` checks references between sections."""

import re
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Final, Self

from pydantic import PrivateAttr, model_validator

from mcp_hub.config.findings import DataPath
from mcp_hub.config.schema.clients import ClientTable
from mcp_hub.config.schema.defaults import Defaults
from mcp_hub.config.schema.fields import Amount, CodeRule, Expose, Globs, Section, ServerName, Text, finding
from mcp_hub.config.schema.hub import HubSettings
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.tools import (
    AskSettings,
    ClaimPlaces,
    FilterSettings,
    ToolFilterSettings,
    ToolRules,
    claims_of,
    rules_of,
)
from mcp_hub.types import Cause

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A name that a URL and an identifier of the AI Catalog can have."""


class ProfileSettings(Section):
    """A narrower view: these servers (None: all), with additional filters; other keys default to `hub`.

    `public`: the AI catalog names it.
    """

    servers: list[Text] | None = None
    tools: ToolFilterSettings = ToolFilterSettings.model_construct()
    resources: FilterSettings = FilterSettings.model_construct()
    prompts: FilterSettings = FilterSettings.model_construct()
    events: FilterSettings = FilterSettings.model_construct()
    expose: Expose | None = None
    budget: Amount | None = None
    compact: bool | None = None
    pinned: Globs | None = None
    max_result_tokens: Amount | None = None
    code: CodeRule | None = None
    ask: AskSettings | None = None
    public: bool = False


class Settings(Section):
    """All of `servers.yaml`, validated; `servers` keeps the file's order."""

    hub: HubSettings = HubSettings.model_construct()
    servers: dict[ServerName, ServerSettings] = {}
    defaults: Defaults = Defaults.model_construct()
    profiles: dict[Text, ProfileSettings] = {}
    _causes: dict[str, Cause] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _has_addresses_of_public_profiles(self) -> Self:
        for name in (name for name, profile in self.profiles.items() if profile.public):
            if self.hub.http.public_url is None:
                message = "needs hub.http.public_url, the address that its card names"
                raise finding("missing_key", message, ("profiles", name, "public"))
            if not _PLAIN.fullmatch(name):
                message = "needs a name of at most 64 letters, digits, _ . and -, with a letter or digit first"
                raise finding("invalid_value", message, ("profiles", name, "public"))
        return self

    def failing(self, causes: Mapping[str, Cause]) -> Self:
        """A copy in which these servers, too, cannot start."""
        copied = self.model_copy()
        copied._causes = {**self._causes, **causes}
        return copied

    def failure(self, server: str) -> Cause | None:
        """Why the server cannot start."""
        return self._causes.get(server)

    def effective(self, server: str) -> Defaults:
        """The server's own settings, else the defaults. Raises `KeyError`."""
        settings = self.servers[server]
        values = {key: getattr(settings, key) for key in Defaults.model_fields}
        return self.defaults.model_copy(update={key: value for key, value in values.items() if value is not None})

    @cached_property
    def tool_rules(self) -> Callable[[str, str], ToolRules]:
        """Call rules by server and the server's own tool name; cached."""
        return lru_cache(maxsize=4096)(self._find_tool_rules)

    def _find_tool_rules(self, server: str, tool: str) -> ToolRules:
        if server not in self.servers:  # such as that of virtual tools
            return rules_of(tool, {}, self.defaults)
        return rules_of(tool, self.servers[server].per_tool, self.effective(server))

    @cached_property
    def client_table(self) -> ClientTable:
        return ClientTable(self.hub.clients, self.hub.first_list_wait)

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """A copy without cached values."""
        copied = super().model_copy(update=update, deep=deep)
        for derived in ("tool_rules", "client_table"):
            copied.__dict__.pop(derived, None)
        return copied


def claims_at(settings: Settings) -> ClaimPlaces:
    """The claims of tokens that conditions look at, by place."""
    sections: dict[DataPath, AskSettings | None] = {("hub",): settings.hub.ask}
    sections |= {("profiles", name): profile.ask for name, profile in settings.profiles.items()}
    places: ClaimPlaces = {}
    for path, ask in sections.items():
        places |= claims_of((*path, "ask"), "only_if", None if ask is None else ask.only_if)
    for server, entry in settings.servers.items():
        for pattern, tool in entry.per_tool.items():
            places |= tool.claims(("servers", server, "per_tool", pattern))
    return places
