"""The table that lets tools, resources, templates and prompts share one implementation."""

from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_hub.types import Kind


class KindSpec(msgspec.Struct, frozen=True):
    """The listing of one kind: method, member of the result, identifying member, capability that offers it."""

    list_method: str
    result_key: str
    id_field: str
    capability: str


KINDS: Final[Mapping[Kind, KindSpec]] = {
    Kind.TOOL: KindSpec("tools/list", "tools", "name", "tools"),
    Kind.RESOURCE: KindSpec("resources/list", "resources", "uri", "resources"),
    Kind.TEMPLATE: KindSpec("resources/templates/list", "resourceTemplates", "uriTemplate", "resources"),
    Kind.PROMPT: KindSpec("prompts/list", "prompts", "name", "prompts"),
}
BY_LIST_METHOD: Final[Mapping[str, Kind]] = {spec.list_method: kind for kind, spec in KINDS.items()}
