"""The REST front at `/v1`, for programs that do not speak MCP: tools and their cost, calls as streams, executors.

A request is dispatched by the table in `rest_routes`, from which the OpenAPI document is made, too. All errors are
problems (`rest_problem`). Source: streams.md §2 "REST", formats.md §4.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import anyio
import structlog

from mcp_hub.errors import Busy, HubError
from mcp_hub.fronts import openapi
from mcp_hub.fronts.bounds import FrontLimits
from mcp_hub.fronts.endpoints import Headers
from mcp_hub.fronts.exchange import Receive, Scope, Send
from mcp_hub.fronts.guard import Refusal
from mcp_hub.fronts.rest_calls import RestCalls
from mcp_hub.fronts.rest_executors import Executors, RestExecutors
from mcp_hub.fronts.rest_follow import Closing
from mcp_hub.fronts.rest_http import ClientGone, RestRequest, refuse, respond
from mcp_hub.fronts.rest_problem import Problem, problem_for
from mcp_hub.fronts.rest_routes import PREFIX, Found, Route, find
from mcp_hub.fronts.rest_servers import Operator, RestServers
from mcp_hub.fronts.rest_streams import RestStreams
from mcp_hub.fronts.rest_tokens import RestTokens
from mcp_hub.hub import Facade
from mcp_hub.sessions.session import Caller

__all__ = ["Rest"]

log = structlog.get_logger(__name__)

_LAST: Final = 1.0
"""Seconds to end a response that its client may not be reading."""
_REFUSALS: Final[Mapping[int, str]] = {
    401: "unauthorized",
    403: "origin_not_allowed",
    404: "unknown_profile",
    421: "host_not_served",
}

Handler = Callable[[RestRequest], Awaitable[None]]


class Rest:
    """Everything under `/v1`. `max_body` in bytes. Without `executors` none are taken; `is_open` if nobody needs a
    token for them, or everybody has one.
    """

    prefix = PREFIX

    def __init__(
        self,
        hub: Facade,
        *,
        version: str,
        max_body: int,
        executors: Executors | None = None,
        is_open: bool = False,
        limits: FrontLimits | None = None,
        operator: Operator | None = None,
    ) -> None:
        self._max_body = max_body
        self._limits = limits if limits is not None else FrontLimits()
        self._closing = Closing()
        self._document = openapi.document(version)
        calls, streams = RestCalls(hub, self._closing), RestStreams(hub, self._closing)
        workers = RestExecutors(executors, self._closing, is_open=is_open)
        servers = RestServers(operator)
        self._handlers: Mapping[str, Handler] = {
            "listTools": calls.list_tools,
            "countTokens": RestTokens(hub).count_tokens,
            "callTool": calls.call_tool,
            "listStreams": streams.list_streams,
            "getStream": streams.get_stream,
            "cancelStream": streams.cancel_stream,
            "followStream": streams.follow_stream,
            "answerQuestion": streams.answer_question,
            "registerExecutor": workers.register,
            "removeExecutor": workers.remove,
            "fetchCalls": workers.calls,
            "postResults": workers.post,
            "listServers": servers.servers,
            "getServer": servers.server,
            "restartServer": servers.restart,
            "reload": servers.reload,
            "describe": self._describe,
        }

    def close(self) -> None:
        """Ends the responses that would not end by themselves, so that the server can stop."""
        self._closing.close()

    async def refuse(self, send: Send, refusal: Refusal) -> None:
        """The answer to a request that did not pass the guard."""
        code = refusal.code or _REFUSALS.get(refusal.status, "refused")
        await refuse(send, Problem(refusal.status, code, refusal.reason, headers=refusal.headers))

    async def fail(self, send: Send, error: Busy) -> None:
        """The answer to one that is too much."""
        await refuse(send, problem_for(error))

    async def serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers, caller: Caller) -> None:
        """Serves one request that has passed the guard."""
        response = _Response(send, has_body=scope["method"] != "HEAD")
        try:
            await self._handling(scope, receive, response, headers, caller)
        except ClientGone:
            pass
        except HubError as error:
            await response.fail(problem_for(error))
        except Exception:
            log.exception("rest_request_crashed", method=scope["method"], path=scope["path"])
            await response.fail(Problem(500, "internal_error", "internal error of the hub; its log has the details"))

    def _handling(
        self, scope: Scope, receive: Receive, response: "_Response", headers: Headers, caller: Caller
    ) -> Awaitable[None]:
        """What is to be awaited. Raises `Problem`."""
        found = find(scope["raw_path"])
        if found is None:
            raise Problem(404, "not_found", "nothing here; /v1/openapi.json describes what there is")
        method = scope["method"]
        if method == "OPTIONS":
            return respond(response.send, 204, headers=((b"allow", found.allowed.encode()),))
        route = _route(found, method)
        request = RestRequest(
            caller, headers, found.parameters, scope["query_string"], receive, response.send, self._max_body,
            self._limits,
        )  # fmt: skip
        return self._handlers[route.operation](request)

    async def _describe(self, request: RestRequest) -> None:
        await respond(request.send, 200, self._document)


def _route(found: Found, method: str) -> Route:
    """Raises `Problem` 405."""
    route = found.by_method.get("GET" if method == "HEAD" else method)
    if route is None or (method == "HEAD" and not route.has_head):
        allowed = found.allowed
        raise Problem(
            405, "method_not_allowed", f"{method[:20]} is not for this; {allowed} are",
            headers=((b"allow", allowed.encode()),),
        )  # fmt: skip
    return route


class _Response:
    """What has been sent of a response; to a HEAD request, no body."""

    def __init__(self, send: Send, *, has_body: bool) -> None:
        self._send = send
        self._has_body = has_body
        self._is_started = False
        self._is_complete = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._is_started = True
        else:
            self._is_complete = not message.get("more_body", False)
            if not self._has_body:
                message = {**message, "body": b""}
        await self._send(message)

    async def fail(self, problem: Problem) -> None:
        """Says what is wrong, if that can be said yet; else what was begun just ends."""
        if not self._is_started:
            await refuse(self.send, problem)
        elif not self._is_complete:
            with anyio.move_on_after(_LAST, shield=True):
                await self._send({"type": "http.response.body", "body": b""})
