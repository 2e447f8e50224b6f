"""The servers of a hub as a table and JSON; warnings about them: waiting approvals and edits, unmatched patterns."""

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from mcp_hub.catalog.flags import folded
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.tables import plural
from mcp_hub.config.findings import Findings, quoted
from mcp_hub.config.trust import OVERLAY, project_of, state_dir
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OWN
from mcp_hub.ids import record_key
from mcp_hub.masking import hide, hide_head
from mcp_hub.protocol.rest.servers import (
    AccountInfo,
    RefusedInfo,
    SandboxInfo,
    SecondConnection,
    ServerInfo,
    UnmatchedInfo,
)
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.types import Era, JsonObject, Kind, UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from mcp_hub.config.load.load import Loaded
    from mcp_hub.config.schema.settings import Settings


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
    """The server on one line: shell command, or URL and values."""
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


_VERBS: Final = {"read": "to read ", "write": "to write "}
_MOST: Final = 10
"""Lines about one server; `mcp-hub approve` and `--json` have all."""
_KEY: Final = 100
"""Characters of a key of a proposed edit."""
_LONGEST: Final = 1000
"""Characters of a text from the file of a project, which a stranger may have written."""


def notices(servers: Iterable[ServerInfo], *, ends: bool = False) -> list[ConfigFinding]:
    """Findings about approvals, flags and sandbox refusals."""
    alike: dict[str, list[ServerInfo]] = {}
    for server in (servers := [*servers]):
        alike.setdefault(folded(server.server), []).append(server)
    return [
        ConfigFinding(code, line, path=f"servers.{server.server}")
        for server in servers
        for code, lines in (
            ("tool_not_approved", _unapproved(server)),
            ("suspicious_tool", _flags(server, alike[folded(server.server)])),
            ("sandbox_refused", _refusals(server, ends=ends)),
        )
        for line in lines
    ]


def _unapproved(server: ServerInfo) -> Iterator[str]:
    if not server.unapproved:
        return
    from mcp_hub.catalog.pins import UnapprovedTool, label_of

    for tool in server.unapproved[:_MOST]:
        message = UnapprovedTool(server.server, tool.tool, tool.kind, tuple(tool.members)).text
        yield f"{label_of(tool.tool)} {message}{'; it is held back' if tool.held else ''}"
    more = _more(server.unapproved)
    yield f"{f'{more} more, ' if more else ''}see and approve: mcp-hub approve {quote(server.server)}"


def _flags(server: ServerInfo, alike: Sequence[ServerInfo]) -> Iterator[str]:
    """A line for each flag; one for tools that look alike only by their server's name."""
    if not server.flags:
        return
    from mcp_hub.catalog.pins import label_of

    starts = tuple(f"looks like {twin.server}" for twin in alike if twin is not server)
    twins = [flag for flag in server.flags if starts and flag.kind == "lookalike" and flag.why.startswith(starts)]
    flags = [flag for flag in server.flags if flag not in twins]
    if twins and server is alike[0]:
        names = ", ".join(twin.server for twin in alike[1:])
        yield f"its name looks like {names}, and so do the names of {plural(len(twins), 'tool')}. Rename a server"
    for flag in flags[:_MOST]:
        text = f": {flag.text}" if flag.text else ""
        yield f"{label_of(flag.tool)}: {flag.where}: {flag.why}{text}"
    if more := _more(flags):
        yield f"{plural(more, 'more flag')} of this server"


def _refusals(server: ServerInfo, *, ends: bool) -> Iterator[str]:
    """The number and the newest target, unless the reason names it."""
    sandbox = server.sandbox
    if sandbox and sandbox.refused:
        is_reason = server.code == "sandbox_refused" and len(sandbox.latest) == 1
        if is_reason and sandbox.latest[0].target in (server.reason or ""):
            return
        newest = "".join(f", last {refused_text(latest, sandbox)}" for latest in sandbox.latest[:1])
        refused = plural(sandbox.refused, "attempt")
        where = "" if ends else f". Show them: mcp-hub sandbox {quote(server.server)}"
        yield f"the sandbox refused {refused}{newest}{where}"


def refused_text(refused: RefusedInfo, sandbox: SandboxInfo) -> str:
    """A refused target, and the rule that would allow it."""
    text = f"{_VERBS.get(refused.kind, '')}{refused.target} ({refused.reason})"
    if not refused.entry or not refused.key:
        return text
    entries = sandbox.lists.get(refused.key)
    if entries is None:  # of an older hub, or too many to be shown
        return f"{text}; to allow it, add {quoted(refused.entry)} to the list {refused.key}"
    return f"{text}; to allow it, set {refused.key}: [{', '.join(map(quoted, (*entries, refused.entry)))}]"


