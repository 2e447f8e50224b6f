"""The default `scope` of a server in a background hub: which servers several clients had better not share. Pure.

Known names only change the default; `scope` in the configuration always wins.
"""

import re
from typing import Final, Literal

from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.types import UpstreamStatus

_BROWSERS: Final = re.compile(
    r"(?:^|[/@\\_-])(?:playwright|puppeteer|chrome-devtools|browser-?mcp|mcp-browser|browserbase|selenium|browser-use)",
    re.IGNORECASE,
)
"""Servers that drive a browser: two clients in one browser would turn each other's pages."""
_RELATIVE: Final = re.compile(r"\.{1,2}(?:[/\\].*)?")
_BOUND: Final = re.compile(r"(?:^|[/@\\_-])serena(?:$|[/@\\_.-])", re.IGNORECASE)
"""Servers that work on the project of their working directory."""


def default_scope(server: ServerSettings, *, asks: bool) -> Literal["session"] | None:
    """`session` for a browser, a server whose arguments depend on its client's working directory, and one that `asks`.

    A server in the handshake era does not say whom it asks, so that calls of others wait for the answer.
    """
    if server.command is None:
        return None
    if asks and server.era != "modern":
        return "session"
    words = [server.command, *server.args]
    if any(_BROWSERS.search(word) for word in words):
        return "session"
    values = (word.rpartition("=")[2] for word in words[1:])
    depends = any(_RELATIVE.fullmatch(value) for value in values) or any(_BOUND.search(word) for word in words)
    return "session" if depends and server.cwd is None else None


def is_to_separate(status: UpstreamStatus, server: ServerSettings) -> bool:
    """Whether a running server that was shared so far is to have a process for each client: it has just asked one."""
    return status.asks and not status.scope and server.scope is None and default_scope(server, asks=True) is not None
