"""Driver: LangChain's MCP adapters, with a session that stays open between the calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.tools import ToolException
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.prompts import load_mcp_prompt
from langchain_mcp_adapters.resources import get_mcp_resource
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession, McpError

from rigs.clients.drivers import mcp_v1
from rigs.clients.drivers.steps import Answer, Names, OnProgress, Refused, Task, main


class Session(mcp_v1.Session):
    """Tools, prompts and resources as LangChain has them; everything else by the session below it."""

    def __init__(self, session: ClientSession, news: list[str]) -> None:
        self._session, self.news = session, news
        self.server = self.version = ""

    async def names(self) -> Names:
        names = await super().names()
        return {**names, "tools": list(await self._tools())}

    async def _tools(self, on_progress: OnProgress | None = None) -> dict[str, Any]:
        async def progressed(progress: float, total: float | None, message: str | None, context: Any) -> None:
            if on_progress is not None:
                on_progress(progress)

        callbacks = Callbacks(on_progress=progressed)
        tools = await load_mcp_tools(self._session, callbacks=callbacks, server_name="it", handle_tool_errors=False)
        return {tool.name: tool for tool in tools}

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> Answer:
        tools = await self._tools(on_progress)
        if tool not in tools:
            raise Refused(None, f"there is no tool {tool}")
        try:
            call = {"name": tool, "args": arguments, "id": "1", "type": "tool_call"}
            message = await tools[tool].ainvoke(call)
        except ToolException as error:
            return Answer(str(error), None, True)
        except McpError as refusal:
            raise Refused(refusal.error.code, refusal.error.message, refusal.error.data) from refusal
        text = "".join(block["text"] for block in message.content if block["type"] == "text")
        return Answer(text, (message.artifact or {}).get("structured_content"), False)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await load_mcp_prompt(self._session, name, arguments=arguments))[0].content)

    async def read(self, uri: str) -> str:
        return (await get_mcp_resource(self._session, uri))[0].as_string()


@asynccontextmanager
async def connect(task: Task, target: dict[str, Any]) -> AsyncIterator[Session]:
    news: list[str] = []
    kind = "streamable_http" if "url" in target else "stdio"
    options = {**mcp_v1.ANSWERING, **mcp_v1.hearing(news)}
    connection: Any = {"transport": kind, "session_kwargs": options, **target}
    async with MultiServerMCPClient({"it": connection}).session("it") as session:
        yield Session(session, news)


if __name__ == "__main__":
    main(connect)
