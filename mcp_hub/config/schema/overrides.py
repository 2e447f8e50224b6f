"""The dashboard's file of tool overrides, and a project's overlay."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from mcp_hub.config.schema.filters import HintSettings
from mcp_hub.config.schema.scalars import ExportedName, ServerName, Text
from mcp_hub.config.schema.section import Section
from mcp_hub.config.schema.tools import check_hints

OVERRIDE_KEYS = ("name", "description", "hide", "pin", "annotations")
"""Keys of `per_tool` that may be overridden; none changes a call."""


class OverriddenTool(Section):
    """`per_tool` keys that replace those in `servers.yaml`."""

    name: ExportedName | None = None
    description: Text | None = None
    hide: bool | None = None
    pin: bool | None = None
    annotations: HintSettings | None = None

    @model_validator(mode="after")
    def _says_it_once(self) -> Self:
        check_hints(self.annotations)
        return self


class OverriddenServer(Section):
    """A server's tools by original name; globs are literal."""

    per_tool: dict[Text, OverriddenTool] = {}


class OverrideSettings(Section):
    """All of `servers.overrides.yaml`."""

    servers: dict[ServerName, OverriddenServer] = {}


_Names = Annotated[list[ServerName], Field(max_length=1000)]


class OverlaySettings(Section):
    """`.mcp-hub.yaml`: servers to turn off or on (`enabled: project`), and a profile."""

    disable: _Names = []
    enable: _Names = []
    profile: Text | None = None
