"""Driver: FastMCP's `Client`, in the mode that the task names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import MCPError, types

from rigs.clients.drivers.deep import TOOLS_CHANGED
from rigs.clients.drivers.steps import ANSWER, ROOT, Answer, Names, OnProgress, Refused, Task, form, main, telling


class Session:
    def __init__(self, client: Client[Any], news: list[str]) -> None:
        self._client, self.news = client, news
        self._meta: dict[str, Any] = {}
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
            result = await self._client.call_tool(
                tool, arguments, progress_handler=handler, raise_on_error=False, meta=self._meta or None
            )
        except MCPError as refused:
            raise Refused(refused.error.code, refused.error.message, refused.error.data) from refused
        text = "".join(getattr(item, "text", "") for item in result.content)
        return Answer(text, result.structured_content, result.is_error)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        result = await self._client.get_prompt(name, arguments)
        return str(getattr(result.messages[0].content, "text", ""))

    async def read(self, uri: str) -> str:
        return str(getattr((await self._client.read_resource(uri))[0], "text", ""))

    async def complete(self, prompt: str, argument: str, typed: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        return list((await self._client.complete(reference, {"name": argument, "value": typed})).values)

    async def ping(self) -> None:
        await self._client.ping()

    async def set_level(self, level: types.LoggingLevel) -> None:
        if self.version >= "2026":
            self._meta = {"io.modelcontextprotocol/logLevel": level}
        else:
            await self._client.set_logging_level(level)

    @asynccontextmanager
    async def watch(self, *uris: str) -> AsyncIterator[None]:
        """Has its own session subscribe: the library itself does not."""
        for uri in uris:
            await self._client.session.subscribe_resource(uri)
        yield
        for uri in uris:
            await self._client.session.unsubscribe_resource(uri)


def hearing(news: list[str]) -> dict[str, Any]:
    """The handlers of a client that write down what arrives by itself."""

    async def logged(message: types.LoggingMessageNotificationParams) -> None:
        data = message.data
        news.append(f"log {data['msg'] if isinstance(data, dict) and 'msg' in data else data}")

    async def heard(message: Any) -> None:
        match message:
            case types.ToolListChangedNotification():
                news.append(TOOLS_CHANGED)
            case types.ResourceUpdatedNotification(params=params):
                news.append(f"updated {params.uri}")

    return {"log_handler": logged, "message_handler": heard}


async def elicit(message: str, response_type: Any, params: Any, context: Any) -> ElicitResult[Any]:
    return ElicitResult(action="accept", content=form(params.requested_schema))


async def sample(messages: Any, params: Any, context: Any) -> str:
    return ANSWER


ANSWERING: dict[str, Any] = {"elicitation_handler": elicit, "sampling_handler": sample, "roots": [ROOT]}


def transport_to(target: dict[str, Any]) -> Any:
    """A process of its own for every session, or a URL."""
    if "url" in target:
        return StreamableHttpTransport(target["url"])
    return StdioTransport(**target, keep_alive=False)


@asynccontextmanager
async def connect(task: Task, target: dict[str, Any]) -> AsyncIterator[Session]:
    news: list[str] = []
    transport = transport_to(target)
    async with Client(transport, mode=task["mode"], **ANSWERING, **hearing(news)) as client:
        yield Session(client, news)


if __name__ == "__main__":
    main(connect)
