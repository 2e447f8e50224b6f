"""`mcp-hub call`: calls one tool, shows what it says while it runs, and ends with its result.

SIGINT and SIGTERM stop the hub, which ends the call: its server is told that it is cancelled before it is stopped.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import click
import msgspec

from mcp_hub.cli import arguments, results, waiting
from mcp_hub.cli.setup import (
    EXIT_CONFIG,
    EXIT_INTERRUPTED,
    EXIT_TOOL,
    EXIT_UNAVAILABLE,
    config_option,
    load_config,
    quiet_logs,
    run_with_app,
    verbose_option,
    wait_option,
)
from mcp_hub.cli.shows import JsonLines, OnTerminal, Quiet, Show
from mcp_hub.errors import DeadlineExceeded, RpcError, UnknownEntry, UpstreamLost, UpstreamUnavailable
from mcp_hub.events import Cancelled, Completed, Ending, Failed
from mcp_hub.ids import new_session_id
from mcp_hub.protocol import eras, shape
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.protocol.rpc_errors import for_caller
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import Era, Kind, RawObject, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.calls.runner import CallRecord
    from mcp_hub.catalog.view import Entry
    from mcp_hub.hub import Facade

__all__ = ["call", "exit_code", "unknown_tool"]

_WITH_PROGRESS: Final = RequestMeta(b'"cli"', None, None, None, None, {})


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One call as the command line has it."""

    name: str
    base: RawObject
    pairs: dict[str, str]
    wait: float


class _CallCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, arguments.spelled_out(args))


@click.command(cls=_CallCommand)
@click.argument("name")
@click.option(
    "--arg", "pairs", multiple=True, metavar="NAME=VALUE",
    help="One argument; JSON, or text where the tool wants text. Repeatable.",
)  # fmt: skip
@click.option("--args-json", metavar="TEXT|@FILE|-", help="All arguments as one JSON object; - reads stdin.")
@click.option(
    "--json", "json_lines", is_flag=False, flag_value="", metavar="[TEXT|@FILE]",
    help="Print JSON lines; may be followed by the arguments.",
)  # fmt: skip
@click.option("--output", type=click.Choice(["text", "json", "jsonl"]), help="What to print (text, with --json jsonl).")
@wait_option
@verbose_option
@config_option
def call(
    name: str,
    pairs: Sequence[str],
    args_json: str | None,
    json_lines: str | None,
    output: str | None,
    wait: float,
    verbose: int,
    config: str | None,
) -> None:
    """Call the tool NAME, as `mcp-hub tools` lists it."""
    base = _base(args_json, json_lines)
    wanted = _Wanted(name, base, arguments.split_pairs(pairs), wait)
    loaded = load_config(config)
    quiet_logs(verbose)
    chosen = output or ("text" if json_lines is None else "jsonl")
    prefixes = {server: own.prefix or server for server, own in loaded.settings.servers.items()}
    run_with_app(loaded, lambda app: _call(app.hub, wanted, prefixes, chosen))


def _base(args_json: str | None, json_lines: str | None) -> RawObject:
    """The arguments that came as JSON. Raises: `UsageError`."""
    if args_json is not None and json_lines:
        raise click.UsageError("--args-json and --json both give arguments; keep one of them")
    if args_json is not None:
        return arguments.read_object(args_json, "--args-json", sys.stdin.buffer)
    return arguments.read_object(json_lines.strip(), "--json", sys.stdin.buffer) if json_lines else {}


def _show(output: str, name: str) -> Show:
    if output == "jsonl":
        return JsonLines(sys.stdout.buffer)
    if output == "json" or not sys.stdout.isatty():
        return Quiet(sys.stdout.buffer, as_json=output == "json")
    from rich.console import Console

    return OnTerminal(name, Console(), Console(stderr=True), sys.stderr.isatty())


