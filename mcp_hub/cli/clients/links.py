"""Links that install the hub in a client by a click. Pure."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, urlencode

from mcp_hub.cli.clients.entries import HUB, Command
from mcp_hub.types import JsonObject


def install_link(client: str, command: Command) -> str | None:
    """The link of this client; None if it does not have such links."""
    made = _LINKS.get(client)
    return None if made is None else made(command)


def _cursor(command: Command) -> str:
    # https://cursor.com/docs/context/mcp/install-links
    config = {"name": HUB, "config": _base64(_entry(command))}
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode(config)}"


def _vscode(scheme: str) -> Callable[[Command], str]:
    def link(command: Command) -> str:
        return f"{scheme}:mcp/install?{quote(_json({'name': HUB, 'type': 'stdio', **_entry(command)}), safe='')}"

    return link


def _lm_studio(command: Command) -> str:
    return f"lmstudio://add_mcp?{urlencode({'name': HUB, 'config': _base64(_entry(command))})}"


def _goose(command: Command) -> str:
    given = [("cmd", command.program), *(("arg", arg) for arg in command.args)]
    about = [("id", HUB), ("name", HUB), ("description", "All MCP servers behind one"), ("timeout", "3600")]
    return f"goose://extension?{urlencode([*given, *about], quote_via=quote)}"


def _entry(command: Command) -> JsonObject:
    return {"command": command.program, "args": list(command.args)}


def _json(value: JsonObject) -> str:
    return json.dumps(value, separators=(",", ":"))


def _base64(value: JsonObject) -> str:
    return base64.b64encode(_json(value).encode()).decode()


_LINKS: Final[Mapping[str, Callable[[Command], str]]] = {
    "cursor": _cursor,
    "vscode": _vscode("vscode"),
    "vscode-insiders": _vscode("vscode-insiders"),
    "lm-studio": _lm_studio,
    "goose": _goose,
}
LINKED: Final = tuple(_LINKS)
"""The clients that have such links."""
