"""The conformance server as an SDK `Server`: one handler per method, the same for both eras."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from rigs.conformance.server import skills
from rigs.conformance.server.dialogues import ASKING_TOOLS
from rigs.conformance.server.instance import Context, Instance, Result, is_modern, session_of
from rigs.conformance.server.jobs import JOB_TOOLS
from rigs.conformance.server.surface import RESOURCES, TEMPLATES, complete, get_prompt, prompts, read_resource
from rigs.conformance.server.tools import PLAIN_TOOLS, Tool, tool

Handler = Callable[[Context, Any], Awaitable[Result]]

TOOLS = {each.name: each for each in (*PLAIN_TOOLS, *ASKING_TOOLS, *JOB_TOOLS)}
BARE_TOOL = "test_simple_text"
EXTRA_TOOL = tool("test_extra_tool", "Comes and goes.", TOOLS["test_simple_text"].run)


class ConformanceServer(Server[Any]):
    """Everything that the suite's server scenarios ask for; `bare`: one tool and nothing else."""

    def __init__(self, *, bare: bool = False) -> None:
        self.instance = Instance()
        self._bare = bare
        lists: dict[Any, Callable[[], Sequence[Result]]] = {
            "tools/list": lambda: [each.definition for each in self._tools().values()],
            "prompts/list": lambda: prompts(self.instance),
            "resources/list": lambda: [*RESOURCES, *skills.resources()],
            "resources/templates/list": lambda: TEMPLATES,
        }
        super().__init__(
            "conformance-server",
            version="1.0.0",
            cache_hints=dict.fromkeys([*lists, "resources/read"], CacheHint(ttl_ms=0, scope="private")),
            get_tool_input_schema=self._input_schema,
            on_subscriptions_listen=None if bare else ListenHandler(self.instance.bus),
        )
        handlers: dict[str, tuple[type[BaseModel], Handler]] = {
            "tools/call": (types.CallToolRequestParams, self._call_tool),
            "prompts/get": (types.GetPromptRequestParams, get_prompt),
            "resources/read": (types.ReadResourceRequestParams, read_resource),
            "resources/subscribe": (types.SubscribeRequestParams, self._subscribe),
            "resources/unsubscribe": (types.UnsubscribeRequestParams, self._unsubscribe),
            "completion/complete": (types.CompleteRequestParams, complete),
            "logging/setLevel": (types.SetLevelRequestParams, self._set_level),
        }
        handlers |= {method: (types.PaginatedRequestParams, _listing(method, lists[method])) for method in lists}
        handlers |= {
            "skills/list": (types.PaginatedRequestParams, skills.list_skills),
            "skills/get": (types.ReadResourceRequestParams, skills.get_skill),
            "resources/directory/read": (types.ReadResourceRequestParams, skills.read_directory),
        }
        if not bare:
            self.extensions[skills.EXTENSION] = skills.SETTINGS
        for method, (model, handler) in handlers.items():
            if bare and not method.startswith("tools/"):
                continue
            self.add_request_handler(method, model, _in_its_era(handler))

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        """The SDK's, with list changes advertised wherever they are made without saying so."""
        changes = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(changes, *args, **kwargs)

    def _tools(self) -> dict[str, Tool]:
        if self._bare:
            return {BARE_TOOL: TOOLS[BARE_TOOL]}
        return {**TOOLS, EXTRA_TOOL.name: EXTRA_TOOL} if "tools" in self.instance.changed else TOOLS

    def _input_schema(self, name: str) -> Result | None:
        found = self._tools().get(name)
        return found.definition["inputSchema"] if found is not None else None

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Result:
        if params.name not in self._tools():
            raise MCPError(types.INVALID_PARAMS, f"unknown tool: {params.name}")
        return await self._tools()[params.name].run(self.instance, context, params)

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> Result:
        self.instance.subscribers[session_of(context), str(params.uri)] = context.session
        return {}

    async def _unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> Result:
        self.instance.subscribers.pop((session_of(context), str(params.uri)), None)
        return {}

    async def _set_level(self, context: Context, params: types.SetLevelRequestParams) -> Result:
        self.instance.levels[session_of(context)] = params.level
        return {}


def _in_its_era(handler: Handler) -> Handler:
    """`handler` with the `resultType` that modern results have and handshake ones have not."""

    async def shaped(context: Context, params: Any) -> Result:
        result = await handler(context, params)
        return {"resultType": "complete", **result} if is_modern(context) else result

    return shaped


def _listing(method: str, entries: Callable[[], Sequence[Result]]) -> Handler:
    key = "resourceTemplates" if method == "resources/templates/list" else method.partition("/")[0]

    async def handler(context: Context, params: types.PaginatedRequestParams) -> Result:
        return {key: list(entries())}

    return handler
