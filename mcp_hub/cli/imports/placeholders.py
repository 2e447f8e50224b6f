"""Values from outside as each client writes them, in our notation: `${VAR}`. Pure."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from mcp_hub.config.load.imported import as_text, mapped
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


def _of_braces(found: re.Match[str]) -> str:
    return f"${{{found[2]}}}" if found[1] == "env" else f"${{file:{found[2]}}}"


_OWN: Final[Mapping[str, tuple[re.Pattern[str], Callable[[re.Match[str]], str]]]] = {
    **dict.fromkeys(("gemini", "qwen"), (_SHELL, _variable)),
    "continue": (_SECRETS, _variable),
    "opencode": (_BRACES, _of_braces),
}
"""The notation that a client has besides `${VAR}`, by its name in the table; in others such a text is only a text."""


def in_our_notation(server: JsonObject, client: str) -> JsonObject:
    """The server of a client with `${VAR}` for each value from outside."""
    own = _OWN.get(client)

    def translated(text: str) -> str:
        text = text if own is None else own[0].sub(own[1], text)
        return _ENV.sub(_variable, text)

    done = {key: mapped(as_text(value), translated) for key, value in server.items()}
    for key in _VALUES:
        if isinstance(values := done.get(key), dict):
            done[key] = {name: _whole(value) for name, value in values.items()}
    return done


def _whole(value: object) -> object:
    found = _WHOLE.fullmatch(value) if isinstance(value, str) else None
    return value if found is None else _variable(found)
