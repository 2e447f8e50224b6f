"""Driver: FastMCP's `Client`, in the mode that the task names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import MCPError

from rigs.clients.drivers.steps import ANSWER, ROOT, Answer, Names, OnProgress, Refused, Task, form, main, telling


class Session:
    def __init__(self, client: Client[Any]) -> None:
        self._client = client
        info = client.session.server_info
        self.server, self.version = info.name if info else "", str(client.session.protocol_version)

    async def names(self) -> Names:
        return {
            "tools": [tool.name for tool in await self._client.list_tools()],
            "prompts": [prompt.name for prompt in await self._client.list_prompts()],
            "resources": [str(resource.uri) for resource in await self._client.list_resources()],
            "templates": [template.uri_template for template in await self._client.list_resource_templates()],
        }

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> Answer:
        try:
            handler = telling(on_progress)
            result = await self._client.call_tool(tool, arguments, progress_handler=handler, raise_on_error=False)
        except MCPError as refused:
            raise Refused(refused.error.code, refused.error.message, refused.error.data) from refused
        text = "".join(getattr(item, "text", "") for item in result.content)
        return Answer(text, result.structured_content, result.is_error)


async def elicit(message: str, response_type: Any, params: Any, context: Any) -> ElicitResult[Any]:
    return ElicitResult(action="accept", content=form(params.requested_schema))


async def sample(messages: Any, params: Any, context: Any) -> str:
    return ANSWER


@asynccontextmanager
async def connect(task: Task, target: dict[str, Any]) -> AsyncIterator[Session]:
    transport: Any
    if "url" in target:
        transport = StreamableHttpTransport(target["url"])
    else:
        # a process of its own for every session
        transport = StdioTransport(**target, keep_alive=False)
    answering: Any = {"elicitation_handler": elicit, "sampling_handler": sample, "roots": [ROOT]}
    async with Client(transport, mode=task["mode"], **answering) as client:
        yield Session(client)


if __name__ == "__main__":
    main(connect)
