"""`mcp-hub history`, past calls, and `mcp-hub logs`, the stderr of servers and the hub's events."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import click
import msgspec
from msgspec import UNSET

from mcp_hub.cli import completion
from mcp_hub.cli.access.following import run_with_history
from mcp_hub.cli.access.hub import Reach, ReachedHub, hub_options, run_with_hub, stream_options
from mcp_hub.cli.commands.call import run_call
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import agrees, json_output, put, put_json, say
from mcp_hub.cli.setup import EXIT_TOOL, Output, check_servers, config_option, config_path, fail, load_config, run_with
from mcp_hub.clock import wall_time
from mcp_hub.config.trust import state_dir
from mcp_hub.masking import hide_head, visible
from mcp_hub.protocol.rest.history import MOST, MOST_DETAILS, HistoryCall, HistoryPage, HistoryQuery, moment
from mcp_hub.stores.server_logs import LogRecord, ServerLogReader, log_folder
from mcp_hub.types import RawJson

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from mcp_hub.cli.access.following import HistoryAccess

_STYLES: Final = {"completed": "green", "tool_error": "red", "failed": "red", "timed_out": "red", "cancelled": "dim"}
_SUBJECTS: Final = {
    "tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource", "resources/directory/read": "folder",
    "skills/get": "skill",
}  # fmt: skip
"""The noun for the subject of a call, by method."""
_MESSAGE: Final = 60
"""Characters of the reason of a failure in the table."""
_INNER: Final = "↳ "
"""Before the tool of a call that a script has made."""
_NARROW: Final = 110
"""Columns of a terminal that has no room for clients and reasons."""
_LOSSES: Final = 3
"""Losses that are named below the table; `--json` has all."""


def _since(_: click.Context, parameter: click.Parameter, text: str | None) -> float:
    try:
        return 0.0 if text is None else moment(text, wall_time())
    except ValueError as problem:
        raise click.BadParameter(f"{text!r}: {problem}") from None


_FILTERS: Final = (
    click.option("--server", metavar="SERVER", default="", shell_complete=completion.servers, help="Only this server."),
    click.option("--tool", metavar="GLOB", default="", help="Only tools with this name, or that the glob matches."),
    click.option("--failed", is_flag=True, help="Only calls that did not succeed."),
    click.option("--client", metavar="NAME", default="", help="Only calls of this client."),
    click.option("--script", "parent", metavar="CALL", default="", help="Only calls that this run of a script made."),
    click.option(
        "--since",
        metavar="TIME",
        callback=_since,
        help="Only calls that ended since then: 90s, 15m, 1h, 7d, or a date.",
    ),
)


def _filtered(command: Callable[..., Any]) -> Callable[..., Any]:
    return reduce(lambda inner, option: option(inner), reversed(_FILTERS), command)


@click.group(invoke_without_command=True)
@_filtered
@click.option(
    "--limit", type=click.IntRange(1, MOST), default=50, show_default=True, metavar="N", help="Maximum number of calls."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@stream_options
@click.pass_context
def history(context: click.Context, /, reach: Reach, limit: int, as_json: bool, **chosen: Any) -> None:
    """Show the calls that have ended, newest first.

    Calls are kept for hub.history.keep (7 days), also of hubs that have ended. Asks the running hub, or reads the
    store.
    """
    if context.invoked_subcommand is None:
        query = HistoryQuery(limit=limit, **chosen)
        run_with_history(reach, lambda access: _listed(access, query, as_json))


async def _listed(access: "HistoryAccess", query: HistoryQuery, as_json: bool) -> int:
    page = await access.history(query)
    if as_json:
        tables.print_json(page)
        return 0
    if page.calls:
        tables.print_table(_table(page.calls, wall_time(), tables.console().width))
    elif page.keeping == "off":
        put("The history is off (hub.history).")
    else:
        put(" ".join(["No calls.", *page.hints]))
    for line in _notes(page):
        say(line, "yellow")
    return 0


def _table(calls: list[HistoryCall], now: float, width: int) -> "Table":
    columns = ("call", "tool", "status", "age", "took", "client", "reason")[: 5 if width < _NARROW else 7]
    table = tables.table(*columns, right=("age", "took"), whole=("call", "status", "age", "took"))
    for call in calls:
        reason = " ".join(visible(call.message or call.code).split())
        cells = (
            tables.cell(call.id),
            tables.short_cell(f"{_INNER if call.parent else ''}{call.name}"),
            tables.cell(call.status, _STYLES.get(call.status, "yellow")),
            tables.age(call.at + call.took, now),
            _seconds(call.took) if call.took else "–",
            tables.short_cell(call.client),
            tables.short_cell(hide_head(reason, _MESSAGE, "…")),
        )
        table.add_row(*cells[: len(columns)])
    return table


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def _notes(page: HistoryPage) -> list[str]:
    notes = [f"Calls cannot be kept now: {page.failing}"] if page.failing else []
    notes += [f"{_time(loss.at)}: {loss.text}" for loss in page.losses[:_LOSSES]]
    if (more := len(page.losses) - _LOSSES) > 0:
        notes.append(f"{tables.plural(more, 'more such note')}: --json shows {'it' if more == 1 else 'them'}.")
    return notes


def _time(moment_: float) -> str:
    return f"{datetime.fromtimestamp(moment_):%Y-%m-%d %H:%M:%S}"


@history.command("show")
@click.argument("call")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@stream_options
def show(call: str, as_json: bool, reach: Reach) -> None:
    """Show one call with its arguments and the beginning of its result."""
    run_with_history(reach, lambda access: _show(access, call, as_json), call)


async def _show(access: "HistoryAccess", id_: str, as_json: bool) -> int:
    call = await access.past_call(id_)
    if as_json:
        tables.print_json(call)
    else:
        for line in _lines(call):
            put(line)
    return 0


def _lines(call: HistoryCall) -> list[str]:
    waited = f", of which it waited {_seconds(call.waited)}" if call.waited >= 0.001 else ""
    took = f"took {_seconds(call.took)}" if call.took else "duration unknown"
    lines = [
        f"call:      {call.id}",
        f"{_SUBJECTS.get(call.method, 'request') + ':':10} {_subject(call)}, {call.method}",
        *([f"script:    {call.parent}"] if call.parent else []),
        f"client:    {call.client or 'unknown'}, principal {call.principal}",
        f"started:   {_time(call.at)}, {took}{waited}",
        f"status:    {_status(call)}",
        f"arguments: {_arguments(call)}",
    ]
    result = _text(call.result, call.result_text)
    if result:
        cut = f", the first 4 kB of {call.result_bytes} bytes" if call.result_cut else ""
        masked = ", secrets masked" if call.result_masked else ""
        lines.append(f"result:    {result}\n           ({tables.plural(call.tokens_out, 'token')}{cut}{masked})")
    elif call.result_bytes:
        lines.append(f"result:    not kept ({tables.plural(call.result_bytes, 'byte')})")
    if call.run is not UNSET:
        lines.append(
            f"again:     mcp-hub history run {call.id}" if call.run.possible else f"again:     {call.run.text}"
        )
    return lines


def _subject(call: HistoryCall) -> str:
    """The called name with its server; the server's own name only if different."""
    server = call.server or "the hub"
    if call.name == call.method:  # of a URI that was not kept
        return f"not kept, of {server}"
    return f"{call.name} of {server}" if call.name == call.tool else f"{call.name} ({call.tool} of {server})"


