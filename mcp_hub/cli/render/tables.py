"""Tables and lines for people, masked and printable."""

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from mcp_hub.cli.render.output import put, put_json, say
from mcp_hub.clock import wall_time
from mcp_hub.masking import hide, visible
from mcp_hub.types import LAST_OUTPUT, RawJson, UpstreamState, UpstreamStatus, condition
from mcp_hub.types import plural as plural
from mcp_hub.upstreams.supervision.lifecycle import GAVE_UP

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

LAST_LINES: Final = 5
"""Lines of a server's output that are shown with a failure."""
_WIDEST: Final = 4000
"""Columns of a table in a pipe: nothing is wrapped where a program may read it."""
_NARROW: Final = 100
"""Columns below which a table has one blank less between its own."""
STYLES: Final = {
    UpstreamState.READY: "green",
    UpstreamState.FAILED: "red",
    UpstreamState.INCOMPATIBLE: "red",
    UpstreamState.DISABLED: "dim",
    UpstreamState.STOPPED: "dim",
}
_BETWEEN: Final = (UpstreamState.STARTING, UpstreamState.BACKING_OFF)
_WITHOUT_VALUE: Final = frozenset(
    {"variable_not_set", "file_unreadable", "keyring_unavailable", "command_refused", "lookup_failed"}
)
_FORCED: Final = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Variables by which rich writes to a pipe as to a terminal."""
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


class _About(msgspec.Struct):
    description: object = ""


def console() -> "Console":
    """The console of stdout."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WIDEST, highlight=False, markup=False, emoji=False)


def print_table(content: "Table") -> None:
    """Prints to stdout; a pipe gets no trailing blanks."""
    out = console()
    if out.is_terminal:
        out.print(content)
        return
    with out.capture() as captured:
        out.print(content)
    lines = (line.rstrip() for line in captured.get().splitlines())
    put("\n".join(line for line in lines if line))


def table(*columns: str, right: Collection[str] = (), whole: Collection[str] = ()) -> "Table":
    """An empty table; columns in `right` are aligned there, those in `whole` never wrap."""
    from rich import box
    from rich.table import Table

    padding = (0, 1, 0, 0) if console().width < _NARROW else (0, 1)
    content = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=padding, header_style="bold", highlight=False
    )
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        content.add_column(column, justify=justify, overflow="fold", no_wrap=column in whole)
    return content


def cell(text: str, style: str = "") -> "Text":
    """A cell without markup or control characters."""
    from rich.text import Text

    return Text(visible(text), style)


def short_cell(text: str) -> "Text":
    """A cell on one line, cut to fit."""
    from rich.text import Text

    return Text(" ".join(visible(text).split()), no_wrap=True, overflow="ellipsis")


def print_short(lines: Iterable[str], mark: str) -> None:
    """Prints lines, cut to the terminal, with their `mark`."""
    out = console()
    for line in lines:
        if out.is_terminal:
            text, suffix = short_cell(line.removesuffix(mark)), mark if line.endswith(mark) else ""
            text.truncate(max(1, out.width - len(suffix)), overflow="ellipsis")
            out.print(text.append(suffix))
        else:
            put(line)


def print_page(name: str, server: str, definition: RawJson) -> None:
    """Prints a tool: description and parameters."""
    from mcp_hub.catalog.texts import parameter_lines

    description = msgspec.json.decode(definition, type=_About).description
    message = description.strip() if isinstance(description, str) else ""
    lines = [f"{name} ({server})" if server else name, *(f"  {line}" for line in message.splitlines())]
    lines += [f"    {line}" for line in parameter_lines(bytes(definition))]
    put("\n".join(lines))


def reason(status: UpstreamStatus) -> str:
    """Why a server is not ready, without its output."""
    message, _, output = (status.reason or "").partition(LAST_OUTPUT)
    gave_up = output.rfind(GAVE_UP)
    return message + output[gave_up:] if gave_up >= 0 else message


def last_lines(status: UpstreamStatus) -> list[str]:
    """The last lines of stray stdout, then stderr."""
    _, _, output = (status.reason or "").partition(LAST_OUTPUT)
    stray = [line for line in output.split(" | ") if line.startswith("stdout: ")]
    return [*stray, *status.stderr][-LAST_LINES:]


