"""What is wrong with a server and how to mend it: a stable code for everything that a start can come to. Pure.

A status has its reason as text only, so the codes of failures hang on a table of patterns over the hub's own
messages; `tests/e2e/test_cli_servers.py` gets each of them from a real server.
"""

import re
from typing import Final

import msgspec

from mcp_hub.catalog.view import CatalogView
from mcp_hub.cli.tables import last_lines, reason
from mcp_hub.types import Kind, Snapshot, UpstreamState, UpstreamStatus

__all__ = ["CODES", "Diagnosis", "diagnose"]

CODES: Final = {
    "ok": "",
    "disabled": "set `enabled: true` to use it",
    "command_not_found": "install the program, or write its full path as `command`",
    "cannot_start": "check `command` and `cwd`: the program must be executable and the folder must exist",
    "import_failed": "make the module importable next to the configuration file or in the hub's environment, and name "
    "its Registry (module:attribute)",
    "start_crashed": "run the command in a terminal: its last lines, arguments or `env` say what it misses "
    "(a server inherits few variables of the hub)",
    "start_timeout": "raise `start_timeout` if it downloads or is slow, else look for what it waits for",
    "not_mcp": "check that the command is an MCP server over stdio: it may need a subcommand or flag (`mcp`, "
    "`--stdio`), and its logs belong on stderr",
    "handshake_failed": "the server refuses to begin a session: see its message, and try a newer version of it",
    "era_mismatch": "set `era: auto`, or use a version of the server with a protocol that the hub speaks",
    "list_failed": "the server started but cannot list its tools: see its message, report it to its authors",
    "no_tools": "the server offers nothing: its arguments may switch features on, or it needs credentials",
    "all_filtered": "loosen `tools`, `resources` and `prompts` of the server: they hide everything it offers",
    "definitions_quarantined": "clients would refuse these definitions, so they are left out: report it to its authors",
    "unreachable": "check `url`, that the server runs, and the proxies of the environment",
    "login_needed": "log in with `mcp-hub login`, or set `bearer` or `headers`",
    "login_failed": "check `oauth` of the server, and that its authorization server runs",
    "not_admitted": "set `bearer` or `headers` to what the server accepts",
    "no_endpoint": "check the path of `url`: often it is /mcp or /sse",
    "server_error": "the server at `url` answers, but with an error of its own: see its log, and try again later",
    "start_failed": "run the command in a terminal and see what it says",
}
"""Code → how to mend it. Codes are stable: scripts may test for them."""

_PATTERNS: Final = tuple(
    (code, re.compile(pattern, re.IGNORECASE))
    for code, pattern in (
        ("import_failed", r'local "'),
        ("unreachable", r"cannot connect to http"),
        ("login_needed", r'.*run "mcp-hub login '),
        ("login_failed", r"cannot log in to http|https?://\S+ (does not accept the login|the login has ended)"),
        ("not_admitted", r"https?://\S+ (wants|does not accept the) credentials"),
        ("server_error", r'((initialize|server/discover) failed: )?upstream "[^"]*" answered with HTTP 5'),
        (
            "no_endpoint",
            r'(initialize failed: )?upstream "[^"]*" answered with HTTP (2|3|404|405|410)'
            r"|the event stream |the server wants messages sent to",
        ),
        ("command_not_found", r"command not found: |cannot start .*: (no such file|the interpreter )"),
        ("cannot_start", r"cannot start |command is "),
        (
            "not_mcp",
            r"(ended when asked server/discover: )?exited with code 0\b|not ready within .*; last output: stdout: ",
        ),
        ("start_crashed", r"(ended when asked server/discover: )?(exited with|killed by) "),
        ("start_timeout", r"not ready within "),
        ("list_failed", r"\S+/list failed: "),
        ("not_mcp", r".*(cannot be read|is no object|closed its output)|initialize failed: this client has no "),
        ("era_mismatch", r"no common protocol version|server/discover (failed|names )|initialize settled on no "),
        ("era_mismatch", r"initialize failed: .*protocol version"),
        ("handshake_failed", r'initialize failed: |upstream "[^"]*" answered with HTTP '),
    )
)
"""Code and what its reasons begin with; the first that fits counts.

What ends by itself with code 0 has done what it was told, and that was not to serve (its output may be lost). A peer
that echoes the hub's own requests (`cat`) refuses `initialize` in the hub's own words, "this client has no".
"""


class Diagnosis(msgspec.Struct, frozen=True):
    """The verdict about one server: a code of `CODES`, what is the matter, and the lines that it wrote last."""

    server: str
    code: str
    problem: str = ""
    lines: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        return self.code in ("ok", "disabled")

    @property
    def mend(self) -> str:
        return CODES[self.code]


def diagnose(status: UpstreamStatus, offered: Snapshot | None, view: CatalogView) -> Diagnosis:
    """The verdict from a server's state, what it listed, and what of that clients get."""
    match status.state:
        case UpstreamState.DISABLED:
            return Diagnosis(status.server, "disabled")
        case UpstreamState.READY:
            return _of_lists(status.server, offered, view)
        case UpstreamState.STARTING if status.reason is None:
            return Diagnosis(status.server, "start_timeout", "still starting", tuple(last_lines(status)))
        case _:
            return Diagnosis(status.server, _code_of(status), reason(status), tuple(last_lines(status)))


def _code_of(status: UpstreamStatus) -> str:
    if status.state is UpstreamState.INCOMPATIBLE:
        return "era_mismatch"
    text = status.reason or ""
    return next((code for code, pattern in _PATTERNS if pattern.match(text)), "start_failed")


def _of_lists(server: str, offered: Snapshot | None, view: CatalogView) -> Diagnosis:
    unfit = [bad for bad in view.quarantined if bad.server == server]
    if unfit:
        said = "; ".join(f"{bad.kind.value} {bad.key}: {bad.reason}" for bad in unfit)
        return Diagnosis(server, "definitions_quarantined", said)
    if offered is None or not any(offered.lists.values()):
        return Diagnosis(server, "no_tools", "it lists nothing at all")
    if not any(entry.server == server for kind in Kind for entry in view.entries(kind)):
        return Diagnosis(server, "all_filtered", "the filters of the configuration hide everything it lists")
    return Diagnosis(server, "ok")
