"""A server of both eras, built on the official Python SDK: what a client does without the hub, and with it.

The surface is that of the conformance server, with tools whose answers a driver can check to the last byte. What
arrives and what is cancelled is noted in the journal, as the fixture server does it. Over HTTP it prints its URL to
stderr; with `--stdio` a pipe is of the era of its first request.
"""

import argparse
import json
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.subscriptions import ToolsListChanged
from mcp.shared.exceptions import MCPError

from rigs.conformance.server.app import ConformanceServer
from rigs.conformance.server.asking import Answers, Dialogue, converse, elicitation, roots, sampling, text
from rigs.conformance.server.instance import Context, Instance, Result, is_modern
from rigs.conformance.server.main import Events, serve_stdio
from rigs.conformance.server.surface import WATCHED, read_resource
from rigs.conformance.server.tools import Tool, tool

RETRY_MS = 1000
NAME = {"name": {"type": "string"}}
LOGGED = ("first", "second ✓", "third")
"""What the tool `log` says at level info, in this order."""


def _shown(answers: Answers) -> Result:
    return text(json.dumps(answers, ensure_ascii=False))


QUESTIONS = {
    "ask_form": Dialogue(_shown, (lambda _: {"it": elicitation("What is your name?", NAME, ["name"])},)),
    "ask_sampling": Dialogue(_shown, (lambda _: {"it": sampling("Say something")},)),
    "ask_roots": Dialogue(_shown, (lambda _: {"it": roots()},)),
}


class ReferenceServer(ConformanceServer):
    """`count` is how often the watched resource was touched; its text says so. `grown` are tools that were added."""

    def __init__(self, name: str, journal: Path) -> None:
        super().__init__()
        self.name, self.version = name, "1"
        self.add_request_handler("resources/read", types.ReadResourceRequestParams, self._read)
        self._journal = journal
        self._count = 0
        self._grown: list[Tool] = []
        named = {
            "echo": self._echo,
            "progress": self._progress,
            "log": self._log,
            "wait_cancel": self._wait_cancel,
            "big": self._big,
            "error": self._error,
            "tool_error": self._tool_error,
            "touch": self._touch,
            "grow": self._grow,
            **dict.fromkeys(QUESTIONS, self._ask),
        }
        output = {"outputSchema": {"type": "object"}}
        self._mine = {key: tool(key, f"The tool {key}.", run) for key, run in named.items()}
        self._mine["echo"].definition.update(output)

    def _tools(self) -> dict[str, Tool]:
        return {**super()._tools(), **self._mine, **{each.name: each for each in self._grown}}

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Result:
        arguments = params.arguments or {}
        self._note(received={"method": "tools/call", "params": {"name": params.name, "arguments": arguments}})
        return await super()._call_tool(context, params)

    async def _echo(self, instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        arguments: dict[str, Any] = params.arguments or {}
        await anyio.sleep(arguments.get("delay", 0))
        return {**text(json.dumps(arguments)), "structuredContent": arguments}

    async def _progress(self, instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        arguments: dict[str, Any] = params.arguments or {}
        for i in range(1, arguments["n"] + 1):
            await anyio.sleep(arguments.get("delay", 0))
            await context.session.report_progress(i, arguments["n"])
        return text(json.dumps({"n": arguments["n"]}))

    async def _log(self, instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        for message in LOGGED:
            await instance.log(context, "info", message)
        return text("logged")

    async def _wait_cancel(self, instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        try:
            await anyio.sleep_forever()
        finally:
            self._note(event="cancelled", nonce=(params.arguments or {})["nonce"])
        return {}

    async def _big(self, instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        return text("x" * (params.arguments or {})["bytes"])

    async def _error(self, instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        arguments: dict[str, Any] = params.arguments or {}
        raise MCPError(arguments["code"], arguments["message"], arguments["data"])

    async def _tool_error(self, instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        return text((params.arguments or {})["text"], is_error=True)

    async def _ask(self, instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        return await converse(context, params, QUESTIONS[params.name])

    async def _touch(self, instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        self._count += 1
        await instance.update_resource(WATCHED)
        return text(str(self._count))

    async def _grow(self, instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        """Adds a tool of the name in the arguments, and says so in both eras."""
        grown = tool((params.arguments or {})["name"], "It was added.", self._echo)
        self._grown.append(grown)
        if not is_modern(context):
            await context.session.send_notification(types.ToolListChangedNotification())
        await instance.bus.publish(ToolsListChanged())
        return text("added")

    async def _read(self, context: Context, params: types.ReadResourceRequestParams) -> Result:
        result = await read_resource(context, params)
        if str(params.uri) == WATCHED:
            result["contents"][0]["text"] = f"touched {self._count} times"
        # nobody may take a read from before a change out of a cache
        modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {**modern, **result} if is_modern(context) else result

    def _note(self, **record: Any) -> None:
        with self._journal.open("a") as file:
            file.write(json.dumps(record) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--stdio", action="store_true", help="instead of HTTP")
    options = parser.parse_args()
    options.journal.touch()
    server = ReferenceServer(options.name, options.journal)
    if options.stdio:
        anyio.run(serve_stdio, server, "both")
        return
    app = server.streamable_http_app(event_store=Events(), retry_interval=RETRY_MS)
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
