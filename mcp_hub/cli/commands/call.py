"""`mcp-hub call`, `read` and `prompt`. SIGINT and SIGTERM cancel the call at its server."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio
import click
import msgspec

from mcp_hub.cli import arguments, completion
from mcp_hub.cli.access.answering import answered
from mcp_hub.cli.access.following import followed, refuse, show_for
from mcp_hub.cli.access.hub import Reach, ReachedHub, hub_options, run_with_client, run_with_hub
from mcp_hub.cli.render.output import put
from mcp_hub.cli.render.renderers import Show
from mcp_hub.cli.setup import EXIT_INTERRUPTED, Output, output_options
from mcp_hub.errors import HubError, InvalidParams, RpcError
from mcp_hub.events import InputRequired
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.selection import check_path
from mcp_hub.types import JsonObject, Kind, RawJson, RawObject

if TYPE_CHECKING:
    from mcp_hub.client import HubClient, HubStream

_json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_json_output = output_options(lambda options: "json" if options["as_json"] else "text")
_CANCELLING: Final = 3.0
"""Seconds in which a hub has to take in that a call is cancelled."""
_STARTING: Final = 10
"""Seconds to wait for the servers of a running hub, if no tool is known."""
_METHODS: Final = {Kind.TOOL: "tools/call", Kind.PROMPT: "prompts/get", Kind.RESOURCE: "resources/read"}


class _Wanted(msgspec.Struct, frozen=True):
    name: str
    base: RawObject
    has_json: bool
    pairs: dict[str, str]
    output: Output
    is_verbose: bool
    path: str | None = None


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
@output_options(lambda options: "text" if options["json_lines"] is None else "jsonl")
@click.option("--path", metavar="JSONPATH", help="Print only what this path selects of the result: $.items[*].name.")
@click.option("--detach", is_flag=True, help="Start the call in the running hub, print its stream id and exit.")
@hub_options
def call(
    name: str,
    loose: Sequence[str],
    pairs: Sequence[str],
    args_json: str | None,
    json_lines: str | None,
    output: Output,
    path: str | None,
    detach: bool,
    reach: Reach,
) -> None:
    """Call the tool NAME and show its progress and result.

    NAME is a name that `mcp-hub tools` lists. Each KEY=VALUE is one argument: as JSON, or as text where the tool
    expects a string. In a running hub, the call survives a lost connection; `mcp-hub resume` follows it, and -v shows
    its stream id.
    """
    arguments.check_text(name, f"NAME {name!r}")
    check_detached(detach, reach, output)
    _check_path(path)
    base = _base(args_json, json_lines)
    request = _Wanted(
        name=name,
        base=base,
        has_json=bool(args_json or json_lines),
        pairs=arguments.split_pairs([*pairs, *loose]),
        output=output,
        is_verbose=reach.verbose > 0,
        path=path,
    )
    if detach:
        run_with_client(
            reach,
            lambda client: detached(client, name, lambda: _arguments(client, request, _STARTING), output, path),
        )
    run_with_hub(reach, lambda hub: _call(hub, request))


def check_detached(detach: bool, reach: Reach, output: Output) -> None:
    """Raises `UsageError` for options that --detach excludes."""
    if detach and reach.local:
        raise click.UsageError("--detach leaves the call to a hub that keeps running. Drop --local, or --detach.")
    if detach and output.folder is not None:
        raise click.UsageError("--detach does not wait for a result. Give --output to mcp-hub resume.")


def _check_path(path: str | None) -> None:
    """Raises `UsageError` for what is not a JSON path, before a server is started."""
    try:
        if path is not None:
            check_path(path)
    except InvalidParams as problem:
        raise click.UsageError(f"--path: {str(problem).removeprefix('path: ')}") from None


def _base(args_json: str | None, json_lines: str | None) -> RawObject:
    if args_json is not None and json_lines:
        raise click.UsageError("--args-json and --json both give arguments. Keep one of them.")
    if args_json is not None:
        return arguments.read_object(args_json, "--args-json", sys.stdin.buffer)
    return arguments.read_object(json_lines.strip(), "--args-json", sys.stdin.buffer) if json_lines else {}


async def _call(hub: ReachedHub, request: _Wanted) -> int:
    async def arguments_now() -> RawJson:
        return await _arguments(hub.client, request, _STARTING if hub.app is None else 0)

    return await run_call(
        hub, request.name, arguments_now, request.output, is_verbose=request.is_verbose, path=request.path
    )


async def run_call(
    hub: ReachedHub,
    name: str,
    arguments_of: Callable[[], Awaitable[RawJson]],
    output: Output,
    *,
    kind: Kind = Kind.TOOL,
    is_verbose: bool = False,
    past: str = "",
    path: str | None = None,
) -> int:
    """Makes a call and shows it to its end; returns the exit code. Raises `ConfigError`.

    `arguments_of` is awaited when the server is ready.
    """
    show = show_for(output, name)
    client = hub.client

    async def ask(question: InputRequired) -> str:
        return await answered(client, stream.stream or "", question, show, name)

    try:
        await hub.find(name, show.doing, kind)
        stream = client.stream(name, await arguments_of(), kind=kind, on_pause=show.doing, past=past, path=path)
        async with stream, _cancelled_unless_ended(stream, show):
            code = await followed(
                stream, show, ask, method=_METHODS[kind], folder=output.folder, names_stream=is_verbose
            )
        return EXIT_INTERRUPTED if code is None else code
    except RpcError as error:
        return refuse(show, error)
    finally:
        show.close()


async def detached(
    client: "HubClient", name: str, arguments_of: Callable[[], Awaitable[RawJson]], output: Output, path: str | None
) -> int:
    """Starts a call, prints its stream's id; returns the exit code. Raises `ConfigError`."""
    form = "text" if output.form == "text" else "jsonl"
    show = show_for(Output(form), name)
    show.close()
    try:
        stream = await client.start(name, await arguments_of(), path=path)
    except RpcError as error:
        return refuse(show, error)
    put(stream if form == "text" else msgspec.json.encode({"stream": stream}).decode())
    return 0


