"""`servers.overrides.yaml`: found beside the configuration, checked, and laid over its `per_tool`.

And `.mcp-hub.yaml` in the root of a project, whoever wrote it: it holds names of what the user has, and nothing else.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from mcp_hub.config.findings import Findings, quoted
from mcp_hub.config.load.check import finding_of
from mcp_hub.config.load.locate import read_document
from mcp_hub.config.load.texts import read_bytes, read_text_file
from mcp_hub.config.schema.overrides import OverlaySettings, OverriddenTool, OverrideSettings
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.schema.tools import ToolSettings
from mcp_hub.config.trust import is_of_project, problem_of_config
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.globs import first_match
from mcp_hub.types import FileStamp

_Kind = TypeVar("_Kind", OverrideSettings, OverlaySettings)
LARGEST: Final = 256 << 10
"""Bytes of the file."""
MOST_TOOLS: Final = 2000
"""Tools in the file."""
OVERLAY: Final = ".mcp-hub.yaml"
LARGEST_OVERLAY: Final = 64 << 10
"""Bytes of it."""


def overrides_of(config: Path) -> Path:
    """The place of the overrides of a configuration: `servers.overrides.yaml` beside `servers.yaml`."""
    return config.with_name(f"{config.stem}.overrides.yaml")


def read_overrides(place: Path, env: Mapping[str, str]) -> tuple[OverrideSettings, FileStamp] | tuple[None, None]:
    """The overrides and the version of their file; None without a file. Raises `ConfigError` with every finding."""
    try:
        content, state = read_bytes(place, LARGEST, create="The dashboard writes it.")
    except ConfigError as error:
        if error.code == "config_not_found":
            return None, None
        raise
    if (problem := problem_of_config(state, env, path=place)) is not None:
        raise ConfigError(ConfigFinding("config_untrusted", problem, str(place)))
    return parse_overrides(content.decode("utf-8", "replace"), str(place)), FileStamp.of(state)


def parse_overrides(text: str, name: str) -> OverrideSettings:
    """The overrides in a text. Raises `ConfigError`."""
    found = _validated(OverrideSettings, text, name)
    if (count := sum(len(own.per_tool) for own in found.servers.values())) > MOST_TOOLS:
        raise ConfigError(ConfigFinding("config_too_large", f"{count} tools, at most {MOST_TOOLS}", name))
    return found


def read_overlay(project: Path) -> OverlaySettings | None:
    """The overlay of a project; None without one. Nothing in it is looked up. Raises `ConfigError`."""
    place = project / OVERLAY
    try:
        text, found = read_text_file(place, LARGEST_OVERLAY, create="It is the project's.")
    except ConfigError as error:
        if error.code == "config_not_found":
            return None
        raise
    if not is_of_project(found, str(project)):
        said = "belongs to another user, and the folder does not. Remove it, or change its owner (chown)"
        raise ConfigError(ConfigFinding("config_untrusted", said, str(place)))
    return _validated(OverlaySettings, text, str(place))


def _validated(kind: type[_Kind], text: str, name: str) -> _Kind:
    document = read_document(text, name)
    report = Findings(name, document.lines, errors=list(document.findings))
    try:
        found = kind.model_validate({} if document.data is None else document.data)
    except ValidationError as invalid:
        report.errors.extend(
            finding_of(error, kind) for error in invalid.errors(include_url=False, include_input=False)
        )
        raise report.failure() from None
    if report.errors:
        raise report.failure()
    return found


def overlaid(settings: Settings, overrides: OverrideSettings, report: Findings) -> Settings:
    """The settings with the overrides of their servers; what does not fit is in `report`."""
    servers = dict(settings.servers)
    for name, own in overrides.servers.items():
        if name not in servers:
            report.warn(("servers", name), "unknown_server", f"there is no server {quoted(name)} any more")
            continue
        servers[name] = _server(servers[name], own.per_tool)
        given = [*servers[name].rename.values(), *(one.name for one in servers[name].per_tool.values() if one.name)]
        if twice := next((text for text, count in Counter(given).items() if count > 1), None):
            report.error(("servers", name), "duplicate_name", f"two tools are given the name {quoted(twice)}")
    return settings.model_copy(update={"servers": servers})


def _server(server: ServerSettings, tools: Mapping[str, OverriddenTool]) -> ServerSettings:
    """Each tool keeps what the entry that decided so far says of other keys."""
    per_tool = {}
    for tool, own in tools.items():
        pattern = first_match(tool, server.per_tool)
        base = ToolSettings() if pattern is None else server.per_tool[pattern]
        changes = {key: value for key, value in own if value is not None}
        per_tool[tool] = base.model_copy(update=changes)
    rename = {tool: name for tool, name in server.rename.items() if tool not in tools or tools[tool].name is None}
    others = {pattern: own for pattern, own in server.per_tool.items() if pattern not in per_tool}
    return server.model_copy(update={"per_tool": {**per_tool, **others}, "rename": rename})
