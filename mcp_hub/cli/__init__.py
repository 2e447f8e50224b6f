"""The `mcp-hub` command: one file a command, heavy imports inside the commands that need them.

Exit codes: 0 ok, 1 the tool said error, 2 usage or configuration, 3 upstream unavailable, 130 interrupted.
"""

import click

from mcp_hub import __version__
from mcp_hub.cli.serve import serve

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mcp-hub")
def main() -> None:
    """One MCP server in front of many."""


main.add_command(serve)
