"""Texts of servers that wait for approval, with their changes."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec

from mcp_hub.catalog.flags import decoded
from mcp_hub.catalog.pins import Pin, Record, UnapprovedTool, approved, encoded, label_of, read, subject_of
from mcp_hub.catalog.trust.approvals import Approvals, record_key
from mcp_hub.catalog.trust.diff import diff_lines, flag_lines
from mcp_hub.clock import wall_time
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.masking import hide, hide_head
from mcp_hub.protocol.rest.overview import WaitingTool
from mcp_hub.protocol.shape.stream_events import timestamp
from mcp_hub.stores.keyed_files import KeyedFiles

_MOST: Final = 200
"""Tools shown at once; `mcp-hub approve` shows all."""


class ToolApprovals(msgspec.Struct, frozen=True):
    """The approval records in `store` for the configuration at `place`."""

    approvals: Approvals
    store: KeyedFiles
    place: str

    def waiting(self) -> list[WaitingTool]:
        """The tools that are not approved; blocks. Raises `Problem` for an unreadable record."""
        records: dict[str, Record] = {}
        waiting = []
        for finding in self.approvals.findings()[:_MOST]:
            if finding.server not in records:
                records[finding.server] = self._record(finding.server)
            waiting.append(_waiting(finding, records[finding.server].tools.get(finding.tool)))
        return waiting

    def names(self, server: str) -> set[str]:
        return {finding.tool for finding in self.approvals.findings() if finding.server == server}

    def check(self, server: str, tool: str) -> None:
        """Raises `Problem` 404 for what is not waiting."""
        if tool not in self.names(server):
            message = (
                f"{hide_head(label_of(tool), 200)} of server {json.dumps(server)} is not waiting. Load the page again."
            )
            raise Problem(404, "unknown_tool", message)

    def approve(self, server: str, tool: str, digest: str) -> None:
        """Approves the definition with this digest; blocks. Raises `Problem` 409 if it has changed."""
        missed: list[str] = []
        try:
            self.store.update(record_key(self.place, server), partial(_approved, tool, digest, missed))
        except (OSError, ValueError) as problem:
            raise Problem(503, "state_unwritable", decoded(str(problem))) from None
        if missed:
            message = f"{decoded(tool)} is not waiting with this definition. Look at it again."
            raise Problem(409, "changed_meanwhile", message)

    def _record(self, server: str) -> Record:
        try:
            return read(self.store.read(record_key(self.place, server)))
        except (OSError, ValueError):
            return Record()  # the finding itself says that it is unreadable


def _approved(tool: str, digest: str, missed: list[str], text: bytes | None) -> bytes | None:
    record, unapproved = approved(read(text), {tool: digest}, wall_time())
    missed.extend(unapproved)
    return None if unapproved else encoded(record)


def _waiting(finding: UnapprovedTool, pin: Pin | None) -> WaitingTool:
    return WaitingTool(
        server=finding.server,
        tool=finding.tool,
        kind=finding.kind,
        text=finding.text,
        held=finding.is_held,
        since=timestamp(finding.since) if finding.since else "",
        digest=finding.digest,
        diff=[hide(line) for line, _ in _lines(pin)],
        flags=[] if pin is None else [hide(line) for line in flag_lines(pin)],
        subject=subject_of(finding.tool)[0],
    )


def _lines(pin: Pin | None) -> Iterator[tuple[str, str]]:
    return iter(()) if pin is None else diff_lines(pin)