async def _arguments(client: "HubClient", request: _Wanted, wait: int) -> RawJson:
    """The hub refuses an unknown tool. Raises `ConfigError`, `RpcError`."""
    definition: RawJson = b"{}"
    if request.pairs or not request.has_json:
        name = msgspec.json.encode(request.name)
        named = (
            raw for raw in await client.tools(wait=wait) if (raw_object(raw) or {}).get("name") == msgspec.Raw(name)
        )
        definition = next(named, definition)
        arguments.check_names(request.name, request.pairs, request.base, definition)
    return arguments.compose(request.base, request.pairs, definition)


@asynccontextmanager
async def _cancelled_unless_ended(stream: "HubStream", show: Show) -> AsyncIterator[None]:
    """Cancels the call if the block is left early."""
    try:
        yield
    except HubError:
        raise
    except BaseException as left:
        is_cancelled = False
        with anyio.move_on_after(_CANCELLING, shield=True), suppress(HubError):
            await stream.cancel()
            is_cancelled = True
        if isinstance(left, anyio.get_cancelled_exc_class()):
            show.close()
            named = f"stream {stream.stream}" if stream.stream else "no stream yet"
            show.note(
                f"cancelled ({named})" if is_cancelled else f"interrupted, but the hub did not confirm it ({named})"
            )
        raise


@click.command()
@click.argument("uri", shell_complete=completion.resources)
@_json_option
@_json_output
@hub_options
def read(uri: str, as_json: bool, output: Output, reach: Reach) -> None:
    """Read the resource URI and print it.

    URI is one that the hub or its server lists, or that a template admits. A pipe gets binary content as it is;
    --output DIR saves it.
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


async def _check(client: "HubClient", name: str, values: dict[str, str]) -> None:
    for raw in (await client.lists.prompts()).prompts:
        definition = msgspec.json.decode(raw, type=JsonObject)
        if definition.get("name") == name:
            listed = definition.get("arguments")
            parameters = {item["name"]: item for item in listed or () if isinstance(item, dict) and "name" in item}
            required = [key for key, item in parameters.items() if item.get("required") is True]
            arguments.check_known(name, values, values, parameters, required)
