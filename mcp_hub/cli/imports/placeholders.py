"""Values from outside as each client writes them, in our notation: `${VAR}`. Pure."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from mcp_hub.config.load.imported import as_text, mapped
from mcp_hub.config.load.interpolate import is_variable_name
from mcp_hub.types import JsonObject

_ENV: Final = re.compile(r"\$\{env:([A-Za-z_]\w*)\}")
_WHOLE: Final = re.compile(r"\$([A-Z_][A-Z0-9_]*)|%([A-Z_][A-Z0-9_]*)%")
"""A value that is a variable and nothing else, which is meant for one in any client."""
_SHELL: Final = re.compile(r"\$([A-Za-z_]\w*)|%([A-Za-z_]\w*)%")
_SECRETS: Final = re.compile(r"\$\{\{\s*(?:secrets|inputs|env)\.([A-Za-z_]\w*)\s*\}\}")
_BRACES: Final = re.compile(r"\{(env|file):([^{}]+)\}")
_VALUES: Final = ("env", "environment", "envs", "headers", "http_headers")


def _variable(found: re.Match[str]) -> str:
    return f"${{{found[1] or found[2]}}}"


_OWN: Final[Mapping[str, tuple[re.Pattern[str], Callable[[re.Match[str]], str]]]] = {
    **dict.fromkeys(("gemini", "qwen"), (_SHELL, _variable)),
    "continue": (_SECRETS, _variable),
}
"""The notation that a client has besides `${VAR}`, by its name in the table; in others such a text is only a text."""


def in_our_notation(server: JsonObject, client: str, folder: Path | None = None) -> JsonObject:
    """The server of a client with `${VAR}` for each value from outside.

    `folder` is that of the file, if the file is the user's: only then can the server read files (`{file:…}`).
    """
    own = (_BRACES, partial(_of_braces, folder=folder)) if client == "opencode" else _OWN.get(client)

    def translated(text: str) -> str:
        text = text if own is None else own[0].sub(own[1], text)
        return _ENV.sub(_variable, text)

    done = {key: mapped(as_text(value), translated) for key, value in server.items()}
    for key in _VALUES:
        if isinstance(values := done.get(key), dict):
            done[key] = {name: _whole(value) for name, value in values.items()}
    return done


def names_a_file(server: object, client: str) -> bool:
    """Whether a text of the server stands for the content of a file."""
    if isinstance(server, dict | list):
        return any(names_a_file(value, client) for value in (server.values() if isinstance(server, dict) else server))
    return client == "opencode" and isinstance(server, str) and "{file:" in server


def _of_braces(match: re.Match[str], folder: Path | None) -> str:
    kind, text = match[1], match[2]
    if kind == "env":
        return f"${{{text}}}" if is_variable_name(text) else match[0]
    if folder is None:
        return match[0]
    return f"${{file:{text if text.startswith('~') else folder / text}}}"


def _whole(value: object) -> object:
    found = _WHOLE.fullmatch(value) if isinstance(value, str) else None
    return value if found is None else _variable(found)