def protocol(status: UpstreamStatus) -> str:
    """`2025-11-25 (handshake)`, for each connection."""
    both = [
        connection for connection in (status, status.second) if connection is not None and connection.era is not None
    ]
    return ", ".join(
        f"{connection.version} ({_era(connection, status)})" if connection.version else str(connection.era)
        for connection in both
    )


def _era(connection: UpstreamStatus, first: UpstreamStatus) -> str:
    is_explained = connection is first.second and connection.reason and connection.state is UpstreamState.READY
    return f"{connection.era} {connection.reason}" if is_explained else str(connection.era)


def reasons(
    statuses: Sequence[UpstreamStatus], *, ends: bool = False, has_output: bool = True
) -> list[tuple[str, str]]:
    """Why these servers are not ready, with styles. `ends`: the hub restarts nothing."""
    lines: list[tuple[str, str]] = []
    for status in statuses:
        since = None if status.listed_at is None else age(status.listed_at, wall_time())
        listed = "" if since is None else f" Its list is from {since} ago."
        message = reason(status)
        head = f"{_headline(status, message, ends=ends)}{listed}"
        lines.append((head, ""))
        lines += [(f"  | {line}", "dim") for line in (last_lines(status) if has_output else ())]
    return [(visible(hide(text)), style) for text, style in lines]


def shown_state(status: UpstreamStatus, *, ends: bool) -> UpstreamState:
    """The state; failed if the hub `ends` before a restart."""
    has_failed = status.state in _BETWEEN and bool(status.failures or reason(status))
    return UpstreamState.FAILED if ends and has_failed else status.state


def _headline(status: UpstreamStatus, message: str, *, ends: bool) -> str:
    code = f" [{status.code}]" if status.code else ""
    why = f": {message}" if message else ""
    state = shown_state(status, ends=ends)
    if ends and state in _BETWEEN:
        return f"{status.server} has not started in time{code}"
    if ends and status.code in _WITHOUT_VALUE:
        return f"{status.server} needs a value{why}{code}"
    return f"{status.server} {condition(state, message, status.failures)}{why}{code}"


def _failure_line(status: UpstreamStatus) -> str:
    from mcp_hub.upstreams.supervision.server import brief  # a hub's own modules

    return visible(hide(_headline(status, brief(status.reason), ends=True)))


def unix_time(moment: str) -> float | None:
    """The Unix seconds of an ISO 8601 time, or None."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None


def age(then: float, now: float) -> str:
    """The time since `then` in its largest unit: `3 h`."""
    seconds = max(0, round(now - then))
    return next((f"{seconds // size} {unit}" for size, unit in _UNITS if seconds >= size), "0 s")


def warnings(statuses: Sequence[UpstreamStatus]) -> list[tuple[str, str]]:
    return [
        (visible(hide(f"{status.server}: {warning}")), "yellow") for status in statuses for warning in status.warnings
    ]


def print_json(document: object) -> None:
    put_json(msgspec.json.format(msgspec.json.encode(document), indent=2))


def print_missing(statuses: Sequence[UpstreamStatus], *, ends: bool = False, has_output: bool = True) -> None:
    for text, _ in reasons(statuses, ends=ends, has_output=has_output):
        say(text)


def print_outcome(working: int, absent: Sequence[UpstreamStatus]) -> None:
    """Prints how many servers work, and why others do not."""
    count, needing = working + len(absent), len(absent)
    if not absent:
        put(
            f"All {plural(count, 'server')} work." if count > 1 else "The server works." if count else "No servers yet."
        )
        return
    verbs = ("works" if working == 1 else "work", "needs" if needing == 1 else "need")
    put(f"{working} of {plural(count, 'server')} {verbs[0]}; {needing} {verbs[1]} you:")
    for status in absent:
        say(f"  {_failure_line(status)}")
    say("Look again after a change: mcp-hub doctor")


def print_warnings(findings: Iterable[object]) -> None:
    for finding in findings:
        say(f"warning: {finding}")


def print_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Prints styled lines, wrapped by the terminal only."""
    is_piped = not sys.stdout.isatty() and not any(name in os.environ for name in _FORCED)
    if is_piped and not any("\t" in text for text, _ in lines):  # rich sets tabs, and takes 25 ms to load
        for text, _ in lines:
            put(text)
        return
    from rich.text import Text

    out = console()
    for text, style in lines:
        out.print(Text(visible(text), style), soft_wrap=True)
