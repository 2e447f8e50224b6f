"""Driver: the Python SDK `mcp` 2.x, its `Client` in the mode that the task names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client, MCPError, StdioServerParameters, types
from pydantic import FileUrl

from rigs.clients.drivers.steps import ANSWER, ROOT, Answer, Names, OnProgress, Refused, Task, form, main, telling


class Session:
    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def server(self) -> str:
        return self._client.server_info.name if self._client.server_info else ""

    @property
    def version(self) -> str:
        return self._client.protocol_version

    async def names(self) -> Names:
        templates = (await self._client.list_resource_templates()).resource_templates
        return {
            "tools": [tool.name for tool in (await self._client.list_tools()).tools],
            "prompts": [prompt.name for prompt in (await self._client.list_prompts()).prompts],
            "resources": [str(resource.uri) for resource in (await self._client.list_resources()).resources],
            "templates": [template.uri_template for template in templates],
        }

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> Answer:
        try:
            callback = telling(on_progress)
            result = await self._client.call_tool(tool, arguments, progress_callback=callback)
        except MCPError as refused:
            raise Refused(refused.error.code, refused.error.message, refused.error.data) from refused
        text = "".join(item.text for item in result.content if isinstance(item, types.TextContent))
        return Answer(text, result.structured_content, result.is_error)


async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert isinstance(params, types.ElicitRequestFormParams)
    return types.ElicitResult(action="accept", content=form(params.requested_schema))


async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text=ANSWER)
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl(ROOT))])


@asynccontextmanager
async def connect(task: Task, target: dict[str, Any]) -> AsyncIterator[Session]:
    server = target["url"] if "url" in target else StdioServerParameters(**target)
    answering: Any = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
    async with Client(server, mode=task["mode"], **answering) as client:
        yield Session(client)


if __name__ == "__main__":
    main(connect)
