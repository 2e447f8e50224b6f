"""The file beside the configuration that the dashboard writes: how single tools are listed, and nothing else.

And the file in the root of a project, by which it narrows what its clients get.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from mcp_hub.config.schema.filters import HintSettings
from mcp_hub.config.schema.scalars import ExportedName, ServerName, Text
from mcp_hub.config.schema.section import Section
from mcp_hub.config.schema.tools import check_hints

OVERRIDE_KEYS = ("name", "description", "hide", "pin", "annotations")
"""The keys of `per_tool` that the file may have: none that changes what a call does."""


class OverriddenTool(Section):
    """Keys of `per_tool` that hold in place of those in `servers.yaml`."""

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
    """The tools of one server, by its own names for them; globs are taken literally."""

    per_tool: dict[Text, OverriddenTool] = {}


class OverrideSettings(Section):
    """All of `servers.overrides.yaml`."""

    servers: dict[ServerName, OverriddenServer] = {}


_Names = Annotated[list[ServerName], Field(max_length=1000)]


class OverlaySettings(Section):
    """All of `.mcp-hub.yaml`: names of servers to turn off, to turn on (`enabled: project`), and of a profile."""

    disable: _Names = []
    enable: _Names = []
    profile: Text | None = None
