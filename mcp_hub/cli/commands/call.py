"""`mcp-hub call`: calls one tool, shows its progress while it runs, and ends with its result. Also `read` and `prompt`.

SIGINT and SIGTERM end the call, wherever it runs: the hub cancels it at its server before anything is stopped. With
`--detach` the call is left to a running hub, and the command only waits for the id of its stream.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import click
import msgspec

from mcp_hub.cli import arguments, completion
from mcp_hub.cli.access.following import followed, refuse, show_for
from mcp_hub.cli.access.hub import Reach, ReachedHub, hub_options, run_with_client, run_with_hub
from mcp_hub.cli.questions.answering import answered
from mcp_hub.cli.render.output import put
from mcp_hub.cli.render.renderers import Show
from mcp_hub.cli.setup import EXIT_INTERRUPTED, Output, output_options
from mcp_hub.errors import HubError, RpcError
from mcp_hub.events import InputRequired
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import JsonObject, Kind, RawJson, RawObject

if TYPE_CHECKING:
    from mcp_hub.client import HubClient, HubStream

_json_option: Callable[[Any], Any] = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_json_output = output_options(lambda given: "json" if given["as_json"] else "text")
_CANCELLING: Final = 3.0
"""Seconds in which a hub has to take in that a call is cancelled."""
_METHODS: Final = {Kind.TOOL: "tools/call", Kind.PROMPT: "prompts/get", Kind.RESOURCE: "resources/read"}


class _Wanted(msgspec.Struct, frozen=True):
    """One call as the command line has it."""

    name: str
    base: RawObject
    has_json: bool
    pairs: dict[str, str]
    output: Output
    is_verbose: bool


class _CallCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, arguments.spelled_out(args))


@click.command(cls=_CallCommand)
@click.argument("name", shell_complete=completion.tools)
@click.argument("loose", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--arg", "pairs", multiple=True, metavar="KEY=VALUE", help="The same as KEY=VALUE. Repeatable.")
@click.option("--args-json", metavar="TEXT|@FILE|-", help="All arguments as one JSON object; - reads it from stdin.")
@click.option(
    "--json", "json_lines", is_flag=False, flag_value="", metavar="[TEXT|@FILE]",
    help="Print JSON lines. An optional value gives all arguments as JSON.",
)  # fmt: skip
@output_options(lambda given: "text" if given["json_lines"] is None else "jsonl")
@click.option("--detach", is_flag=True, help="Start the call in the running hub, print its stream id and exit.")
@hub_options
def call(
    name: str,
    loose: Sequence[str],
    pairs: Sequence[str],
    args_json: str | None,
    json_lines: str | None,
    output: Output,
    detach: bool,
    reach: Reach,
) -> None:
    """Call the tool NAME and show its progress and result.

    NAME is a name that `mcp-hub tools` lists. Each KEY=VALUE is one argument: as JSON, or as plain text where the tool
    expects a string. In a running hub, the call survives a lost connection. Use
    `mcp-hub resume` to follow a detached call; for other calls, -v shows the stream id.
    """
    arguments.check_text(name, f"NAME {name!r}")
    if detach and reach.local:
        raise click.UsageError("--detach leaves the call to a hub that keeps running. Drop --local, or --detach.")
    if detach and output.folder is not None:
        raise click.UsageError("--detach does not wait for a result. Give --output to mcp-hub resume.")
    base = _base(args_json, json_lines)
    wanted = _Wanted(
        name=name,
        base=base,
        has_json=bool(args_json or json_lines),
        pairs=arguments.split_pairs([*pairs, *loose]),
        output=output,
        is_verbose=reach.verbose > 0,
    )
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
    async def arguments_now() -> RawJson:
        return await _arguments(hub.client, wanted)

    return await run_call(hub, wanted.name, arguments_now, wanted.output, is_verbose=wanted.is_verbose)


async def run_call(
    hub: ReachedHub,
    name: str,
    arguments_of: Callable[[], Awaitable[RawJson]],
    output: Output,
    *,
    kind: Kind = Kind.TOOL,
    is_verbose: bool = False,
    past: str = "",
) -> int:
    """Calls a tool, gets a prompt or reads a resource, and shows it to its end; the exit code.

    The arguments are made when its server is there; not those of a `past` call, which is made again. Raises
    `ConfigError` as they do.
    """
    show = show_for(output, name)
    client = hub.client

    async def asked(question: InputRequired) -> str:
        return await answered(client, stream.stream or "", question, show, name)

    try:
        await hub.find(name, show.doing, kind)
        stream = client.stream(name, await arguments_of(), kind=kind, on_pause=show.doing, past=past)
        async with stream, _cancelled_unless_ended(stream, show):
            code = await followed(
                stream, show, asked, method=_METHODS[kind], folder=output.folder, names_stream=is_verbose
            )
        return EXIT_INTERRUPTED if code is None else code
    except RpcError as error:
        return refuse(show, error)
    finally:
        show.close()


async def _detach(client: "HubClient", wanted: _Wanted) -> int:
    form = "text" if wanted.output.form == "text" else "jsonl"
    show = show_for(Output(form), wanted.name)
    show.close()
    try:
        stream = await client.start(wanted.name, await _arguments(client, wanted))
    except RpcError as error:
        return refuse(show, error)
    put(stream if form == "text" else msgspec.json.encode({"stream": stream}).decode())
    return 0


async def _arguments(client: "HubClient", wanted: _Wanted) -> RawJson:
    """The arguments; texts become what the tool's definition says. An unknown tool is left to the hub.

    Raises `ConfigError` for a text whose name the tool does not have, and for arguments that are missing unless any
    came as JSON.
    """
    definition: RawJson = b"{}"
    if wanted.pairs or not wanted.has_json:
        name = msgspec.json.encode(wanted.name)
        named = (raw for raw in await client.tools() if (raw_object(raw) or {}).get("name") == msgspec.Raw(name))
        definition = next(named, definition)
        arguments.check_names(wanted.name, wanted.pairs, wanted.base, definition)
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


@click.command()
@click.argument("uri", shell_complete=completion.resources)
@_json_option
@_json_output
@hub_options
def read(uri: str, as_json: bool, output: Output, reach: Reach) -> None:
    """Read the resource URI and print it.

    URI is one that the hub lists, one of its server's own, or one that a template admits. In a pipe, a resource that
    is not text is written as it is; --output DIR saves it.
    """
    arguments.check_text(uri, f"URI {uri!r}")

    async def nothing() -> RawJson:
        return b"{}"

    run_with_hub(
        reach, lambda hub: run_call(hub, uri, nothing, output, kind=Kind.RESOURCE, is_verbose=reach.verbose > 0)
    )


@click.command()
@click.argument("name", shell_complete=completion.prompts)
@click.argument("loose", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--arg", "pairs", multiple=True, metavar="KEY=VALUE", help="The same as KEY=VALUE. Repeatable.")
@_json_option
@_json_output
@hub_options
def prompt(name: str, loose: Sequence[str], pairs: Sequence[str], as_json: bool, output: Output, reach: Reach) -> None:
    """Get the prompt NAME and print its messages.

    Each KEY=VALUE is one argument of the prompt, as text.
    """
    arguments.check_text(name, f"NAME {name!r}")
    arguments_given = arguments.split_pairs([*pairs, *loose])

    async def got(hub: ReachedHub) -> int:
        async def checked() -> RawJson:
            await _check(hub.client, name, arguments_given)
            return msgspec.json.encode(arguments_given)

        return await run_call(hub, name, checked, output, kind=Kind.PROMPT, is_verbose=reach.verbose > 0)

    run_with_hub(reach, got)


async def _check(client: "HubClient", name: str, given: dict[str, str]) -> None:
    """Raises `ConfigError` for arguments that do not fit the prompt. An unknown one is left to the hub."""
    for raw in (await client.lists.prompts()).prompts:
        definition = msgspec.json.decode(raw, type=JsonObject)
        if definition.get("name") == name:
            listed = definition.get("arguments")
            known = {item["name"]: item for item in listed or () if isinstance(item, dict) and "name" in item}
            required = [key for key, item in known.items() if item.get("required") is True]
            arguments.check_known(name, given, given, known, required)
