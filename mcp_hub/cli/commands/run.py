"""`mcp-hub run`: a script over the tools, as a call, or against recorded results."""

import errno
import sys

import click
import msgspec

from mcp_hub.cli.access.hub import Reach, ReachedHub, hub_options, run_with_client, run_with_hub
from mcp_hub.cli.commands.call import check_detached, check_path_option, detached, run_call
from mcp_hub.cli.setup import Output, output_options
from mcp_hub.files import LARGEST_OWN, FileTooLarge, read_file
from mcp_hub.types import RUN_CODE, RawJson


@click.command()
@click.argument("script", metavar="FILE|-")
@click.option("--again", is_flag=True, help="Run the script although the same one runs, or has just ended.")
@click.option("--json", "as_lines", is_flag=True, help="Print JSON lines.")
@output_options(lambda options: "jsonl" if options["as_lines"] else "text")
@click.option("--path", metavar="JSONPATH", help="Print only what this path selects of the result: $.items[*].name.")
@click.option("--detach", is_flag=True, help="Start the script in the running hub, print its stream id and exit.")
@hub_options
def run(script: str, again: bool, as_lines: bool, output: Output, path: str | None, detach: bool, reach: Reach) -> None:
    """Run the script in FILE, or on stdin, over the tools of the hub.

    It is a call of the tool run_code (docs/code.md): the hub has to allow scripts by hub.code. Its output comes as it
    prints it, and its last expression is the result.
    """
    check_path_option(path)
    check_detached(detach, reach, output)
    code = _read(script)
    arguments = msgspec.json.encode({"code": code, **({"again": True} if again else {})})

    async def arguments_now() -> RawJson:
        return arguments

    async def ran(hub: ReachedHub) -> int:
        if hub.app is not None:  # the servers of this command begin to start now, and any tool may be called
            await hub.settle()
        return await run_call(hub, RUN_CODE, arguments_now, output, is_verbose=reach.verbose > 0, path=path)

    if detach:
        run_with_client(reach, lambda client: detached(client, RUN_CODE, arguments_now, output, path))
    run_with_hub(reach, ran)


def _read(script: str) -> str:
    """The text of the script; its size is for the hub to judge. Raises `UsageError`."""
    place = "standard input" if script == "-" else script
    try:
        content = sys.stdin.buffer.read(LARGEST_OWN + 1) if script == "-" else read_file(script, LARGEST_OWN).data
        if len(content) > LARGEST_OWN:
            raise FileTooLarge(errno.EFBIG, f"larger than {LARGEST_OWN} bytes")
        return content.decode()
    except OSError as problem:
        raise click.UsageError(f"{place} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{place} is not UTF-8 text. Save it as UTF-8.") from None
