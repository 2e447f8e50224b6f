"""Groups of tools: namespaces of the Responses API."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mcp_hub.formats.errors import FormatRefused
from mcp_hub.formats.providers import FACTS, Format
from mcp_hub.types import JsonObject

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64


class ToolGroup(NamedTuple):
    """A group's name and description."""

    name: str
    description: str


def server_groups(servers: Mapping[str, str | None]) -> dict[str, ToolGroup]:
    """A deterministic group for each server, from descriptions by name."""
    names: dict[str, str] = {}
    for server in servers:
        base = _ODD.sub("_", server)[:_LONGEST]
        name, number = base, 2
        while name in names.values():
            ending = f"_{number}"
            name, number = base[: _LONGEST - len(ending)] + ending, number + 1
        names[server] = name
    return {server: ToolGroup(name, servers[server] or f"Tools of {server}.") for server, name in names.items()}


def check_groups(groups: Mapping[str, ToolGroup], into: Format) -> None:
    """Raises: FormatRefused: `grouping_unsupported`, `unsupported_tool`, `duplicate_name`."""
    facts = FACTS.get(into)
    if facts is None or not facts.groups:
        formats = ", ".join(format_ for format_ in FACTS if FACTS[format_].groups)
        raise FormatRefused("grouping_unsupported", f"{into} does not have groups. Leave them out, or use {formats}.")
    names = [group.name for group in set(groups.values())]
    odd = sorted(name for name in names if facts.names.fullmatch(name) is None)
    if odd:
        raise FormatRefused("unsupported_tool", f"{into} does not take the groups {', '.join(odd)}. Rename them.")
    if len(set(names)) < len(names):
        raise FormatRefused("duplicate_name", "Two groups have the same name. Rename one of them.")


def grouped(tools: Sequence[JsonObject], groups: Mapping[str, ToolGroup]) -> list[JsonObject]:
    """Each group becomes a namespace where its first tool was."""
    entries: list[JsonObject] = []
    inside: dict[ToolGroup, list[JsonObject]] = {}
    for tool in tools:
        group = groups.get(tool["name"])
        if group is None:
            entries.append(tool)
        elif group in inside:
            inside[group].append(tool)
        else:
            inside[group] = [tool]
            entries.append({"type": "namespace", **group._asdict(), "tools": inside[group]})
    return entries
