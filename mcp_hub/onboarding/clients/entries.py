"""The entry of the hub in a client's file: templates with slots, and what fills them."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from mcp_hub.types import JsonObject

HUB: Final = "mcp-hub"
"""The name of the hub's entry in every client."""
TOKEN_VARIABLE: Final = "HUB_TOKEN"


class Slot(Enum):
    """A place in a template."""

    NAME = "name"
    COMMAND = "command"
    ARGS = "args"
    ARGV = "argv"
    """The command and its arguments in one list."""
    URL = "url"
    HEADERS = "headers"
    """Left out with its key if the hub wants no token."""
    TOKEN_VARIABLE = "token variable"
    """Left out as the headers are."""


class Command(msgspec.Struct, frozen=True):
    """A program by its absolute path, and its arguments: the hub as a client starts it."""

    program: str
    args: tuple[str, ...]


class Endpoint(msgspec.Struct, frozen=True):
    """A hub that serves HTTP. `token`: how the client writes the variable with the token, if the hub wants one."""

    url: str
    token: str | None = None


def filled(template: Mapping[str, object], source: Command | Endpoint, name: str = HUB) -> JsonObject:
    """The entry of this name. Slots that the source has nothing for are left out."""
    values: dict[Slot, object] = {Slot.NAME: name}
    if isinstance(source, Command):
        args = list(source.args)
        values |= {Slot.COMMAND: source.program, Slot.ARGS: args, Slot.ARGV: [source.program, *args]}
    else:
        values[Slot.URL] = source.url
        if source.token is not None:
            values[Slot.HEADERS] = {"Authorization": f"Bearer {source.token}"}
            values[Slot.TOKEN_VARIABLE] = TOKEN_VARIABLE
    return _filled(template, values)


def _filled(template: Mapping[str, object], values: Mapping[Slot, object]) -> JsonObject:
    done: JsonObject = {}
    for key, part in template.items():
        if isinstance(part, Slot):
            if part in values:
                done[key] = values[part]
        else:
            done[key] = _filled(part, values) if isinstance(part, Mapping) else part
    return done
