"""Driver: the Python SDK `mcp` 2.x, its `Client` in the mode that the task names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.subscriptions import Subscription
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY, ResourceUpdated, ToolsListChanged
from pydantic import FileUrl

from rigs.clients.drivers.deep import TOOLS_CHANGED
from rigs.clients.drivers.steps import ANSWER, ROOT, Answer, Names, OnProgress, Refused, Task, form, main, telling


class Session:
    def __init__(self, client: Client, news: list[str]) -> None:
        self._client, self.news = client, news

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

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        content = (await self._client.get_prompt(name, arguments)).messages[0].content
        return content.text if isinstance(content, types.TextContent) else ""

    async def read(self, uri: str) -> str:
        contents = (await self._client.read_resource(uri)).contents[0]
        return contents.text if isinstance(contents, types.TextResourceContents) else ""

    async def complete(self, prompt: str, argument: str, typed: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self._client.complete(reference, {"name": argument, "value": typed})).completion.values

    async def ping(self) -> None:
        await self._client.send_ping()

    async def set_level(self, level: str) -> None:
        if not self._is_modern:  # there each request carries the level
            await self._client.set_logging_level(cast(types.LoggingLevel, level))

    @property
    def _is_modern(self) -> bool:
        return self.version >= "2026"

    @asynccontextmanager
    async def watch(self, *uris: str) -> AsyncIterator[None]:
        if self._is_modern:
            listening = self._client.listen(tools_list_changed=True, resource_subscriptions=uris)
            async with listening as events, anyio.create_task_group() as tasks:
                tasks.start_soon(self._hear, events)
                yield
                tasks.cancel_scope.cancel()
            return
        for uri in uris:
            await self._client.subscribe_resource(uri)
        yield
        for uri in uris:
            await self._client.unsubscribe_resource(uri)

    async def _hear(self, events: Subscription) -> None:
        async for event in events:
            if isinstance(event, ToolsListChanged):
                self.news.append(TOOLS_CHANGED)
            elif isinstance(event, ResourceUpdated):
                self.news.append(f"updated {event.uri}")


def hearing(news: list[str]) -> dict[str, Any]:
    """The callbacks of a client that write down what arrives by itself, but for the events of a subscription."""

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        news.append(f"log {params.data}")

    async def heard(message: Any) -> None:
        if SUBSCRIPTION_ID_META_KEY in (getattr(getattr(message, "params", None), "meta", None) or {}):
            return
        match message:
            case types.ToolListChangedNotification():
                news.append(TOOLS_CHANGED)
            case types.ResourceUpdatedNotification(params=params):
                news.append(f"updated {params.uri}")

    return {"logging_callback": logged, "message_handler": heard}


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
    news: list[str] = []
    async with Client(server, mode=task["mode"], log_level="info", **answering, **hearing(news)) as client:
        yield Session(client, news)


if __name__ == "__main__":
    main(connect)
