"""`mcp-hub call`: calls one tool, shows what it says while it runs, and ends with its result.

SIGINT and SIGTERM end the call, wherever it runs: its server is told that it is cancelled before anything is stopped.
"""

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import click

from mcp_hub.cli import arguments, results
from mcp_hub.cli.own_hub import OwnHub
from mcp_hub.cli.running_hub import RunningHub, run_with_hub, url_options
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
from mcp_hub.errors import DeadlineExceeded, HubStopping, RpcError, UnknownEntry, UpstreamLost, UpstreamUnavailable
from mcp_hub.events import CallEvent, Cancelled, Completed, Failed
from mcp_hub.protocol import shape
from mcp_hub.types import Era, RawJson, RawObject

__all__ = ["call", "exit_code"]


class _Hub(Protocol):
    """Where the tool is called: a hub that the command starts, or one that runs already."""

    async def definition(self, name: str, doing: Callable[[str], None]) -> RawJson:
        """The tool's definition, from which arguments get their types. Raises `RpcError`."""
        ...

    def call(self, name: str, given: RawJson) -> AbstractAsyncContextManager[AsyncIterator[CallEvent]]:
        """The call's events; leaving the block before their end ends the call. Raises `RpcError`."""
        ...


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One call as the command line has it."""

    name: str
    base: RawObject
    pairs: dict[str, str]
    output: str


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
@url_options
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
    url: str | None,
    token: str | None,
) -> None:
    """Call the tool NAME, as `mcp-hub tools` lists it."""
    _check_name(name)
    base = _base(args_json, json_lines)
    chosen = output or ("text" if json_lines is None else "jsonl")
    wanted = _Wanted(name, base, arguments.split_pairs(pairs), chosen)
    if url is not None:
        run_with_hub(url, token, lambda client: _call(RunningHub(client), wanted))
    loaded = load_config(config)
    quiet_logs(verbose)
    prefixes = {server: own.prefix or server for server, own in loaded.settings.servers.items()}
    run_with_app(loaded, lambda app: _call(OwnHub(app.hub, prefixes, wait), wanted))


def _check_name(name: str) -> None:
    """Raises: `UsageError`."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"NAME {name!r}: not UTF-8 text") from None


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


async def _call(hub: _Hub, wanted: _Wanted) -> int:
    show = _show(wanted.output, wanted.name)
    try:
        definition = await hub.definition(wanted.name, show.doing)
        given = arguments.compose(wanted.base, wanted.pairs, definition)
        async with hub.call(wanted.name, given) as events:
            return await _followed(events, show)
    except RpcError as error:
        return _refuse(show, error)
    finally:
        show.close()


async def _followed(events: AsyncIterator[CallEvent], show: Show) -> int:
    """Shows the events as they come; the exit code of their ending."""
    async for event in events:
        match event:
            case Completed():
                outcome = results.Outcome.of(b"".join(shape.call_result("tools/call", event, Era.HANDSHAKE)))
                show.outcome(outcome)
                return EXIT_TOOL if outcome.is_error else 0
            case Failed(error):
                return _refuse(show, error)
            case Cancelled():
                break
            case _:
                show.event(event)
    return EXIT_INTERRUPTED


def _refuse(show: Show, error: RpcError) -> int:
    """Shows an error; the exit code that says whose it is."""
    code = exit_code(error)
    show.error(error, f"error {error.code}: {error.message}" if code == EXIT_TOOL else error.message)
    return code


def exit_code(error: RpcError) -> int:
    """2: no such tool. 3: its server is not there or does not answer. 1: the server answered with this error."""
    match error:
        case UnknownEntry():
            return EXIT_CONFIG
        case UpstreamUnavailable() | UpstreamLost() | DeadlineExceeded() | HubStopping():
            return EXIT_UNAVAILABLE
        case _:
            return EXIT_TOOL
