"""Driver: Pydantic AI's `MCPToolset`, which is built on the client of FastMCP."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp.exceptions import ToolError
from mcp import MCPError
from pydantic_ai.mcp import MCPToolset

from rigs.clients.drivers.fastmcp_client import ANSWERING, hearing, transport_to
from rigs.clients.drivers.steps import Answer, Names, OnProgress, Refused, Task, main


class Session:
    def __init__(self, toolset: MCPToolset[Any], news: list[str], hooks: list[OnProgress]) -> None:
        self._toolset, self.news, self._hooks = toolset, news, hooks
        info = toolset.client.server_info
        self.server, self.version = info.name if info else "", str(toolset.client.protocol_version)

    async def names(self) -> Names:
        return {
            "tools": [tool.name for tool in await self._toolset.list_tools()],
            "prompts": [prompt.name for prompt in await self._toolset.list_prompts()],
            "resources": [resource.uri for resource in await self._toolset.list_resources()],
            "templates": [template.uri_template for template in await self._toolset.list_resource_templates()],
        }

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> Answer:
        self._hooks[:] = [on_progress] if on_progress else []
        try:
            result = await self._toolset.direct_call_tool(tool, arguments)
        except ToolError as error:
            return Answer(str(error), None, True)
        except MCPError as refusal:
            raise Refused(refusal.error.code, refusal.error.message, refusal.error.data) from refusal
        # the library parses text that is JSON, and prefers structured content
        return Answer(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False), result, False)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        result = await self._toolset.get_prompt(name, arguments)
        return str(getattr(result.messages[0].content, "content", ""))

    async def read(self, uri: str) -> str:
        return str(await self._toolset.read_resource(uri))

    async def set_level(self, level: str) -> None:
        """It was set when the session began."""

    @asynccontextmanager
    async def watch(self, *uris: str) -> AsyncIterator[None]:
        yield


@asynccontextmanager
async def connect(task: Task, target: dict[str, Any]) -> AsyncIterator[Session]:
    news: list[str] = []
    hooks: list[OnProgress] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        for hook in hooks:
            hook(progress)

    toolset: MCPToolset[Any] = MCPToolset(
        transport_to(target),
        tool_error_behavior="error",
        progress_handler=progressed,
        init_timeout=20,
        **ANSWERING,
        **hearing(news),
    )
    async with toolset:
        yield Session(toolset, news, hooks)


if __name__ == "__main__":
    main(connect)
