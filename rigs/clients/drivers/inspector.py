"""Driver: MCP Inspector's command line, a run of it for every request; standard library only."""

import asyncio
import json
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rigs.clients.drivers.steps import Answer, Names, OnProgress, Refused, Task, main

# exit code for a result that has isError
TOOL_FAILED = 5


class Inspector:
    def __init__(self, command: list[str]) -> None:
        self._command = command
        self.server = self.version = ""

    async def request(self, method: str, *options: str) -> dict[str, Any]:
        """The result. Raises: `Refused`."""
        process = await asyncio.create_subprocess_exec(
            *(*self._command, "--method", method, *options), stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode not in (0, TOOL_FAILED):
            raise Refused(None, json.loads(err)["error"]["message"])
        result: dict[str, Any] = json.loads(out)["result"]
        return result

    async def names(self) -> Names:
        lists = {
            "tools": ("tools/list", "tools", "name"),
            "prompts": ("prompts/list", "prompts", "name"),
            "resources": ("resources/list", "resources", "uri"),
            "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
        }
        return {
            kind: [item[field] for item in (await self.request(method))[key]]
            for kind, (method, key, field) in lists.items()
        }

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> Answer:
        result = await self.request("tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))
        text = "".join(item["text"] for item in result["content"] if item["type"] == "text")
        return Answer(text, result.get("structuredContent"), result.get("isError", False))


@asynccontextmanager
async def connect(task: Task, target: dict[str, Any]) -> AsyncIterator[Inspector]:
    with tempfile.TemporaryDirectory() as folder:
        # in a file, because it would take the server's options for its own
        config = Path(folder) / "mcp.json"
        config.write_text(
            json.dumps({"mcpServers": {"it": {"type": "http" if "url" in target else "stdio", **target}}})
        )
        options = ["--config", str(config), "--server", "it", "--protocol-era", task["mode"]]
        inspector = Inspector([*task["inspector"], "--cli", *options, "--format", "json", "--quiet"])
        greeting = await inspector.request("initialize")
        inspector.server, inspector.version = greeting["serverInfo"]["name"], greeting["protocolVersion"]
        yield inspector


if __name__ == "__main__":
    main(connect)
