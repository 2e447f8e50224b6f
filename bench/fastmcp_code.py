"""Three tools that FastMCP serves, and its code mode over such a server; needs a Python with `fastmcp[code-mode]`.

`fastmcp_code.py FILE` serves the tools: `add` writes a line to FILE, `look` counts the lines of a key, `fail` fails.
With `--code` a server of these is behind FastMCP's proxy, and scripts call its tools.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.server import create_proxy


def tools(file: Path) -> FastMCP:
    server: FastMCP = FastMCP("tools")

    async def add(key: str, seconds: float = 0) -> dict[str, str]:
        """Write a line with the key."""
        with file.open("a") as lines:
            lines.write(f"{key}\n")
        await asyncio.sleep(seconds)
        return {"key": key}

    def look(key: str) -> dict[str, int]:
        """Count the lines of a key."""
        return {"count": file.read_text().split().count(key) if file.exists() else 0}

    def fail(why: str) -> str:
        """Fail."""
        raise ToolError(f"this tool fails: {why}")

    server.tool(annotations={"readOnlyHint": False})(add)
    for reading in (look, fail):
        server.tool(annotations={"readOnlyHint": True})(reading)
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--code", action="store_true")
    options = parser.parse_args()
    if options.code:
        servers = {"tools": {"command": sys.executable, "args": [__file__, str(options.file)]}}
        server = create_proxy({"mcpServers": servers}, name="bench-code")
        server.add_transform(CodeMode())
    else:
        server = tools(options.file)
    server.run(show_banner=False)


if __name__ == "__main__":
    main()