def _status(call: HistoryCall) -> str:
    """Status, reason and code, such as `failed: no row [upstream_error]`; a word that they share stands once."""
    text = (
        call.message if call.message.startswith(call.status) else ": ".join(filter(None, (call.status, call.message)))
    )
    return text if call.code in ("", call.status) else f"{text} [{call.code}]"


def _arguments(call: HistoryCall) -> str:
    text = _text(call.arguments, call.arguments_text)
    if call.arguments_hash:
        return f"not kept; their hash is {call.arguments_hash}"
    if not text:
        return f"not kept ({tables.plural(call.arguments_bytes, 'byte')})" if call.arguments_bytes else "none"
    notes = [tables.plural(call.tokens_in, "token")]
    notes += ["secrets masked"] if call.arguments_masked else []
    notes += ["long values cut"] if call.arguments_cut else []
    return f"{text} ({', '.join(notes)})"


def _text(raw: RawJson | msgspec.UnsetType, text: str) -> str:
    return text if raw is UNSET else bytes(raw).decode("utf-8", "replace")


@history.command("run")
@click.argument("call")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@hub_options
def run(call: str, yes: bool, reach: Reach) -> None:
    """Make a call again, with the arguments that were kept, after asking.

    Refused where an argument was masked, cut or not kept, and where the definition of the tool has changed since.
    Without a terminal it needs --yes.
    """
    if not yes and not sys.stdin.isatty():
        fail("usage", "Nothing is called: without a terminal the command needs --yes.")
    run_with_hub(reach, lambda hub: _run(hub, call, is_asked=not yes), operates=True)


