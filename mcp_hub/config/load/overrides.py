"""Reads `servers.overrides.yaml`, and a project's `.mcp-hub.yaml`, which can only name what the user has."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from mcp_hub.config.findings import Findings, quoted
from mcp_hub.config.load.check import finding_of
from mcp_hub.config.load.locate import read_document
from mcp_hub.config.load.texts import read_bytes, read_text_file
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.schema.tools import OverlaySettings, OverriddenTool, OverrideSettings, ToolSettings
from mcp_hub.config.trust import OVERLAY, is_of_project, problem_of_config
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.globs import first_match
from mcp_hub.types import FileStamp

_Kind = TypeVar("_Kind", OverrideSettings, OverlaySettings)
LARGEST: Final = 256 << 10
"""Bytes of the file."""
MOST_TOOLS: Final = 2000
"""Tools in the file."""
LARGEST_OVERLAY: Final = 64 << 10
"""Bytes of an overlay."""


def read_overrides(path: Path, env: Mapping[str, str]) -> tuple[OverrideSettings, FileStamp] | tuple[None, None]:
    """The overrides and their file's version, if any. Raises `ConfigError`."""
    try:
        content, state = read_bytes(path, LARGEST, create="The dashboard writes it.")
    except ConfigError as error:
        if error.code == "config_not_found":
            return None, None
        raise
    if (problem := problem_of_config(state, env, path=path)) is not None:
        raise ConfigError(ConfigFinding("config_untrusted", problem, str(path)))
    return parse_overrides(content.decode("utf-8", "replace"), str(path)), FileStamp.of(state)


def parse_overrides(text: str, name: str) -> OverrideSettings:
    """The overrides in a text. Raises `ConfigError`."""
    overrides = _validated(OverrideSettings, text, name)
    if (count := sum(len(server.per_tool) for server in overrides.servers.values())) > MOST_TOOLS:
        raise ConfigError(ConfigFinding("config_too_large", f"{count} tools, at most {MOST_TOOLS}", name))
    return overrides


def read_overlay(project: Path) -> OverlaySettings | None:
    """A project's overlay, if any; `${…}` stays. Raises `ConfigError`."""
    path = project / OVERLAY
    try:
        text, stamp = read_text_file(path, LARGEST_OVERLAY, create="It is the project's.")
    except ConfigError as error:
        if error.code == "config_not_found":
            return None
        raise
    if not is_of_project(stamp, str(project)):
        message = "belongs to another user, and the folder does not. Remove it, or change its owner (chown)"
        raise ConfigError(ConfigFinding("config_untrusted", message, str(path)))
    return _validated(OverlaySettings, text, str(path))


def _validated(kind: type[_Kind], text: str, name: str) -> _Kind:
    document = read_document(text, name)
    report = Findings(name, document.lines, errors=list(document.findings))
    try:
        settings = kind.model_validate({} if document.data is None else document.data)
    except ValidationError as invalid:
        report.errors.extend(
            finding_of(error, kind) for error in invalid.errors(include_url=False, include_input=False)
        )
        raise report.failure() from None
    if report.errors:
        raise report.failure()
    return settings


def overlaid(settings: Settings, overrides: OverrideSettings, report: Findings) -> Settings:
    """The settings with overrides; `report` gets what does not fit."""
    servers = dict(settings.servers)
    for name, override in overrides.servers.items():
        if name not in servers:
            report.warn(("servers", name), "unknown_server", f"there is no server {quoted(name)} any more")
            continue
        servers[name] = _server(servers[name], override.per_tool)
        new_names = [
            *servers[name].rename.values(),
            *(tool.name for tool in servers[name].per_tool.values() if tool.name),
        ]
        if twice := next((text for text, count in Counter(new_names).items() if count > 1), None):
            report.error(("servers", name), "duplicate_name", f"two tools are given the name {quoted(twice)}")
    return settings.model_copy(update={"servers": servers})


def _server(server: ServerSettings, tools: Mapping[str, OverriddenTool]) -> ServerSettings:
    per_tool = {}
    for tool, override in tools.items():
        pattern = first_match(tool, server.per_tool)
        base = ToolSettings() if pattern is None else server.per_tool[pattern]
        changes = {key: value for key, value in override if value is not None}
        per_tool[tool] = base.model_copy(update=changes)
    rename = {tool: name for tool, name in server.rename.items() if tool not in tools or tools[tool].name is None}
    unchanged = {
        pattern: tool_settings for pattern, tool_settings in server.per_tool.items() if pattern not in per_tool
    }
    return server.model_copy(update={"per_tool": {**per_tool, **unchanged}, "rename": rename})