def _more(items: Sequence[object]) -> int:
    return max(len(items) - _MOST, 0)


def report_of(loaded: "Loaded") -> Findings:
    """A report with the lines of the file, if readable."""
    from mcp_hub.config.load.foreign import place_of_servers  # YAML and pydantic, as below
    from mcp_hub.config.load.locate import read_document
    from mcp_hub.config.load.texts import read_text_file

    name = str(loaded.path)
    try:
        document = read_document(read_text_file(loaded.path, LARGEST_OWN).text, name)
    except (ConfigError, OSError, ValueError):
        return Findings(name)
    data = document.data
    holder = place_of_servers(data, is_yaml=document.is_yaml) if isinstance(data, dict) else ("servers",)
    return Findings(name, document.lines, {"servers": holder})


def unmatched_patterns(
    patterns: Iterable[UnmatchedInfo], loaded: "Loaded", *, has_all: bool = True
) -> list[ConfigFinding]:
    """Warnings about patterns without a match; `has_all`: all servers were listed."""
    report = report_of(loaded)
    for pattern in patterns:
        if has_all or pattern.path[0] == "servers":
            report.warn(tuple(pattern.path), "unmatched_pattern", pattern.reason)
    return [masked(finding) for finding in report.located(report.warnings)]


def waiting_edits(path: Path, servers: Collection[str] = ()) -> list[ConfigFinding]:
    """The dashboard's proposed edits, of these servers or all."""
    with suppress(OSError):
        if KeyedFiles(state_dir(os.environ) / "proposals").stamp(record_key(str(path.absolute()), "")) is None:
            return []
    from mcp_hub.onboarding.servers_file.proposals import command_of, proposals_of
    from mcp_hub.onboarding.servers_file.servers_file import ServersFile

    file = ServersFile(path, os.environ)
    try:
        edits = [edit for edit in proposals_of(file).all() if not servers or edit.server in servers]
        entries = file.servers() if edits and file.exists else {}
    except ConfigError as error:
        return [*map(masked, error.findings)]
    findings = []
    for edit in edits:
        text = f"a page of the dashboard proposes to {_effect(entries.get(edit.server), edit.entry)}. "
        text += f"To review it: {command_of(file, edit.server)}"
        findings.append(masked(ConfigFinding("edit_not_approved", text, path=f"servers.{edit.server}")))
    return findings


def _effect(before: object, after: JsonObject) -> str:
    entry = before if isinstance(before, dict) else {}
    keys = [str(key) for key in {**entry, **after} if entry.get(key, ...) != after.get(key, ...)]
    named = [hide_head(key, _KEY) for key in keys[:_MOST]] + ([f"{more} more"] if (more := _more(keys)) else [])
    return f"{'add it with' if before is None else 'change'} {', '.join(named) or 'nothing'}"


def has_overlay() -> bool:
    """Whether the project has a `.mcp-hub.yaml`."""
    with suppress(OSError):
        return os.path.lexists(os.path.join(project_of(os.getcwd()), OVERLAY))
    return False


def project_warnings(settings: "Settings | None") -> list[ConfigFinding]:
    """Up to ten warnings about the project's `.mcp-hub.yaml`."""
    if not has_overlay():
        return []
    from mcp_hub.config.load.overrides import read_overlay

    with suppress(OSError):
        project = Path(project_of(os.getcwd()))
        try:
            overlay = read_overlay(project)
        except ConfigError as refused:
            is_strange = refused.code == "config_untrusted"
            result = "It is not used" if is_strange else "Clients that start in this project get no tools"
            return [
                _of_overlay(replace(finding, message=f"{finding.message.rstrip('.')}. {result}"))
                for finding in refused.findings[:_MOST]
            ]
        problems = []
        if overlay is not None and settings is not None:
            from mcp_hub.app.catalog_rules import overlay_problems

            problems = overlay_problems(settings, overlay)
        file = str(project / OVERLAY)
        return [_of_overlay(ConfigFinding("overlay_in_vain", problem, file)) for problem in problems[:_MOST]]
    return []


def _of_overlay(finding: ConfigFinding) -> ConfigFinding:
    return masked(
        replace(finding, message=hide_head(finding.message, _LONGEST), path=hide_head(finding.path, _LONGEST))
    )


def masked(finding: ConfigFinding) -> ConfigFinding:
    return replace(finding, message=hide(finding.message), path=hide(finding.path))