async def _run(hub: ReachedHub, id_: str, *, is_asked: bool) -> int:
    call = await hub.client.lists.past_call(id_)
    await hub.find(call.name, lambda text: None)
    call = await hub.client.lists.past_call(id_)  # once its server is there
    if call.run is not UNSET and not call.run.possible:
        say(f"{call.run.text} [{call.run.code}]")
        return EXIT_TOOL
    say(f"{call.name} {_text(call.arguments, '') or '{}'}")
    if is_asked and not agrees("Make this call again?", default=False):
        say("Nothing is called.")
        return EXIT_TOOL
    nothing: Callable[[], Awaitable[RawJson]] = _nothing
    return await run_call(hub, call.name, nothing, Output("text"), past=id_)


async def _nothing() -> RawJson:
    return b"{}"


@history.command("export")
@_filtered
@stream_options
def export(reach: Reach, **chosen: Any) -> None:
    """Print calls with their arguments and results as JSON lines, newest first."""
    run_with_history(reach, lambda access: _exported(access, HistoryQuery(limit=MOST_DETAILS, details=True, **chosen)))


async def _exported(access: "HistoryAccess", query: HistoryQuery) -> int:
    out = json_output()
    while True:
        page = await access.history(query)
        for hint in page.hints:
            say(hint)
        for call in page.calls:
            out.write(msgspec.json.encode(call) + b"\n")
        if not page.before:
            break
        query = msgspec.structs.replace(query, before=page.before)
    out.flush()
    for line in _notes(page):
        say(line, "yellow")
    return 0


@history.command("clear")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@stream_options
def clear(yes: bool, reach: Reach) -> None:
    """Remove every call from the history.

    Without a terminal it needs --yes.
    """
    if not yes and not sys.stdin.isatty():
        fail("usage", "Nothing is removed: without a terminal the command needs --yes.")
    if not yes and not agrees("Remove every call from the history? It cannot be undone.", default=False):
        say("Nothing is removed.")
        raise SystemExit(EXIT_TOOL)
    run_with_history(reach, _cleared)


async def _cleared(access: "HistoryAccess") -> int:
    put(f"Removed {tables.plural(await access.clear_history(), 'call')}.")
    return 0


_LOOK: Final = 0.25
"""Seconds between two looks with --follow: as often as hubs write."""
_LEVELS: Final = {"warning": "yellow", "error": "red", "critical": "red"}
_COLORS: Final = ("cyan", "magenta", "blue", "green", "yellow", "bright_cyan", "bright_magenta", "bright_blue")


@click.command()
@click.argument("server", required=False, shell_complete=completion.servers)
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines until Ctrl-C.")
@click.option(
    "--lines", "-n", type=click.IntRange(min=0), default=100, show_default=True, metavar="N",
    help="Print the last N lines.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@config_option
def logs(server: str | None, follow: bool, lines: int, as_json: bool, config: str | None) -> None:
    """Show what servers wrote to stderr.

    Prints the stderr of all servers, or of SERVER, and what the hub says about them, in the order of time; also when no
    hub runs any more. Starts nothing.
    """
    path = os.path.abspath(config_path(config))
    folder = log_folder(state_dir(os.environ), path)
    if server is not None and server not in ServerLogReader(folder).servers():
        check_servers(load_config(config, partly=True), [server])
    reader = ServerLogReader(folder, server)
    records = reader.fresh()
    if not records:
        subject = path if server is None else f'"{server}" of {path}'
        say(f"There is no log of {subject}. A hub writes one when it runs a server.")
    _print(records[len(records) - min(lines, len(records)) :], as_json)
    if follow:
        run_with(_no_hub, lambda _: _follow(reader, as_json))


@asynccontextmanager
async def _no_hub() -> AsyncIterator[None]:
    yield


async def _follow(reader: ServerLogReader, as_json: bool) -> int:
    while True:
        await anyio.sleep(_LOOK)
        _print(await anyio.to_thread.run_sync(reader.fresh), as_json)


def _print(records: Sequence[LogRecord], as_json: bool) -> None:
    if as_json:
        for record in records:
            put_json(msgspec.json.encode(record))
        return
    out = tables.console()
    for record in records:
        out.print(_line(record), soft_wrap=True)


def _line(record: LogRecord) -> "Text":
    """`2026-11-27 16:01:02 git | text`, in local time."""
    from rich.text import Text

    moment = tables.unix_time(record.time)
    when = record.time if moment is None else f"{datetime.fromtimestamp(moment):%Y-%m-%d %H:%M:%S}"
    color = _COLORS[sum(record.server.encode(errors="replace")) % len(_COLORS)]
    line = Text.assemble((visible(f"{when} "), "dim"), (visible(record.server), color), (" | ", "dim"))
    if record.stderr is not None:
        return line.append(visible(record.stderr))
    message = " ".join([record.event, *(f"{key}={value}" for key, value in record.data.items())])
    return line.append(visible(f"hub: {message}"), _LEVELS.get(record.level, "bold"))
