"""The servers of a hub, as a table and JSON."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import to_builtins

from mcp_hub.cli.render import tables
from mcp_hub.protocol.rest.servers import AccountInfo, SecondConnection, ServerInfo
from mcp_hub.types import Era, JsonObject, Kind, UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def status_of(server: ServerInfo) -> UpstreamStatus:
    return UpstreamStatus(
        server=server.server,
        state=UpstreamState(server.state),
        reason=server.reason or None,
        era=Era(server.era) if server.era else None,
        version=server.version or None,
        restarts=server.restarts,
        pid=server.pid or None,
        stderr=tuple(server.stderr),
        warnings=tuple(server.warnings),
        listed_at=tables.unix_time(server.listed) if server.listed else None,
        rests=server.rests,
        code=server.code or None,
        second=_second(server.server, server.second) if server.second else None,
    )


def _second(server: str, connection: SecondConnection) -> UpstreamStatus:
    era = Era(connection.era) if connection.era else None
    return UpstreamStatus(
        server=server,
        state=UpstreamState(connection.state),
        reason=connection.reason or None,
        era=era,
        version=connection.version or None,
    )


def _count(server: ServerInfo, kind: Kind) -> int:
    offered = server.entries if server.offered is msgspec.UNSET else server.offered
    return offered.get(kind.value, 0)


def _logs(server: ServerInfo) -> str:
    if not server.logs:
        return ""
    return f"{server.logs.rule} ({server.logs.kept})" if server.logs.kept else server.logs.rule


def account_line(info: AccountInfo) -> str:
    """An account, without its secrets."""
    named = f" as {info.account}" if info.account else ""
    values = f", values {', '.join(info.values)}" if info.values else ""
    gone = ", gone" if info.gone else ""
    return f"{info.server}  {info.principal}{named}  since {info.since}, used {info.used}{values}{gone}"


def _scope(server: ServerInfo) -> str:
    is_counted = server.connections is not msgspec.UNSET
    return f"{server.scope} ({server.connections})" if is_counted else server.scope


def _sandbox(server: ServerInfo) -> "Text":
    state = server.sandbox.state if server.sandbox else ""
    return tables.cell(state, "red" if state == "absent" else "")


def server_data(server: ServerInfo) -> JsonObject:
    return {
        "server": server.server,
        "state": server.state,
        "era": server.era or None,
        "version": server.version or None,
        "software": server.software or None,
        "pid": server.pid or None,
        **{f"{kind.value}s": _count(server, kind) for kind in Kind},
        "code": server.code or None,
        "reason": server.reason or None,
        "stderr": server.stderr[-tables.LAST_LINES :],
        "restarts": server.restarts,
        "rests": server.rests,
        "listedAt": server.listed or None,
        "warnings": server.warnings,
        "unapproved": to_builtins(server.unapproved),
        "flags": to_builtins(server.flags),
        "second": to_builtins(server.second) if server.second else None,
        "logs": to_builtins(server.logs) if server.logs else None,
        "scope": server.scope,
        **({} if server.connections is msgspec.UNSET else {"connections": server.connections}),
        **({"sandbox": to_builtins(server.sandbox)} if server.sandbox else {}),
    }


def server_table(servers: Sequence[ServerInfo], *, ends: bool = False) -> "Table":
    """A row for each server, with optional columns for skills, scopes and sandboxes."""
    kinds = [Kind.TOOL, Kind.RESOURCE, Kind.PROMPT]
    if any(_count(server, Kind.SKILL) for server in servers):
        kinds.append(Kind.SKILL)
    counted = [f"{kind.value}s" for kind in kinds]
    scopes = ["scope"] if any(server.scope != "shared" for server in servers) else []
    sandboxes = ["sandbox"] if any(server.sandbox for server in servers) else []
    table = tables.table("server", "state", "protocol", *counted, "logs", *scopes, *sandboxes, right=counted)
    for server in servers:
        displayed = tables.shown_state(status_of(server), ends=ends)
        state = tables.cell(displayed.value, tables.STYLES.get(displayed, "yellow"))
        protocol = tables.cell(tables.protocol(status_of(server)))
        counts = (str(_count(server, kind)) for kind in kinds)
        scope = [_scope(server)] if scopes else []
        sandbox = [_sandbox(server)] if sandboxes else []
        table.add_row(tables.cell(server.server), state, protocol, *counts, _logs(server), *scope, *sandbox)
    return table


def described(entry: JsonObject) -> str:
    """The server on one line: its shell command, or its URL and values."""
    if "url" in entry:
        oauth = entry.get("oauth")
        login = {f"oauth.{name}": value for name, value in (oauth.items() if isinstance(oauth, dict) else ())}
        login |= {"bearer": entry["bearer"]} if "bearer" in entry else {}
        sent = " ".join([*_settings(entry.get("headers")), *_settings(login)])
        return f"{entry['url']} with {sent}" if sent else str(entry["url"])
    args = entry.get("args")
    line = shlex.join([str(entry.get("command")), *map(str, args if isinstance(args, list) else ())])
    folder = [f"(in {shlex.quote(str(entry['cwd']))})"] if "cwd" in entry else []
    return " ".join([*_settings(entry.get("env")), line, *folder])


def _settings(values: object) -> list[str]:
    pairs = values.items() if isinstance(values, dict) else ()
    return [f"{name}={shlex.quote(str(value))}" for name, value in pairs]
