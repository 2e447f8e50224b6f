"""Driver: the Python SDK `mcp` 1.x. Run as a module from the project's folder, with a Python that has it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl, FileUrl

from rigs.clients.drivers.deep import TOOLS_CHANGED
from rigs.clients.drivers.steps import ANSWER, ROOT, Answer, Names, OnProgress, Refused, Task, form, main, telling


class Session:
    def __init__(self, session: ClientSession, started: types.InitializeResult, news: list[str]) -> None:
        self._session, self.news = session, news
        self.server, self.version = started.serverInfo.name, str(started.protocolVersion)

    async def names(self) -> Names:
        templates = (await self._session.list_resource_templates()).resourceTemplates
        return {
            "tools": [tool.name for tool in (await self._session.list_tools()).tools],
            "prompts": [prompt.name for prompt in (await self._session.list_prompts()).prompts],
            "resources": [str(resource.uri) for resource in (await self._session.list_resources()).resources],
            "templates": [template.uriTemplate for template in templates],
        }

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> Answer:
        try:
            callback = telling(on_progress)
            result = await self._session.call_tool(tool, arguments, progress_callback=callback)
        except McpError as refused:
            raise Refused(refused.error.code, refused.error.message, refused.error.data) from refused
        text = "".join(item.text for item in result.content if isinstance(item, types.TextContent))
        return Answer(text, result.structuredContent, result.isError)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        content = (await self._session.get_prompt(name, arguments)).messages[0].content
        return content.text if isinstance(content, types.TextContent) else ""

    async def read(self, uri: str) -> str:
        contents = (await self._session.read_resource(AnyUrl(uri))).contents[0]
        return contents.text if isinstance(contents, types.TextResourceContents) else ""

    async def complete(self, prompt: str, argument: str, typed: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        result = await self._session.complete(reference, {"name": argument, "value": typed})
        return result.completion.values

    async def ping(self) -> None:
        await self._session.send_ping()

    async def set_level(self, level: types.LoggingLevel) -> None:
        await self._session.set_logging_level(level)

    @asynccontextmanager
    async def watch(self, *uris: str) -> AsyncIterator[None]:
        for uri in uris:
            await self._session.subscribe_resource(AnyUrl(uri))
        yield
        for uri in uris:
            await self._session.unsubscribe_resource(AnyUrl(uri))


def hearing(news: list[str]) -> dict[str, Any]:
    """The callbacks of a `ClientSession` that write down what arrives by itself."""

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        news.append(f"log {params.data}")

    async def heard(message: Any) -> None:
        match getattr(message, "root", None):
            case types.ToolListChangedNotification():
                news.append(TOOLS_CHANGED)
            case types.ResourceUpdatedNotification(params=params):
                news.append(f"updated {params.uri}")

    return {"logging_callback": logged, "message_handler": heard}


async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert isinstance(params, types.ElicitRequestFormParams)
    return types.ElicitResult(action="accept", content=form(params.requestedSchema))


async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text=ANSWER)
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl(ROOT))])


ANSWERING: dict[str, Any] = {
    "elicitation_callback": elicit,
    "sampling_callback": sample,
    "list_roots_callback": roots,
}


@asynccontextmanager
async def connect(task: Task, target: dict[str, Any]) -> AsyncIterator[Session]:
    async with AsyncExitStack() as stack:
        if "url" in target:
            read, write, _ = await stack.enter_async_context(streamable_http_client(target["url"]))
        else:
            read, write = await stack.enter_async_context(stdio_client(StdioServerParameters(**target)))
        news: list[str] = []
        session = await stack.enter_async_context(ClientSession(read, write, **ANSWERING, **hearing(news)))
        yield Session(session, await session.initialize(), news)


if __name__ == "__main__":
    main(connect)
