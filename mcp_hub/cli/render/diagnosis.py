"""The verdict about a server that `mcp-hub doctor` shows: a code and the advice of the table of codes. Pure."""

import re
from typing import Final

import msgspec

from mcp_hub.catalog.view import CatalogView
from mcp_hub.cli.render.tables import last_lines, reason
from mcp_hub.codes import CODES
from mcp_hub.types import Kind, Snapshot, UpstreamState, UpstreamStatus

_NO_PACKAGE: Final = re.compile(r"npm (error|ERR!).*\bE?404\b|not found in the package registry", re.IGNORECASE)
"""Output of npx and uvx about a package that does not exist."""


class Diagnosis(msgspec.Struct, frozen=True):
    """The verdict about one server: a code, the problem, and its last lines.

    `program` is what it runs or its URL; `seconds` until it was ready or had failed, None if it was neither in time.
    """

    status: UpstreamStatus
    code: str
    problem: str = ""
    lines: tuple[str, ...] = ()
    program: str | None = None
    seconds: float | None = None
    searched: tuple[str, ...] = ()
    """Folders without the program."""

    @property
    def is_ok(self) -> bool:
        return self.code in ("ok", "disabled")

    @property
    def fix(self) -> str:
        """The advice for the code, or for a package that does not exist."""
        if any(_NO_PACKAGE.search(line) for line in self.lines):
            return "The package does not exist: check the name in `args`."
        return CODES[self.code].fix


def diagnose(status: UpstreamStatus, offered: Snapshot | None, view: CatalogView) -> Diagnosis:
    """The verdict from a server's state, its lists, and the part of them that clients get."""
    match status.state:
        case UpstreamState.DISABLED:
            return Diagnosis(status, "disabled")
        case UpstreamState.READY:
            return Diagnosis(status, *_of_lists(status.server, offered, view))
        case UpstreamState.STARTING if status.reason is None:
            return Diagnosis(status, "start_timeout", "It is still starting.", tuple(last_lines(status)))
        case _:
            return Diagnosis(status, status.code or "start_failed", reason(status), tuple(last_lines(status)))


def _of_lists(server: str, offered: Snapshot | None, view: CatalogView) -> tuple[str, str]:
    """Code and problem of a server that is ready."""
    unfit = [bad for bad in view.quarantined if bad.server == server]
    if unfit:
        return "definitions_quarantined", "; ".join(f"{bad.kind.value} {bad.key}: {bad.reason}" for bad in unfit)
    if offered is None or not any(offered.lists.values()):
        return "no_tools", "It lists nothing at all."
    if not any(entry.server == server for kind in Kind for entry in view.entries(kind)):
        return "all_filtered", "The filters of the configuration hide everything it lists."
    return "ok", ""
