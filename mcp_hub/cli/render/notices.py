"""What is to be looked at in servers' tools, for `list`, `doctor` and `check`: not approved, hidden, about others."""

from collections.abc import Collection, Iterator
from itertools import groupby
from shlex import quote
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mcp_hub.catalog.flags import decoded
from mcp_hub.cli.render.tables import masked, masked_within, plural
from mcp_hub.errors import ConfigFinding
from mcp_hub.types import JsonObject

if TYPE_CHECKING:
    from mcp_hub.app.build import App
    from mcp_hub.catalog.pins import UnapprovedTool
    from mcp_hub.catalog.trust.scan import Flagged

__all__ = ["notices", "notices_of"]

_MOST: Final = 10
"""Lines about one server; `mcp-hub approve` and `--json` have all."""


def notices(app: "App", secrets: Collection[str] = ()) -> list[ConfigFinding]:
    """A finding for each tool that is not approved and for each flag, of what was listed so far."""
    flagged = app.flagged()  # looks at the tools, and so judges them
    found = [*_unapproved(app.approvals.findings()), *_flags(flagged)]
    return [replace(own, message=masked(own.message, secrets), path=masked(own.path, secrets)) for own in found]


def _about(server: str, code: str, message: str) -> ConfigFinding:
    return ConfigFinding(code, message, path=f"servers.{decoded(server)}")


def _unapproved(findings: Collection["UnapprovedTool"]) -> Iterator[ConfigFinding]:
    for server, group in groupby(findings, key=lambda found: found.server):
        own = list(group)
        for found in own[:_MOST]:
            held = "; it is held back" if found.is_held else ""
            yield _about(server, "tool_not_approved", f"tool {decoded(found.tool)} {found.text}{held}")
        more = f"{len(own) - _MOST} more, " if len(own) > _MOST else ""
        said = f"{more}see and approve: mcp-hub approve {quote(decoded(server))}"
        yield _about(server, "tool_not_approved", said)


def _flags(flagged: Collection["Flagged"]) -> Iterator[ConfigFinding]:
    for server, group in groupby(flagged, key=lambda found: found.server):
        own = list(group)
        for found in own[:_MOST]:
            where, flag = decoded(found.flag.where, 200), found.flag
            said = f"tool {decoded(found.tool)}: {where}: {flag.why}: {flag.text}"
            yield _about(server, "suspicious_tool", said)
        if len(own) > _MOST:
            said = f"{plural(len(own) - _MOST, 'more flag')} of this server's tools"
            yield _about(server, "suspicious_tool", said)


def notices_of(
    server: str, findings: Collection["UnapprovedTool"], flagged: Collection["Flagged"], secrets: Collection[str] = ()
) -> JsonObject:
    """The same of one server as plain data."""
    about = {
        "unapproved": [
            {"tool": own.tool, "kind": own.kind, "members": list(own.members), "held": own.is_held}
            for own in findings
            if own.server == server
        ],
        "flags": [
            {
                "tool": own.tool,
                "kind": own.flag.kind,
                "where": own.flag.where,
                "why": own.flag.why,
                "text": own.flag.text,
            }
            for own in flagged
            if own.server == server
        ],
    }
    return {key: masked_within(value, secrets) for key, value in about.items()}
