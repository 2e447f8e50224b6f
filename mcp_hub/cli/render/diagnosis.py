"""The verdict of `mcp-hub doctor` about a server. Pure."""

import re
from typing import Final

import msgspec
from msgspec import UNSET

from mcp_hub.cli.render.servers import status_of
from mcp_hub.cli.render.tables import last_lines, reason
from mcp_hub.codes.tables import CODES
from mcp_hub.protocol.rest.servers import ServerInfo
from mcp_hub.types import UpstreamState, UpstreamStatus

_NO_PACKAGE: Final = re.compile(r"npm (error|ERR!).*\bE?404\b|not found in the package registry", re.IGNORECASE)
"""Output of npx and uvx about a package that does not exist."""
_SENTENCE: Final = re.compile(r"(?<=[.!?]) +(?=[A-Z])")
_VERBS: Final = frozenset({advice.fix.split()[0] for advice in CODES.values()} | {"Did", "Decorate"})
"""The words with which advice begins."""
_NO_ADVICE: Final = re.compile(r"Read (?!its|the|what)|(List|Call|Log|Name|Report) (is|was|has|of|not|to)\b")
"""Errors of servers begin with them, too: "Read timed out"."""
_INLINE: Final = re.compile(r': ((?:run|set) "[^()]*?")(?= \(HTTP|$)')
"""Advice within a sentence of the hub: `requires a login: run "mcp-hub login team" (HTTP 401)`."""
_OF_NEWER_HUBS: Final = CODES["start_failed"]
"""The advice for a code of a newer hub at --url."""


class Diagnosis(msgspec.Struct, frozen=True):
    """A code, a problem and the last lines of one server.

    `program`: its command or URL. `seconds`: until it settled, or None.
    """

    status: UpstreamStatus
    code: str
    problem: str = ""
    lines: tuple[str, ...] = ()
    program: str | None = None
    seconds: float | None = None
    searched: tuple[str, ...] = ()
    """Folders without the program."""
    variables: tuple[str, ...] = ()
    """Variables of this shell that the server may lack: for `pass_env`."""
    places: tuple[str, ...] = ()
    """Places in the configuration, each with what is wrong there."""
    advice: str = ""
    """The steps that the message of the failure names; empty for those of its code."""

    @property
    def is_ok(self) -> bool:
        return self.status.rests or self.code in ("ok", "disabled")

    @property
    def fix(self) -> str:
        """The advice for the code; `advice` is that of the failure."""
        if any(_NO_PACKAGE.search(line) for line in self.lines):
            return "The package does not exist: check the name in `args`."
        return CODES.get(self.code, _OF_NEWER_HUBS).fix_of(self.status.server)

    def with_message(self, message: str) -> "Diagnosis":
        """The verdict with another message."""
        problem, advice = told_apart(message)
        return msgspec.structs.replace(self, problem=problem, advice=advice)


def told_apart(message: str) -> tuple[str, str]:
    """The facts and the advice in a message."""
    first, *sentences = _SENTENCE.split(message)
    advice = [
        sentence
        for sentence in sentences
        if sentence.split(" ")[0].rstrip(",:") in _VERBS and _NO_ADVICE.match(sentence) is None
    ]
    problem = " ".join([first, *(sentence for sentence in sentences if sentence not in advice)])
    if (inline := _INLINE.search(problem)) is not None:
        problem = problem[: inline.start()] + problem[inline.end() :]
        advice.append(f"{inline[1][0].upper()}{inline[1][1:]}.")
    return problem, " ".join(advice)


def diagnose(server: ServerInfo) -> Diagnosis:
    """The verdict from a server's state and lists."""
    status = status_of(server)
    match status.state:
        case UpstreamState.DISABLED:
            return Diagnosis(status, "disabled")
        case UpstreamState.READY:
            return Diagnosis(status, *_of_lists(server))
        case UpstreamState.STARTING if status.reason is None:
            return Diagnosis(status, "start_timeout", "It is still starting.", tuple(last_lines(status)))
        case _:
            diagnosis = Diagnosis(status, status.code or "start_failed", lines=tuple(last_lines(status)))
            return diagnosis.with_message(reason(status))


def _of_lists(server: ServerInfo) -> tuple[str, str]:
    if server.quarantined:
        return "definitions_quarantined", "; ".join(server.warnings[-server.quarantined :])
    if server.unsteady:
        return "lists_unsteady", "; ".join(server.unsteady)
    if not any(server.entries.values()):
        return "no_tools", "It lists nothing at all."
    if server.offered is not UNSET and not any(server.offered.values()):
        return "all_filtered", "The filters of the configuration hide everything it lists."
    return "ok", ""
