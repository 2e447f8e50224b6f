"""The servers in a client's file, as the client has them. Pure; nothing is resolved, translated or started."""

from collections.abc import Mapping

from mcp_hub.config.findings import Findings
from mcp_hub.config.load import foreign
from mcp_hub.config.load.locate import (
    half_findings,
    is_deep,
)
from mcp_hub.config.quantities import as_flag
from mcp_hub.edit.entries import held_at, read_data
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.onboarding.clients.entries import HUB
from mcp_hub.onboarding.clients.model import Layout, Place
from mcp_hub.types import JsonObject


def layout_of(data: object, place: Place) -> Layout:
    """The layout of this file: the first layout whose key it has, else the last."""
    *others, last = place.layouts
    return next((layout for layout in others if _holds_servers(data, layout)), last)


def servers_of(data: object, place: Place) -> dict[str, JsonObject]:
    """The servers by name, without the hub's own and without built-in parts of the client; empty if there are none."""
    layout = layout_of(data, place)
    held = held_at(data, layout.key)
    if isinstance(held, list):
        named = {str(one.get("name")): one for one in held if isinstance(one, dict)}
    else:
        named = held if isinstance(held, dict) else {}
    return {
        name: one
        for name, one in named.items()
        if isinstance(one, dict) and not foreign.is_built_in(one) and not is_hub(name, one)
    }


def check_texts(servers: Mapping[str, object], text: str, key: tuple[str, ...], name: str) -> None:
    """Raises `ConfigError` if servers of the file are nested too deep, or hold half of a character.

    `text` is that of the file, `key` where it has its servers.
    """
    if is_deep(servers):
        raise ConfigError(ConfigFinding("too_deep", "its servers are nested too deep. Make them flatter.", name))
    report = Findings(name, errors=half_findings(servers, key, text))
    if report.errors:
        raise report.failure()


def is_hub(name: str, entry: Mapping[str, object]) -> bool:
    """Whether an entry is this hub, by its name or by the program that it starts."""
    return name == HUB or foreign.is_hub(entry)


def is_disabled(entry: Mapping[str, object]) -> bool:
    """Whether an entry says that the client does not start it."""
    return as_flag(entry.get("disabled")) is True or as_flag(entry.get("enabled")) is False


def read_servers(text: str, name: str, place: Place) -> dict[str, JsonObject]:
    """`servers_of` the text of a file. Raises `ConfigError`."""
    return servers_of(read_data(text, name), place)


def _holds_servers(data: object, layout: Layout) -> bool:
    """Whether all that is at the key are servers: a server may itself be named as a key is."""
    held = held_at(data, layout.key)
    return isinstance(held, dict) and all(isinstance(one, dict) for one in held.values())
