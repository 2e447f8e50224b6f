"""Driver: the MCP servers of the OpenAI Agents SDK."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from mcp import MCPError

from rigs.clients.drivers.mcp_v2 import hearing
from rigs.clients.drivers.steps import Answer, Names, OnProgress, Refused, Task, main

LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SECONDS = 60.0


class Session:
    def __init__(self, server: Any, news: list[str]) -> None:
        self._server, self.news = server, news
        info = server.session.server_info
        self.server, self.version = info.name if info else "", str(server.session.protocol_version)
        self._meta: dict[str, Any] | None = None

    async def names(self) -> Names:
        return {
            "tools": [tool.name for tool in await self._server.list_tools()],
            "prompts": [prompt.name for prompt in (await self._server.list_prompts()).prompts],
            "resources": [str(resource.uri) for resource in (await self._server.list_resources()).resources],
            "templates": [
                template.uri_template for template in (await self._server.list_resource_templates()).resource_templates
            ],
        }

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> Answer:
        try:
            result = await self._server.call_tool(tool, arguments, self._meta)
        except MCPError as refusal:
            raise Refused(refusal.error.code, refusal.error.message, refusal.error.data) from refusal
        text = "".join(getattr(item, "text", "") for item in result.content)
        return Answer(text, result.structured_content, result.is_error)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await self._server.get_prompt(name, arguments)).messages[0].content.text)

    async def read(self, uri: str) -> str:
        return str((await self._server.read_resource(uri)).contents[0].text)

    async def set_level(self, level: str) -> None:
        self._meta = {LOG_LEVEL: level}


@asynccontextmanager
async def connect(task: Task, target: dict[str, Any]) -> AsyncIterator[Session]:
    news: list[str] = []
    kind: Any = MCPServerStreamableHttp if "url" in target else MCPServerStdio
    handler = hearing(news)["message_handler"]
    async with kind(params=target, client_session_timeout_seconds=SECONDS, message_handler=handler) as server:
        yield Session(server, news)


if __name__ == "__main__":
    main(connect)
