"""The table of tools, resources, templates and prompts."""

from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_hub.protocol.capabilities import SKILLS
from mcp_hub.types import JsonObject, Kind


class _KindSpec(msgspec.Struct, frozen=True):
    """A kind's list: method, result member, identifying member, capability, and `extension` if needed."""

    list_method: str
    result_key: str
    id_field: str
    capability: str
    extension: str | None = None

    def is_offered(self, capabilities: JsonObject) -> bool:
        """Whether a server with these capabilities has the list."""
        extensions = capabilities.get("extensions")
        has_extension = isinstance(extensions, dict) and self.extension in extensions
        return self.capability in capabilities and (self.extension is None or has_extension)


KINDS: Final[Mapping[Kind, _KindSpec]] = {
    Kind.TOOL: _KindSpec("tools/list", "tools", "name", "tools"),
    Kind.RESOURCE: _KindSpec("resources/list", "resources", "uri", "resources"),
    Kind.TEMPLATE: _KindSpec("resources/templates/list", "resourceTemplates", "uriTemplate", "resources"),
    Kind.PROMPT: _KindSpec("prompts/list", "prompts", "name", "prompts"),
    Kind.SKILL: _KindSpec(
        list_method="skills/list", result_key="skills", id_field="uri", capability="resources", extension=SKILLS
    ),
}
BY_LIST_METHOD: Final[Mapping[str, Kind]] = {spec.list_method: kind for kind, spec in KINDS.items()}
