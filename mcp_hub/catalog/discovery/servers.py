"""The servers of a view in few words: how many tools each has, what it is for, and which are not there. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from mcp_hub.call import Upstream
from mcp_hub.catalog.discovery.plain_text import MAX_PURPOSE, first_sentence, one_line
from mcp_hub.catalog.entries import by_server
from mcp_hub.catalog.rules import ViewRules
from mcp_hub.catalog.view import CatalogView
from mcp_hub.types import Kind, UpstreamState, UpstreamStatus

_MAX_NAME: Final = 64
_MOST_NAMED: Final = 4  # tools that are named for a server that says nothing of itself
_DOWN: Final = (UpstreamState.FAILED, UpstreamState.INCOMPATIBLE)
FAILED: Final = "Failed: "
"""The beginning of the line of servers that have failed."""


class ServerAbout(msgspec.Struct, frozen=True):
    """A server that clients can use: its name and purpose, each one harmless line, and its number of tools."""

    name: str
    tools: int
    purpose: str

    def line(self, width: int = MAX_PURPOSE) -> str:
        """`git (26): Reads repositories`, with at most `width` characters of its purpose."""
        head = f"{self.name} ({self.tools})" if self.tools else self.name
        purpose = first_sentence(self.purpose, width) if width else ""
        return f"{head}: {purpose}" if purpose else head


def live(view: CatalogView, rules: ViewRules, upstreams: Mapping[str, Upstream]) -> list[ServerAbout]:
    """The servers that have something in the view and are not down, in configured order.

    A purpose is what the configuration says, else the server itself, unless its instructions wait for an approval,
    else the names of a few tools.
    """
    tools = by_server((entry.server, entry.key) for entry in view.entries(Kind.TOOL))
    others = {entry.server for kind in Kind for entry in view.entries(kind)}
    found = []
    for name, own in rules.servers.items():
        upstream = upstreams.get(name)
        snapshot = upstream.snapshot() if upstream is not None else None
        if upstream is None or snapshot is None or name not in others or upstream.status().state in _DOWN:
            continue
        names = tools.get(name, [])
        text = own.description or (snapshot.instructions if (None, name) not in view.withheld else None)
        said = first_sentence(text or "", MAX_PURPOSE) or _some(names)
        found.append(ServerAbout(one_line(name, _MAX_NAME), len(names), said))
    return found


def absent(rules: ViewRules, upstreams: Mapping[str, Upstream]) -> list[UpstreamStatus]:
    """The servers that have failed, and those that have never been listed and may yet be."""
    found = [upstream for name in rules.servers if (upstream := upstreams.get(name)) is not None]
    awaited = [UpstreamState.STARTING, UpstreamState.BACKING_OFF]
    statuses = [(upstream.status(), upstream.snapshot() is None) for upstream in found]
    return [status for status, is_new in statuses if status.state in _DOWN or (is_new and status.state in awaited)]


def is_starting(status: UpstreamStatus) -> bool:
    """Whether it is on its first way up: one that has failed before is not called so."""
    return status.state is UpstreamState.STARTING and not status.failures and status.reason is None


def why_absent(statuses: Iterable[UpstreamStatus]) -> list[str]:
    """A line for those that start, and one for those that have failed, with their codes."""
    starting, failed = [], []
    for status in statuses:
        name = one_line(status.server, _MAX_NAME)
        if is_starting(status):
            starting.append(name)
        else:
            failed.append(f"{name} ({status.code})" if status.code else name)
    lines = [f"Starting, tools not known yet: {', '.join(starting)}."] if starting else []
    return [*lines, f"{FAILED}{', '.join(failed)}."] if failed else lines


def _some(names: list[str]) -> str:
    shown = ", ".join(one_line(name, _MAX_NAME) for name in names[:_MOST_NAMED])
    return f"{shown}, …" if len(names) > _MOST_NAMED else shown
