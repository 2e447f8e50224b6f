"""`mcp-hub call`: calls one tool, shows what it says while it runs, and ends with its result.

SIGINT and SIGTERM end the call, wherever it runs: its server is told that it is cancelled before anything is stopped.
With `--detach` the call is left to a hub that runs already, and the id of its stream is all that is waited for.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import click
import msgspec

from mcp_hub.cli import arguments
from mcp_hub.cli.access.embedded import EmbeddedHub
from mcp_hub.cli.access.following import Events, followed, refuse, show_for
from mcp_hub.cli.access.remote import RemoteHub, run_with_hub, url_options
from mcp_hub.cli.setup import (
    EXIT_INTERRUPTED,
    config_option,
    load_config,
    quiet_logs,
    run_with_app,
    verbose_option,
    wait_option,
)
from mcp_hub.errors import RpcError
from mcp_hub.types import RawJson, RawObject

__all__ = ["call"]


class _Hub(Protocol):
    """Where the tool is called: a hub that the command starts, or one that runs already."""

    async def definition(self, name: str, doing: Callable[[str], None]) -> RawJson:
        """The tool's definition, from which arguments get their types. Raises `RpcError`."""
        ...

    def call(self, name: str, given: RawJson, told: Callable[[str], None]) -> AbstractAsyncContextManager[Events]:
        """The call's events; leaving the block before their end ends the call. `told` is given the id of its stream.

        Raises `RpcError`.
        """
        ...


class _Wanted(msgspec.Struct, frozen=True):
    """One call as the command line has it."""

    name: str
    base: RawObject
    pairs: dict[str, str]
    output: str
    is_verbose: bool


class _CallCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, arguments.spelled_out(args))


def _refuse_loose(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    """Says how the tool's arguments are given, to who puts them behind its name."""
    if values:
        loose = values[0][:100]
        how = f"--arg {loose!r}" if "=" in loose and loose[0] != "{" else "--arg NAME=VALUE or --args-json TEXT"
        raise click.UsageError(f"{loose!r}: the tool's arguments are given as options: {how}", ctx)


@click.command(cls=_CallCommand)
@click.argument("name")
@click.argument("loose", nargs=-1, metavar="", expose_value=False, callback=_refuse_loose)
@click.option(
    "--arg", "pairs", multiple=True, metavar="NAME=VALUE",
    help="One argument, as JSON, or as plain text where the tool expects a string. Repeatable.",
)  # fmt: skip
@click.option("--args-json", metavar="TEXT|@FILE|-", help="All arguments as one JSON object; - reads it from stdin.")
@click.option(
    "--json", "json_lines", is_flag=False, flag_value="", metavar="[TEXT|@FILE]",
    help="Print JSON lines. An optional value gives all arguments as JSON.",
)  # fmt: skip
@click.option(
    "--output", type=click.Choice(["text", "json", "jsonl"]), help="Output format. Default: text, or jsonl with --json."
)
@click.option("--detach", is_flag=True, help="Start the call in the hub at --url, print its stream id and exit.")
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
    detach: bool,
    wait: float,
    verbose: int,
    config: str | None,
    url: str | None,
    token: str | None,
) -> None:
    """Call the tool NAME and show its progress and result.

    NAME is a name that `mcp-hub tools` lists. With --url, the call survives a lost connection. Use `mcp-hub resume` to
    follow a detached call; for other calls, -v shows the stream id.
    """
    _check_name(name)
    if detach and url is None:
        raise click.UsageError(
            "--detach leaves the call to a hub that goes on running: give its --url, or drop --detach"
        )
    base = _base(args_json, json_lines)
    chosen = output or ("text" if json_lines is None else "jsonl")
    wanted = _Wanted(name, base, arguments.split_pairs(pairs), chosen, verbose > 0)
    if url is not None:
        run = _detach if detach else _call
        run_with_hub(url, token, lambda client: run(RemoteHub(client), wanted))
    loaded = load_config(config)
    quiet_logs(verbose)
    prefixes = {server: own.prefix or server for server, own in loaded.settings.servers.items()}
    run_with_app(loaded, lambda app: _call(EmbeddedHub(app.hub, prefixes, wait), wanted))


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


async def _call(hub: _Hub, wanted: _Wanted) -> int:
    show = show_for(wanted.output, wanted.name)

    def told(stream: str) -> None:
        if wanted.is_verbose:
            show.note(f"stream {stream}")

    try:
        definition = await hub.definition(wanted.name, show.doing)
        given = arguments.compose(wanted.base, wanted.pairs, definition)
        async with hub.call(wanted.name, given, told) as events:
            code = await followed(events, show, lambda question: f"declined what the tool asks: {question.method}")
        return EXIT_INTERRUPTED if code is None else code
    except RpcError as error:
        return refuse(show, error)
    finally:
        show.close()


async def _detach(hub: RemoteHub, wanted: _Wanted) -> int:
    show = show_for("text" if wanted.output == "text" else "jsonl", wanted.name)
    show.close()
    try:
        definition = await hub.definition(wanted.name, lambda what: None)
        stream = await hub.start(wanted.name, arguments.compose(wanted.base, wanted.pairs, definition))
    except RpcError as error:
        return refuse(show, error)
    click.echo(stream if wanted.output == "text" else msgspec.json.encode({"stream": stream}))
    return 0
