"""All of `servers.yaml` after interpolation.

Durations are float seconds and sizes int bytes once validated. Messages never repeat a value. References
between sections (profiles to servers, tokens to profiles) are checked by `load`, which knows the lines. The sections
have modules of their own: `hub`, `servers` and `tools`, `filters`, `profiles`, `defaults`, `clients`.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Self

from mcp_hub.config.schema.clients import ClientRules, ClientSettings, ClientTable
from mcp_hub.config.schema.defaults import Defaults, RestartSettings
from mcp_hub.config.schema.filters import FilterSettings, SelectorSettings, ToolFilterSettings, ToolSelector
from mcp_hub.config.schema.hub import (
    HttpSettings,
    HubSettings,
    LimitSettings,
    LogSettings,
    StoreSettings,
    TokenSettings,
)
from mcp_hub.config.schema.profiles import ProfileSettings
from mcp_hub.config.schema.scalars import ServerName, Text
from mcp_hub.config.schema.section import Section
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.tools import ToolRules, ToolSettings, rules_of

__all__ = [
    "ClientRules",
    "ClientSettings",
    "Defaults",
    "FilterSettings",
    "HttpSettings",
    "HubSettings",
    "LimitSettings",
    "LogSettings",
    "ProfileSettings",
    "RestartSettings",
    "SelectorSettings",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "TokenSettings",
    "ToolFilterSettings",
    "ToolRules",
    "ToolSelector",
    "ToolSettings",
]


class Settings(Section):
    """All of `servers.yaml`, validated; `servers` keeps the file's order."""

    hub: HubSettings = HubSettings()
    servers: dict[ServerName, ServerSettings] = {}
    defaults: Defaults = Defaults()
    profiles: dict[Text, ProfileSettings] = {}

    def effective(self, server: str) -> Defaults:
        """The settings of `server`: its own keys, else the defaults. Raises `KeyError`."""
        settings = self.servers[server]
        own = {key: getattr(settings, key) for key in Defaults.model_fields}
        return self.defaults.model_copy(update={key: value for key, value in own.items() if value is not None})

    def tool_rules(self, server: str, tool: str) -> ToolRules:
        """The rules for calls of `tool`, by the server's own name for it. Fast enough to be asked for each call.

        A server that the file does not name, such as one of virtual tools, has the defaults.
        """
        return self._tool_rules(server, tool)

    def client(self, client_name: str | None, chosen: str | None) -> ClientRules:
        """The rules for a client that calls itself `client_name`; `chosen` (`serve --client`) goes before that name.

        Raises: ConfigError for a `chosen` that is unknown.
        """
        return self._clients.rules(client_name, chosen)

    def soft_deadline(self, client_name: str | None, chosen: str | None, *, known_only: bool = False) -> float | None:
        """After how many seconds a call of this client is answered though it still runs; None is never.

        `chosen` (`serve --client`) goes before the name that the client gives itself. `known_only`: the entry for
        unknown clients holds for nobody. Raises: ConfigError for a `chosen` that is unknown.
        """
        return self._clients.rules(client_name, chosen, known_only=known_only).soft_deadline

    def require_client(self, chosen: str) -> None:
        """Raises: ConfigError that names the known clients if `chosen` is none of them."""
        self._clients.require(chosen)

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """A copy with other sections, without cached answers about the old ones."""
        copied = super().model_copy(update=update, deep=deep)
        for derived in ("_tool_rules", "_clients"):
            copied.__dict__.pop(derived, None)
        return copied

    @cached_property
    def _tool_rules(self) -> Callable[[str, str], ToolRules]:
        return lru_cache(maxsize=4096)(self._find_tool_rules)

    def _find_tool_rules(self, server: str, tool: str) -> ToolRules:
        if server not in self.servers:
            return rules_of(tool, {}, self.defaults)
        return rules_of(tool, self.servers[server].per_tool, self.effective(server))

    @cached_property
    def _clients(self) -> ClientTable:
        return ClientTable(self.hub.clients)