async def _call(hub: "Facade", wanted: _Wanted, prefixes: Mapping[str, str], output: str) -> int:
    session = Session(new_session_id(), Caller(), Era.HANDSHAKE, eras.LATEST_HANDSHAKE)
    show = _show(output, wanted.name)
    try:
        entry = await _found(hub, session, wanted, show)
        if entry is None:
            near = hub.view(session).nearest(Kind.TOOL, wanted.name)
            return _refuse(show, unknown_tool(wanted.name, near, hub.statuses(), prefixes))
        return await _run(hub, session, entry, wanted, show)
    finally:
        show.close()


async def _found(hub: "Facade", session: Session, wanted: _Wanted, show: Show) -> "Entry | None":
    """The tool, as soon as a server has it; None when every server was asked or the time is over."""

    def is_enough() -> bool:
        show.doing(waiting.starting_text(hub.statuses()))
        return hub.view(session).find(Kind.TOOL, wanted.name) is not None or waiting.all_settled(hub)

    await waiting.wait_until(hub, is_enough, wanted.wait)
    show.doing("")
    return hub.view(session).find(Kind.TOOL, wanted.name)


async def _run(hub: "Facade", session: Session, entry: "Entry", wanted: _Wanted, show: Show) -> int:
    params = {
        "name": msgspec.Raw(msgspec.json.encode(wanted.name)),
        "arguments": arguments.compose(wanted.base, wanted.pairs, entry.raw),
    }
    try:
        ending = await _followed(hub.call(session, "tools/call", params, _WITH_PROGRESS), show)
        match ending:
            case Completed():
                outcome = results.Outcome.of(b"".join(shape.call_result("tools/call", ending, session.era)))
                show.outcome(outcome)
                return EXIT_TOOL if outcome.is_error else 0
            case Failed(error):
                return _refuse(show, for_caller(error, session.era, entry.server))
            case Cancelled():
                return EXIT_INTERRUPTED
    except RpcError as error:
        return _refuse(show, error)


async def _followed(record: "CallRecord", show: Show) -> Ending:
    """Shows the call's events as they come; its ending."""
    news = anyio.Event()
    reader = record.log.reader(lambda: news.set())
    try:
        while True:
            for event in reader.take():
                if isinstance(event, Completed | Failed | Cancelled):
                    return event
                show.event(event)
            if reader.has_more:
                await anyio.lowlevel.checkpoint()
            else:
                await news.wait()
                news = anyio.Event()
    finally:
        reader.close()


def _refuse(show: Show, error: RpcError) -> int:
    """Shows an error; the exit code that says whose it is."""
    code = exit_code(error)
    show.error(error, f"error {error.code}: {error.message}" if code == EXIT_TOOL else error.message)
    return code


def exit_code(error: RpcError) -> int:
    """2: no such tool. 3: its server is not there or does not answer. 1: the server answered with this error."""
    match error:
        case UnknownEntry() if error.raw is None:
            return EXIT_CONFIG
        case UpstreamUnavailable() | UpstreamLost() | DeadlineExceeded():
            return EXIT_UNAVAILABLE
        case _:
            return EXIT_TOOL


def unknown_tool(
    name: str, nearest: Sequence[str], statuses: Sequence[UpstreamStatus], prefixes: Mapping[str, str]
) -> RpcError:
    """Why there is no such tool: a server whose prefix the name has is not ready, else nobody knows it.

    Names are compared with what is configured, never taken apart (architecture.md, `catalog.names`).
    """
    missing = waiting.not_ready(statuses)
    for status in missing:
        if name.startswith(f"{prefixes[status.server]}_"):
            reason = status.reason or "still starting"
            return UpstreamUnavailable(f'upstream "{status.server}" is {status.state.value}: {reason}')
    text = f"unknown tool: {name}"
    if nearest:
        text += f"; did you mean {', '.join(nearest)}?"
    if missing:
        text += f" (servers that are not ready: {', '.join(status.server for status in missing)}; see mcp-hub doctor)"
    return UnknownEntry(text)
