"""Context tokens of tools, for REST and `mcp-hub tokens --json`."""

from operator import add

import msgspec
from msgspec.structs import astuple

from mcp_hub.types import Expose, Mode


class Tokens(msgspec.Struct, frozen=True):
    """Tokens of whole definitions, of ones without output schemas, of one-line signatures, of names."""

    full: int = 0
    compact: int = 0
    signature: int = 0
    names: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(*map(add, astuple(self), astuple(other)))


class ToolTokens(msgspec.Struct, frozen=True):
    """A tool; `tokens.names` is its share of its server's line of names."""

    name: str
    server: str
    tokens: Tokens


class ServerTokens(msgspec.Struct, frozen=True):
    """All tools of a server."""

    server: str
    tools: int
    tokens: Tokens


class ModeTokens(msgspec.Struct, frozen=True):
    """A list sent under `expose`, which gives `mode`; `listed` includes the hub's tools."""

    expose: Expose
    mode: Mode
    listed: int
    tokens: int


class TokenAccount(msgspec.Struct, frozen=True):
    """The estimated cost of a profile's tools for one kind of client.

    `modes` are all ways to list them, `current` the one in use. `auto` uses `budget` (tokens) and `max_tools`; a client
    that `defers` loads definitions on demand. Tools of `starting` servers are unknown. `instructions` are sent besides.
    `apps` is `current` for clients that show apps; None if equal.
    """

    client: str
    profile: str | None
    current: ModeTokens
    modes: tuple[ModeTokens, ...]
    budget: int
    max_tools: int | None
    defers: bool
    starting: tuple[str, ...]
    total: Tokens
    servers: tuple[ServerTokens, ...]
    heaviest: tuple[str, ...]
    tools: tuple[ToolTokens, ...]
    instructions: int = 0
    apps: ModeTokens | None = None
