"""Faults of the clients themselves: what they look like, and why they are no faults of the hub."""

import re
from dataclasses import dataclass

from rigs.clients.run import Outcome, Results, Row

HUB = frozenset({"stdio", "attached", "http"})
DIRECT = frozenset({"direct", "direct-http"})


@dataclass(frozen=True)
class KnownFault:
    """A step that fails in this way on these fronts; through a hub it is excused only if it fails so directly too."""

    clients: str
    """A pattern of their names."""
    step: str
    says: str
    """A pattern of the failure."""
    why: str
    fronts: frozenset[str]
    directly: str = "direct"
    """Where it shows without the hub."""

    def may_be_in(self, row: Row, step: str) -> bool:
        return step == self.step and row.front in self.fronts and bool(re.fullmatch(self.clients, row.client.name))


Shown = set[tuple[str, KnownFault]]
"""Names of clients and the faults that they showed."""

KNOWN = (
    KnownFault(
        clients="python-mcp-1",
        step="cancel",
        says="the server was not told",
        why="when a call is cancelled it only forgets the request; it never sends notifications/cancelled",
        fronts=HUB | DIRECT,
    ),
    KnownFault(
        clients="typescript-.*",
        step="progress",
        says="all were read, in order, before the result",
        why="a result removes the progress callback at once, but notifications that were read together with it are "
        "handled only after it: those are dropped",
        fronts=frozenset({"stdio", "attached", "direct"}),
    ),
    KnownFault(
        clients="mcp-remote-auto",
        step="cancel",
        says="the server was not told",
        why="it posts notifications/cancelled where closing the response stream is the cancellation "
        "(2026-07-28 basic/patterns/cancellation)",
        fronts=frozenset({"http", "direct-http"}),
        directly="direct-http",
    ),
    KnownFault(
        clients="(python-mcp-2|fastmcp)-legacy",
        step="large",
        says="exceeded the 1048576 byte limit",
        why="it refuses events over 1 MiB; the hub must answer such a call with plain JSON, so through it this counts",
        fronts=frozenset({"direct-http"}),
        directly="direct-http",
    ),
)


def known_fault(row: Row, outcome: Outcome) -> KnownFault | None:
    """The fault of the client that a failed step shows."""
    if outcome.ok:
        return None
    return next((f for f in KNOWN if f.may_be_in(row, outcome.step) and re.search(f.says, outcome.detail)), None)


def known_faults(results: Results) -> Shown:
    """All of them that these results show."""
    return {
        (row.client.name, fault)
        for row, outcomes in results.items()
        for outcome in outcomes
        if (fault := known_fault(row, outcome))
    }
