"""The `mcp-hub` command, also as `python -m mcp_hub`. `serve` over stdio joins the background hub (`attach`)."""

import gc
import os
import sys

from mcp_hub.attach.arguments import wanted
from mcp_hub.attach.machine import hide_process, use_machine, use_text
from mcp_hub.attach.serve import mode_in, serve_attached, warn


def main() -> None:
    """Runs the command."""
    arguments = sys.argv[1:]
    use_text(arguments)
    hide_process(os.environ)
    use_machine(os.environ, warn)
    request = wanted(arguments, os.environ) if sys.platform != "win32" else None
    mode = None if request is None else request.attach or mode_in(request.config)
    if request is not None and mode is not None:
        if serve_attached(request, mode):
            return
        arguments = [*arguments, "--attach", "never"]
    gc.set_threshold(500_000, 20, 20)  # what imports make stays: collections find nothing
    from mcp_hub.cli import main as command  # a client that joins a hub does without it

    command(arguments)


if __name__ == "__main__":
    main()
