"""`mcp-hub schema` and `mcp-hub completion`."""

from pathlib import Path
from typing import Final

import click
import msgspec
from click.shell_completion import ShellComplete, get_completion_class

from mcp_hub.cli.completion import VARIABLE
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import fail

_MODE_LINE: Final = "# yaml-language-server: $schema="
_HOW: Final = {
    "bash": 'eval "$(mcp-hub completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(mcp-hub completion zsh)"  # in ~/.zshrc, behind compinit',
    "fish": "mcp-hub completion fish | source  # in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_HOW)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes mcp-hub in a SHELL.

    \b
    bash: eval "$(mcp-hub completion bash)" in ~/.bashrc
    zsh:  eval "$(mcp-hub completion zsh)" in ~/.zshrc, behind compinit
    fish: mcp-hub completion fish | source in ~/.config/fish/config.fish

    Names of servers, tools and streams come from the configuration and from what hubs remember; no server is started.
    """
    script_class = get_completion_class(shell)
    assert script_class is not None
    # not its own `source`, which runs bash to see whether it is an old one: that prints the script, too
    script = ShellComplete.source(script_class(ctx.find_root().command, {}, "mcp-hub", VARIABLE))
    put(f"# {_HOW[shell]}\n{script}")


@click.command()
@click.option(
    "--write", "target", metavar="FILE",
    help="Write it to FILE, and print the line with which editors find it from a servers.yaml.",
)  # fmt: skip
def schema(target: str | None) -> None:
    """Print the JSON Schema of servers.yaml.

    Editors with a YAML language server complete keys and mark mistakes by it, without network: write it to a file, and
    put the line that the command prints at the top of servers.yaml.
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
