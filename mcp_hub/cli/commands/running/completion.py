"""`mcp-hub completion`: the script by which a shell completes commands, options and names."""

from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

from mcp_hub.cli.completion import VARIABLE
from mcp_hub.cli.render.output import put

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
    made = get_completion_class(shell)
    assert made is not None
    # not its own `source`, which runs bash to see whether it is an old one: that prints the script, too
    script = ShellComplete.source(made(ctx.find_root().command, {}, "mcp-hub", VARIABLE))
    put(f"# {_HOW[shell]}\n{script}")
