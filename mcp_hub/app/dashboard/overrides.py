"""Writes `servers.overrides.yaml`, and restores it if the hub cannot use it."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
import yaml

from mcp_hub.config.load.overrides import LARGEST, MOST_TOOLS, parse_overrides, read_overrides
from mcp_hub.config.schema.tools import OVERRIDE_KEYS, OverrideSettings
from mcp_hub.config.trust import overrides_of
from mcp_hub.errors import ConfigError
from mcp_hub.files import read_file
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.masking import visible
from mcp_hub.protocol.rest.overview import ToolOverride
from mcp_hub.types import JsonObject

_HEAD: Final = (
    "# Written by the dashboard of mcp-hub over servers.yaml. These keys of tools are read, and no others:\n"
    f"# {', '.join(OVERRIDE_KEYS)}\n"
)

Changes = dict[str, dict[str, ToolOverride]]
"""By server and original tool name."""
Overrides = dict[str, dict[str, JsonObject]]


def check_size(count: int, limit: int, unit: str) -> None:
    """Raises `Problem` 413 above the limit."""
    if count > limit:
        message = f"the overrides would have {count} {unit}, at most {limit}. Take some back first."
        raise Problem(413, "overrides_too_large", message)


def _written(overrides: JsonObject) -> str:
    text: str = yaml.safe_dump(overrides, sort_keys=False, allow_unicode=True)
    if visible(text) != text:
        text = yaml.safe_dump(overrides, sort_keys=False)
    return _HEAD + text


class OverridesFile(msgspec.Struct):
    """The overrides beside the configuration. `reload` raises `Problem` 422."""

    config: Path
    reload: Callable[[], Awaitable[object]]
    _turn: anyio.Lock = msgspec.field(default_factory=anyio.Lock)

    @property
    def place(self) -> Path:
        return overrides_of(self.config)

    def read(self) -> Overrides:
        """The overrides by server and tool; blocks. Raises `Problem` 409 for an invalid file."""
        try:
            overrides = read_overrides(self.place, os.environ)[0] or OverrideSettings()
        except ConfigError as error:
            raise Problem(409, "invalid_configuration", str(error)) from None
        return {
            server: {
                tool: keys
                for tool, tool_settings in server_settings.per_tool.items()
                if (keys := tool_settings.model_dump(exclude_none=True))
            }
            for server, server_settings in overrides.servers.items()
        }

    async def write(self, changes: Changes) -> None:
        """Changes and reloads the file. Raises `Problem`, with the file restored."""
        async with self._turn:
            before = await anyio.to_thread.run_sync(self._put, changes)
            try:
                await self.reload()
            except Problem:
                await anyio.to_thread.run_sync(self._replace, before)
                raise

    def _put(self, changes: Changes) -> bytes | None:
        merged = self.read()
        for server, tools in changes.items():
            for tool, change in tools.items():
                tool_settings = {**merged.get(server, {}).get(tool, {}), **msgspec.to_builtins(change)}
                merged.setdefault(server, {})[tool] = {
                    key: value for key, value in tool_settings.items() if value is not None
                }
        shaped = {
            server: {"per_tool": remaining}
            for server, tools in merged.items()
            if (remaining := {tool: keys for tool, keys in tools.items() if keys})
        }
        check_size(sum(len(server["per_tool"]) for server in shaped.values()), MOST_TOOLS, "tools")
        text = _written({"servers": shaped}).encode()
        check_size(len(text), LARGEST, "bytes")
        try:
            parse_overrides(text.decode(), str(self.place))
        except ConfigError as error:
            raise Problem(422, "invalid_configuration", str(error)) from None
        try:
            before = read_file(self.place, LARGEST).data
        except FileNotFoundError:
            before = None
        except OSError as problem:
            message = f"{self.place} cannot be read: {problem.strerror}. Check what it is."
            raise Problem(503, "overrides_unwritable", message) from None
        self._replace(text)
        return before

    def _replace(self, text: bytes | None) -> None:
        """None removes the file. Raises `Problem` 503."""
        fresh = self.place.with_suffix(f".{os.getpid()}.new")
        try:
            if text is None:
                self.place.unlink(missing_ok=True)
                return
            fresh.unlink(missing_ok=True)
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(text)
            fresh.replace(self.place)
        except OSError as problem:
            message = f"{self.place} cannot be written: {problem.strerror}. Check the permissions of its folder."
            raise Problem(503, "overrides_unwritable", message) from None
