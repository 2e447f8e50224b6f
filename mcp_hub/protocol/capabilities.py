"""Client capabilities: comparison and relay. The table of tools, resources, templates, prompts, skills and event types.

Source: specification 2025-11-25, basic/lifecycle "Capability Negotiation"; 2026-07-28, schema `ClientCapabilities`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from mcp_hub.types import Era, JsonObject, Kind

STREAMS: Final = "dev.mcp-hub/streams"
"""The extension of docs/specification/streams.md: partial content and cursors in progress notifications."""

SUPERSET: Final[JsonObject] = {
    "roots": {},
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
}
"""The capabilities for handshake servers of any version: all that some caller may be able to answer.

Each question is checked against its own caller.
"""

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension by which a modern server may answer a call with a task; the hub serves it in the modern era only."""

SKILLS: Final = "io.modelcontextprotocol/skills"
"""The extension for skills (SEP-2640); the hub serves it in the modern era only."""

EVENTS: Final = "io.modelcontextprotocol/events"
"""The extension for subscriptions to what happens at servers (SEP-3415)."""

APPS: Final = "io.modelcontextprotocol/ui"
"""The extension by which tools have user interfaces (MCP Apps, specification of 2026-01-26)."""
APP_TYPE: Final = "text/html;profile=mcp-app"
"""The media type of an app, which a client has to name in its settings of the extension."""
APP_SETTINGS: Final[JsonObject] = {"mimeTypes": [APP_TYPE]}


WITHOUT_APPS: Final[Mapping[Era, JsonObject]] = MappingProxyType(
    {
        Era.HANDSHAKE: {
            **SUPERSET,
            "roots": {"listChanged": True},
            "experimental": {STREAMS: {}},
            "extensions": {STREAMS: {}},
        },
        Era.MODERN: {"extensions": {TASKS: {}, STREAMS: {}, SKILLS: {}, EVENTS: {}}},
    }
)
"""Capabilities that the hub declares to servers of an era."""
WITH_APPS: Final[Mapping[Era, JsonObject]] = MappingProxyType(
    {
        Era.HANDSHAKE: {**WITHOUT_APPS[Era.HANDSHAKE], "extensions": {STREAMS: {}, APPS: APP_SETTINGS}},
        Era.MODERN: {"extensions": {**WITHOUT_APPS[Era.MODERN]["extensions"], APPS: APP_SETTINGS}},
    }
)
"""Servers ask whether their client shows apps before they offer any, and one connection serves all clients."""

MAX_RELAYED: Final = 8192
"""Bytes of a client's capabilities that travel with each of its calls; the longest real ones have some hundreds."""

_ONE_HOP: Final = frozenset({"extensions", "experimental", "tasks"})
"""Agreed between two neighbours; what a client agreed on with the hub says nothing of the hub and its upstream."""


def missing(required: Mapping[str, object], declared: Mapping[str, object]) -> str | None:
    """The first undeclared capability, such as `elicitation.url`; None if all are declared.

    Elicitation without a mode means forms (2025-11-25, client/elicitation "Capabilities").
    """
    for name, required_value in required.items():
        if required_value is None:
            continue
        has = declared.get(name)
        if not isinstance(has, dict):
            return name
        if name == "elicitation" and "url" not in has:
            has = {"form": {}, **has}
        parts: JsonObject = required_value if isinstance(required_value, dict) else {}
        for part, value in parts.items():
            if value is not None and has.get(part) in (None, False):
                return f"{name}.{part}"
    return None


def extensions_in(capabilities: JsonObject) -> JsonObject:
    """The declared extensions; a value of another form, such as the `[]` of PHP, declares none."""
    extensions = capabilities.get("extensions")
    return extensions if isinstance(extensions, dict) else {}


def relayed(declared: JsonObject) -> JsonObject:
    """The caller's capabilities for an upstream; only those of MCP if too large."""
    passed_on = {name: value for name, value in declared.items() if name not in _ONE_HOP}
    if len(msgspec.json.encode(passed_on)) <= MAX_RELAYED:
        return passed_on
    return {
        name: _understood(passed_on[name], parts)
        for name, parts in SUPERSET.items()
        if isinstance(passed_on.get(name), dict)
    }


def to_modern(declared: JsonObject, hub: Mapping[Era, JsonObject] = WITH_APPS) -> JsonObject:
    return {**relayed(declared), **hub[Era.MODERN]}


def _understood(value: JsonObject, parts: JsonObject) -> JsonObject:
    return {part: {} for part in parts if isinstance(value.get(part), dict)}


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
        declared = extensions_in(capabilities)
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
