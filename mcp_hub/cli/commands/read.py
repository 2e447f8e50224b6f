"""`mcp-hub read` reads a resource, `mcp-hub prompt` gets a prompt: each shown as a call is."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcp_hub.cli import arguments, completion
from mcp_hub.cli.access.hub import Reach, ReachedHub, hub_options, run_with_hub
from mcp_hub.cli.commands.call import run_call
from mcp_hub.cli.setup import Output, output_options
from mcp_hub.types import JsonObject, Kind, RawJson

if TYPE_CHECKING:
    from mcp_hub.client import HubClient

_json_option: Callable[[Any], Any] = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_output_options = output_options(lambda given: "json" if given["as_json"] else "text")


@click.command()
@click.argument("uri", shell_complete=completion.resources)
@_json_option
@_output_options
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
@_output_options
@hub_options
def prompt(name: str, loose: Sequence[str], pairs: Sequence[str], as_json: bool, output: Output, reach: Reach) -> None:
    """Get the prompt NAME and print its messages.

    Each KEY=VALUE is one argument of the prompt, as text.
    """
    arguments.check_text(name, f"NAME {name!r}")
    given = arguments.split_pairs([*pairs, *loose])

    async def got(hub: ReachedHub) -> int:
        async def checked() -> RawJson:
            await _check(hub.client, name, given)
            return msgspec.json.encode(given)

        return await run_call(hub, name, checked, output, kind=Kind.PROMPT, is_verbose=reach.verbose > 0)

    run_with_hub(reach, got)


async def _check(client: "HubClient", name: str, given: dict[str, str]) -> None:
    """Raises `ConfigError` for arguments that do not fit the prompt. An unknown one is left to the hub."""
    for raw in (await client.lists.prompts()).prompts:
        definition = msgspec.json.decode(raw, type=JsonObject)
        if definition.get("name") == name:
            listed = definition.get("arguments")
            known = {own["name"]: own for own in listed or () if isinstance(own, dict) and "name" in own}
            required = [key for key, own in known.items() if own.get("required") is True]
            arguments.check_known(name, given, given, known, required)
