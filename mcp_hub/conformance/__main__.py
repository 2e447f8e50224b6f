"""`python -m mcp_hub.conformance streams`: plays the vectors against a server; exit 0 passed, 1 failed, 2 usage."""

import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import anyio
import click
import msgspec

from mcp_hub.conformance.peers import RawClient, http_peer, sse_peer, stdio_peer
from mcp_hub.conformance.runner import Cases, Runner
from mcp_hub.conformance.vectors import read_all
from mcp_hub.masking import visible
from mcp_hub.types import Era, JsonObject

_HERE: Final = Path(__file__).parent
_PLACES: Final = (_HERE / "specification", _HERE.parents[1] / "docs/specification")
"""In an installed package, and in a checkout."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Test an MCP server against a specification of this project."""


@main.command()
@click.option("--url", metavar="URL", help="The MCP endpoint of a running server.")
@click.option("--sse", is_flag=True, help="--url is the event stream of the HTTP+SSE transport; handshake era only.")
@click.option("--token", metavar="TOKEN", envvar="MCP_HUB_TOKEN", help="Bearer token for --url.")
@click.option("--other-token", metavar="TOKEN", help="Token of another principal, which must see nothing.")
@click.option("--era", type=click.Choice(["handshake", "modern", "both"]), default="both", show_default=True)
@click.option(
    "--tool", metavar="NAME", required=True, help="A tool that streams partial content or progress for a few seconds."
)
@click.option("--arguments", metavar="JSON", default="{}", show_default=True, help="Arguments of the tool.")
@click.option(
    "--cases",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON: other calls by the name of what they show; their vectors are skipped without.",
)
@click.option("--vectors", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def streams(
    url: str | None, sse: bool, token: str | None, other_token: str | None, era: str, tool: str, arguments: str,
    cases: Path | None, vectors: Path | None, command: Sequence[str],
) -> None:  # fmt: skip
    """Test the extension dev.mcp-hub/streams of the server at --url, or of the one that COMMAND starts."""
    if (url is None) == (not command):
        raise click.UsageError("Give --url, or the command of a server after --.")
    if sse and (url is None or era == "modern"):
        raise click.UsageError("--sse goes with --url and the handshake era.")
    try:
        calls = {} if cases is None else msgspec.json.decode(cases.read_bytes(), type=dict[str, JsonObject])
        calls[""] = {"tool": tool, "arguments": msgspec.json.decode(arguments, type=JsonObject)}
        scenarios = read_all(vectors or next(folder / "vectors" for folder in _PLACES if folder.is_dir()))
    except (ValueError, OSError, StopIteration) as exc:
        raise click.UsageError(f"{exc or 'there are no vectors: give --vectors'}") from None
    failed = 0
    for tested_era in [Era.HANDSHAKE] if sse else [Era(era)] if era != "both" else list(Era):
        click.echo(visible(f"{tested_era.value} era"))
        for scenario in scenarios:
            if tested_era not in scenario.eras:
                continue
            runner = _runner(tested_era, url, sse, token, other_token, command, calls)
            verdict, why = anyio.run(runner.play, scenario)
            failed += verdict == "failed"
            head = f"  {verdict:<8}{scenario.name} (section {scenario.section})"
            click.echo(visible(f"{head}: {why}" if why else head))
    sys.exit(failed > 0)


def _runner(
    era: Era, url: str | None, sse: bool, token: str | None, other_token: str | None, command: Sequence[str],
    cases: Cases,
) -> Runner:  # fmt: skip
    def connect(capabilities: JsonObject, is_other: bool, name: str) -> AbstractAsyncContextManager[RawClient]:
        if url is None:
            return stdio_peer(command, era, capabilities, name)
        bearer = other_token if is_other else token
        return sse_peer(url, bearer, capabilities, name) if sse else http_peer(url, bearer, era, capabilities, name)

    transport = "stdio" if url is None else "sse" if sse else "http"
    return Runner(connect, cases, transport, has_other=other_token is not None and url is not None)


if __name__ == "__main__":
    main(prog_name="python -m mcp_hub.conformance")
