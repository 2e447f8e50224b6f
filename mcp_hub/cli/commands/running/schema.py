"""`mcp-hub schema`: the JSON Schema of `servers.yaml`, by which editors complete and check the file."""

from pathlib import Path

import click
import msgspec

from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import fail

_MODE_LINE = "# yaml-language-server: $schema="


@click.command()
@click.option(
    "--write", "target", metavar="FILE",
    help="Write it to FILE, and print the line with which editors find it from a servers.yaml.",
)  # fmt: skip
def schema(target: str | None) -> None:
    """Print the JSON Schema of servers.yaml.

    Editors with a YAML language server complete keys and mark mistakes by it. It works without network: write it to a
    file, and put the line that the command prints at the top of servers.yaml.
    """
    from mcp_hub.config.schema.json_schema import json_schema

    text = msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode()
    if target is None:
        put(text)
        return
    path = Path(target).absolute()
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        fail("output_unwritable", f"{path} cannot be written: {problem.strerror}. Choose another file with --write.")
    say(f"Wrote {path}. Put this at the top of servers.yaml; the path may be relative to it:")
    put(f"{_MODE_LINE}{path}")
