"""The servers of a hub, as REST reports them, as a table and as the JSON of `mcp-hub list`."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import to_builtins

from mcp_hub.cli.render import tables
from mcp_hub.protocol.rest.servers import SecondConnection, ServerInfo
from mcp_hub.types import Era, JsonObject, Kind, UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def status_of(own: ServerInfo) -> UpstreamStatus:
    """The state of a server in the form that the other tables take."""
    return UpstreamStatus(
        own.server,
        UpstreamState(own.state),
        own.reason or None,
        Era(own.era) if own.era else None,
        own.version or None,
        restarts=own.restarts,
        pid=own.pid or None,
        stderr=tuple(own.stderr),
        warnings=tuple(own.warnings),
        listed_at=tables.unix_time(own.listed) if own.listed else None,
        rests=own.rests,
        code=own.code or None,
        second=_second(own.server, own.second) if own.second else None,
    )


def _second(server: str, own: SecondConnection) -> UpstreamStatus:
    era = Era(own.era) if own.era else None
    return UpstreamStatus(server, UpstreamState(own.state), own.reason or None, era, own.version or None)


def _count(own: ServerInfo, kind: Kind) -> int:
    """The number of entries of a kind that clients get. An older hub only says how many the server lists."""
    offered = own.entries if own.offered is msgspec.UNSET else own.offered
    return offered.get(kind.value, 0)


def _logs(own: ServerInfo) -> str:
    """The rule for log messages that name no call, and how many the hub has kept: `hub (26)`."""
    if not own.logs:
        return ""
    return f"{own.logs.rule} ({own.logs.kept})" if own.logs.kept else own.logs.rule


def _sandbox(own: ServerInfo) -> "Text":
    """`on`, `absent` or `pending`; empty for a server that is to run without one."""
    state = own.sandbox.state if own.sandbox else ""
    return tables.cell(state, "red" if state == "absent" else "")


def server_data(own: ServerInfo) -> JsonObject:
    """One server as `--json` shows it."""
    return {
        "server": own.server,
        "state": own.state,
        "era": own.era or None,
        "version": own.version or None,
        "software": own.software or None,
        "pid": own.pid or None,
        **{f"{kind.value}s": _count(own, kind) for kind in Kind},
        "code": own.code or None,
        "reason": own.reason or None,
        "stderr": own.stderr[-tables.LAST_LINES :],
        "restarts": own.restarts,
        "rests": own.rests,
        "listedAt": own.listed or None,
        "warnings": own.warnings,
        "unapproved": to_builtins(own.unapproved),
        "flags": to_builtins(own.flags),
        "second": to_builtins(own.second) if own.second else None,
        "logs": to_builtins(own.logs) if own.logs else None,
        "scope": own.scope,
        **({"sandbox": to_builtins(own.sandbox)} if own.sandbox else {}),
    }


def server_table(servers: Sequence[ServerInfo], *, ends: bool = False) -> "Table":
    """A row for each server; reasons are too long for a column (`tables.reasons`).

    Skills, processes that are not shared, and sandboxes have a column if there are any. `ends`: the hub ends with the
    command, so that it restarts nothing.
    """
    kinds = [Kind.TOOL, Kind.RESOURCE, Kind.PROMPT]
    if any(_count(own, Kind.SKILL) for own in servers):
        kinds.append(Kind.SKILL)
    counted = [f"{kind.value}s" for kind in kinds]
    scopes = ["scope"] if any(own.scope != "shared" for own in servers) else []
    sandboxes = ["sandbox"] if any(own.sandbox for own in servers) else []
    made = tables.table("server", "state", "protocol", *counted, "logs", *scopes, *sandboxes, right=counted)
    for own in servers:
        shown = tables.shown_state(status_of(own), ends=ends)
        state = tables.cell(shown.value, tables.STYLES.get(shown, "yellow"))
        protocol = tables.cell(tables.protocol(status_of(own)))
        counts = (str(_count(own, kind)) for kind in kinds)
        scope = [own.scope] if scopes else []
        sandbox = [_sandbox(own)] if sandboxes else []
        made.add_row(tables.cell(own.server), state, protocol, *counts, _logs(own), *scope, *sandbox)
    return made


def described(own: JsonObject) -> str:
    """The server on one line: its exact command, quoted as a shell would have it, with its variables and its folder, or
    its URL and all that is sent there.
    """
    if "url" in own:
        oauth = own.get("oauth")
        login = {f"oauth.{name}": value for name, value in (oauth.items() if isinstance(oauth, dict) else ())}
        login |= {"bearer": own["bearer"]} if "bearer" in own else {}
        sent = " ".join([*_settings(own.get("headers")), *_settings(login)])
        return f"{own['url']} with {sent}" if sent else str(own["url"])
    args = own.get("args")
    line = shlex.join([str(own.get("command")), *map(str, args if isinstance(args, list) else ())])
    folder = [f"(in {shlex.quote(str(own['cwd']))})"] if "cwd" in own else []
    return " ".join([*_settings(own.get("env")), line, *folder])


def _settings(values: object) -> list[str]:
    pairs = values.items() if isinstance(values, dict) else ()
    return [f"{name}={shlex.quote(str(value))}" for name, value in pairs]
