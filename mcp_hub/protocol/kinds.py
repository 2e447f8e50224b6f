"""The table of tools, resources, templates, prompts, skills and event types."""

from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_hub.protocol.capabilities import EVENTS, SKILLS
from mcp_hub.types import JsonObject, Kind


class _KindSpec(msgspec.Struct, frozen=True):
    """A kind's list: method, result member, identifying member, capability, and its extension.

    `extension` is needed, too; `instead` stands for the capability.
    """

    list_method: str
    result_key: str
    id_field: str
    capability: str
    extension: str | None = None
    instead: str | None = None

    def is_offered(self, capabilities: JsonObject) -> bool:
        """Whether a server with these capabilities has the list."""
        extensions = capabilities.get("extensions")
        declared = extensions if isinstance(extensions, dict) else {}
        if self.instead is not None and self.instead in declared:
            return True
        return self.capability in capabilities and (self.extension is None or self.extension in declared)


KINDS: Final[Mapping[Kind, _KindSpec]] = {
    Kind.TOOL: _KindSpec("tools/list", "tools", "name", "tools"),
    Kind.RESOURCE: _KindSpec("resources/list", "resources", "uri", "resources"),
    Kind.TEMPLATE: _KindSpec("resources/templates/list", "resourceTemplates", "uriTemplate", "resources"),
    Kind.PROMPT: _KindSpec("prompts/list", "prompts", "name", "prompts"),
    Kind.SKILL: _KindSpec(
        list_method="skills/list", result_key="skills", id_field="uri", capability="resources", extension=SKILLS
    ),
    Kind.EVENT: _KindSpec("events/list", "events", "name", "events", instead=EVENTS),
}
BY_LIST_METHOD: Final[Mapping[str, Kind]] = {spec.list_method: kind for kind, spec in KINDS.items()}
