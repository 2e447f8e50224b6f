"""The tokens that tools cost a model's context, over REST and as `mcp-hub tokens --json` prints it."""

from operator import add

import msgspec
from msgspec.structs import astuple

from mcp_hub.types import Expose, Mode


class Tokens(msgspec.Struct, frozen=True):
    """Tokens of tools: whole definitions; compacted ones, which have no output schemas; one-line signatures; names."""

    full: int = 0
    compact: int = 0
    signature: int = 0
    names: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(*map(add, astuple(self), astuple(other)))


class ToolTokens(msgspec.Struct, frozen=True):
    """One tool. `tokens.names` is its share of the line that its server has in a list of names."""

    name: str
    server: str
    tokens: Tokens


class ServerTokens(msgspec.Struct, frozen=True):
    """All tools of a server that has any."""

    server: str
    tools: int
    tokens: Tokens


class ModeTokens(msgspec.Struct, frozen=True):
    """A list as it is sent where `expose` says this, which comes to `mode`; `listed` tools, the hub's own included."""

    expose: Expose
    mode: Mode
    listed: int
    tokens: int


class TokenAccount(msgspec.Struct, frozen=True):
    """The estimated cost of a profile's tools for clients of one kind.

    `modes` are all ways to list them side by side, `current` is the one that holds. `budget` in tokens and `max_tools`
    are what `auto` goes by; a client that `defers` keeps definitions from its model until they are asked for.
    `starting` are servers whose tools are not known yet. `heaviest` names the tools with the longest definitions.
    `instructions` are the tokens of the hub's instructions, which clients get besides. `apps` is the current list as
    clients that show apps get it, without the tools that are for apps alone; None if it is the same.
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
