"""The file beside the configuration that the dashboard writes: how single tools are listed, and nothing else."""

from mcp_hub.config.schema.scalars import ExportedName, ServerName, Text
from mcp_hub.config.schema.section import Section

OVERRIDE_KEYS = ("name", "description", "hide", "pin")
"""The keys of `per_tool` that the file may have: none that changes what a call does."""


class OverriddenTool(Section):
    """Keys of `per_tool` that hold in place of those in `servers.yaml`."""

    name: ExportedName | None = None
    description: Text | None = None
    hide: bool | None = None
    pin: bool | None = None


class OverriddenServer(Section):
    """The tools of one server, by its own names for them; globs are taken literally."""

    per_tool: dict[Text, OverriddenTool] = {}


class OverrideSettings(Section):
    """All of `servers.overrides.yaml`."""

    servers: dict[ServerName, OverriddenServer] = {}
