"""All of `servers.yaml` after interpolation.

Durations are float seconds and sizes int bytes once validated. Messages never repeat a value. References
between sections (profiles to servers, tokens to profiles) are checked by `load`, which knows the lines. The sections
have modules of their own: `hub`, `servers` and `tools`, `filters`, `profiles`, `defaults`, `clients`.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Self

from mcp_hub.config.schema.clients import ClientTable
from mcp_hub.config.schema.defaults import Defaults
from mcp_hub.config.schema.hub import HubSettings
from mcp_hub.config.schema.profiles import ProfileSettings
from mcp_hub.config.schema.scalars import ServerName, Text
from mcp_hub.config.schema.section import Section
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.tools import ToolRules, rules_of


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

    @cached_property
    def tool_rules(self) -> Callable[[str, str], ToolRules]:
        """The rules for calls of a tool, by its server and the server's own name for it; fast enough for each call.

        A server that the file does not name, such as one of virtual tools, has the defaults.
        """
        return lru_cache(maxsize=4096)(self._find_tool_rules)

    def _find_tool_rules(self, server: str, tool: str) -> ToolRules:
        if server not in self.servers:
            return rules_of(tool, {}, self.defaults)
        return rules_of(tool, self.servers[server].per_tool, self.effective(server))

    @cached_property
    def client_table(self) -> ClientTable:
        """The entries of all kinds of clients, built-in ones included."""
        return ClientTable(self.hub.clients)

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """A copy with other sections, without cached answers about the old ones."""
        copied = super().model_copy(update=update, deep=deep)
        for derived in ("tool_rules", "client_table"):
            copied.__dict__.pop(derived, None)
        return copied
