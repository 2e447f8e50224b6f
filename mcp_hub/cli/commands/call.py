"""`mcp-hub call`: calls one tool, shows its progress while it runs, and ends with its result.

SIGINT and SIGTERM end the call, wherever it runs: the hub cancels it at its server before anything is stopped. With
`--detach` the call is left to a running hub, and the command only waits for the id of its stream.
"""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio
import click
import msgspec

from mcp_hub.cli import arguments
from mcp_hub.cli.access.following import followed, refuse, show_for
from mcp_hub.cli.access.hub import Reach, ReachedHub, hub_options, run_with_client, run_with_hub
from mcp_hub.cli.render.renderers import Show
from mcp_hub.cli.setup import EXIT_INTERRUPTED, output_option
from mcp_hub.errors import HubError, InvalidParams, RpcError
from mcp_hub.events import InputRequired
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import RawJson, RawObject

if TYPE_CHECKING:
    from mcp_hub.client import HubClient, HubStream

_CANCELLING: Final = 3.0
"""Seconds in which a hub has to take in that a call is cancelled."""
_TRIES: Final = (0.5, 2.0, 5.0)
"""Seconds after each attempt to answer a question."""
_NOBODY: Final = RpcError("nobody can be asked: the call was made by a command", code=-32601)


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
    """Refuses arguments behind the tool's name and says how they are given."""
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
@output_option
@click.option("--detach", is_flag=True, help="Start the call in the running hub, print its stream id and exit.")
@hub_options
def call(
    name: str,
    pairs: Sequence[str],
    args_json: str | None,
    json_lines: str | None,
    output: str | None,
    detach: bool,
    reach: Reach,
) -> None:
    """Call the tool NAME and show its progress and result.

    NAME is a name that `mcp-hub tools` lists. In a running hub, the call survives a lost connection. Use
    `mcp-hub resume` to follow a detached call; for other calls, -v shows the stream id.
    """
    arguments.check_text(name, f"NAME {name!r}")
    if detach and reach.local:
        raise click.UsageError("--detach leaves the call to a hub that keeps running. Drop --local, or --detach.")
    base = _base(args_json, json_lines)
    chosen = output or ("text" if json_lines is None else "jsonl")
    wanted = _Wanted(name, base, arguments.split_pairs(pairs), chosen, reach.verbose > 0)
    if detach:
        run_with_client(reach, lambda client: _detach(client, wanted))
    run_with_hub(reach, lambda hub: _call(hub, wanted))


def _base(args_json: str | None, json_lines: str | None) -> RawObject:
    """The arguments that came as JSON. Raises: `UsageError`."""
    if args_json is not None and json_lines:
        raise click.UsageError("--args-json and --json both give arguments. Keep one of them.")
    if args_json is not None:
        return arguments.read_object(args_json, "--args-json", sys.stdin.buffer)
    return arguments.read_object(json_lines.strip(), "--args-json", sys.stdin.buffer) if json_lines else {}


async def _call(hub: ReachedHub, wanted: _Wanted) -> int:
    show = show_for(wanted.output, wanted.name)
    client = hub.client

    async def declined(question: InputRequired) -> str:
        await _decline(client, stream.stream or "", question.key)
        return f"declined what the tool asks: {question.method}"

    try:
        await hub.find(wanted.name, show.doing)
        stream = client.stream(wanted.name, await _arguments(client, wanted), on_pause=show.doing)
        async with stream, _cancelled_unless_ended(stream, show):
            code = await followed(stream, show, declined, names_stream=wanted.is_verbose)
        return EXIT_INTERRUPTED if code is None else code
    except RpcError as error:
        return refuse(show, error)
    finally:
        show.close()


async def _detach(client: "HubClient", wanted: _Wanted) -> int:
    show = show_for("text" if wanted.output == "text" else "jsonl", wanted.name)
    show.close()
    try:
        stream = await client.start(wanted.name, await _arguments(client, wanted))
    except RpcError as error:
        return refuse(show, error)
    click.echo(stream if wanted.output == "text" else msgspec.json.encode({"stream": stream}))
    return 0


async def _arguments(client: "HubClient", wanted: _Wanted) -> RawJson:
    """The arguments; texts of `--arg` become what the tool's definition says. An unknown tool is left to the hub."""
    definition: RawJson = b"{}"
    if wanted.pairs:
        name = msgspec.json.encode(wanted.name)
        named = (raw for raw in await client.tools() if (raw_object(raw) or {}).get("name") == msgspec.Raw(name))
        definition = next(named, definition)
    return arguments.compose(wanted.base, wanted.pairs, definition)


@asynccontextmanager
async def _cancelled_unless_ended(stream: "HubStream", show: Show) -> AsyncIterator[None]:
    """Cancels the call when the block is left in its middle; says so when the command was interrupted."""
    try:
        yield
    except HubError:
        raise
    except BaseException as left:
        done = False
        with anyio.move_on_after(_CANCELLING, shield=True), suppress(HubError):
            await stream.cancel()
            done = True
        if isinstance(left, anyio.get_cancelled_exc_class()):
            show.close()
            named = f"stream {stream.stream}" if stream.stream else "no stream yet"
            show.note(f"cancelled ({named})" if done else f"interrupted, but the hub did not confirm it ({named})")
        raise


async def _decline(client: "HubClient", stream: str, key: str) -> None:
    """Answers a question with an error, in a few attempts: without an answer the call would wait for minutes."""
    for pause in _TRIES:
        try:
            await client.refuse(stream, key, _NOBODY)
            return
        except InvalidParams:  # it is not open any more
            return
        except RpcError:
            await anyio.sleep(pause)
