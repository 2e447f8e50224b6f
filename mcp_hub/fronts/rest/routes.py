"""The routes as one table, and the OpenAPI 3.1 document made from it. Pure."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from mcp_hub.formats.connectors import Connector
from mcp_hub.formats.prompted import FORMATS
from mcp_hub.formats.providers import Format
from mcp_hub.protocol.rest import calls, history, servers, streams
from mcp_hub.protocol.rest.problems import ProblemBody
from mcp_hub.protocol.rest.tokens import TokenAccount
from mcp_hub.types import JsonObject

PREFIX: Final = "/v1"
_JSON: Final = "application/json"
_SSE: Final = "text/event-stream"
_NDJSON: Final = "application/x-ndjson"
_REFERENCE: Final = "#/components/schemas/{name}"
_PUBLISHED: Final = {"StreamStatus": "StreamInfo", "StreamPage": "EventPage"}
"""Names of components that are not those of the classes: clients are generated from the document."""
_EVERYWHERE: Final = (401, 403, 405, 421, 429, 503)
"""Problems of any route: authentication, a wrong method, a limit, a hub that stops."""


class _Option(msgspec.Struct, frozen=True):
    """A query parameter or header. `kind` is its JSON type."""

    name: str
    summary: str
    kind: str = "string"
    is_header: bool = False
    is_required: bool = False


class _Success(msgspec.Struct, frozen=True):
    """A successful response. `forms`: bodies by media type, None for streams."""

    status: int
    summary: str
    forms: Mapping[str, type | None]


class RestRoute(msgspec.Struct, frozen=True):
    """One method of a path. `operation` names its handler, `problems` are its statuses; `takes_away`: GET with an
    effect.
    """

    method: str
    path: str
    operation: str
    summary: str
    answers: tuple[_Success, ...]
    body: type | None = None
    parameters: tuple[_Option, ...] = ()
    problems: tuple[int, ...] = ()
    has_head: bool = False
    takes_away: bool = False

    @property
    def needs_header(self) -> bool:
        """Whether any web page could cause its effect. PUT and DELETE need a preflight."""
        return self.method == "POST" or self.takes_away


_WAIT: Final = _Option("wait", "seconds to wait for something, at most 300 (25)", "number")
_LIMIT: Final = _Option("limit", "most entries of the answer", "integer")
_PROFILE: Final = _Option("profile", "the profile whose tools these are (that of the token, else all tools)")
_FORMAT: Final = _Option("format", f"{', '.join(Format)} (mcp)")
_PROMPTED: Final = _Option("format", ", ".join(FORMATS), is_required=True)
_STRICT: Final = _Option("strict", "1: enforced by the provider where its subset of JSON Schema allows it")
_CALLERS: Final = _Option("callers", "programmatic: code that the model writes may call read-only ones, too (direct)")
_GROUP: Final = _Option("group", "server: tools in namespaces by server (openai-responses; with defer=1 unless none)")
_INLINE: Final = _Option("inline", "1: the tools that a search finds are defined in messages (anthropic)")
_TOOLS: Final = _Option("tools", "only these tools: names separated by commas")
_SERVER: Final = _Option("server", "only tools of this server")
_EPOCH: Final = _Option("epoch", "the registration's; or the header Producer-Epoch", "integer")
_PREFER: Final = _Option("Prefer", "wait=N: seconds to wait for the result, at most 300 (25)", is_header=True)
_KEY: Final = _Option("Idempotency-Key", "the same key and request: the same call", is_header=True)
_CHOSEN: Final = (
    _Option("server", "only calls of this server"),
    _Option("tool", "only calls of tools with this name or glob"),
)
_PRODUCER: Final = (
    _Option("Producer-Epoch", "the registration's; a post with events needs it", "integer", is_header=True),
    _Option("Producer-Seq", "1, 2, 3… for each call; comes with Producer-Epoch", "integer", is_header=True),
)


def _call(path: str, operation: str, summary: str, body: type) -> RestRoute:
    return RestRoute(
        method="POST", path=path, operation=operation, summary=summary,
        answers=(
            _Success(200, "the result, or the events of the call", {_JSON: calls.CallAnswer, _SSE: None}),
            _Success(202, "not done in time: Location has the stream", {_JSON: streams.StreamStatus}),
        ),
        body=body,
        parameters=(_PREFER, _KEY, _PROFILE),
        problems=(400, 403, 404, 406, 409, 413, 415, 422, 500, 502, 503, 504),
    )  # fmt: skip


ROUTES: Final = (
    RestRoute(
        method="GET", path="/v1/tools", operation="listTools", summary="Every tool that the caller may use",
        answers=(_Success(200, "the tools", {_JSON: calls.ToolList}),),
        parameters=(
            _Option("format", f"{', '.join([*Format, *Connector])} (mcp)"), _STRICT,
            _Option("defer", "1: tools are loaded when a search returns them, and the tool for that comes first"),
            _CALLERS, _GROUP, _INLINE, _TOOLS, _SERVER,
            _Option("hints", "1: _meta of each tool says which hints count and where they come from (mcp)"),
            _Option("url", "for connectors: the https address of the hub (hub.http.public_url)"),
            _Option("expose", "full, or as clients of MCP are listed tools: search, names or auto (full)"),
            _PROFILE,
        ),
        problems=(400, 404), has_head=True,
    ),
    RestRoute(
        method="GET", path="/v1/tools/losses", operation="listLosses",
        summary="What a format does not carry of the tools that are listed in it",
        answers=(_Success(200, "the losses", {_JSON: calls.ToolLosses}),),
        parameters=(_FORMAT, _STRICT, _TOOLS, _SERVER, _PROFILE), problems=(400, 404), has_head=True,
    ),
    RestRoute(
        method="POST", path="/v1/search", operation="searchToolsAs",
        summary="The same, for a query or a model's call of the search tool",
        answers=(_Success(200, "the tools that fit, as the format has them", {_JSON: calls.FoundTools}),),
        body=calls.SearchBody, parameters=(_FORMAT, _STRICT, _GROUP, _INLINE, _TOOLS, _SERVER, _PROFILE),
        problems=(400, 404, 413, 415),
    ),
    RestRoute(
        method="GET", path="/v1/search", operation="searchTools",
        summary="The tools that fit a description of what one is needed for",
        answers=(_Success(200, "the tools that fit, as the format has them", {_JSON: calls.FoundTools}),),
        parameters=(
            _Option("q", "what the tool is needed for, or words of its name", is_required=True),
            _FORMAT, _STRICT, _GROUP, _INLINE, _TOOLS, _SERVER,
            _Option("limit", "most hits, at most 50 (8)", "integer"),
            _Option("detail", "brief, or full with each definition (brief)"),
            _PROFILE,
        ),
        problems=(400, 404), has_head=True,
    ),
    RestRoute(
        method="GET", path="/v1/resources", operation="listResources",
        summary="Every resource and template that the caller may use",
        answers=(_Success(200, "the resources", {_JSON: calls.ResourceList}),), parameters=(_PROFILE,),
        problems=(404,), has_head=True,
    ),
    RestRoute(
        method="GET", path="/v1/prompts", operation="listPrompts", summary="Every prompt that the caller may use",
        answers=(_Success(200, "the prompts", {_JSON: calls.PromptList}),), parameters=(_PROFILE,),
        problems=(404,), has_head=True,
    ),
    RestRoute(
        method="GET", path="/v1/tokens", operation="countTokens",
        summary="What the tools cost a model, each and in every way to list them",
        answers=(_Success(200, "the tokens, by estimate", {_JSON: TokenAccount}),),
        parameters=(
            _Option("client", "the kind of client that is listed the tools (unknown)"),
            _Option("server", "count the tools of this server only"),
            _Option("top", "how many names heaviest has (10)", "integer"),
            _PROFILE,
        ),
        problems=(400, 404), has_head=True,
    ),
    _call("/v1/tools/{name}/call", "callTool", "Call a tool; a lost connection does not end the call", calls.CallBody),
    RestRoute(
        method="POST", path="/v1/tools/call", operation="callTools",
        summary="Make 1 to 64 calls of a model; the messages that answer them",
        answers=(
            _Success(200, "the answers, or the events of all calls", {_JSON: calls.CallsAnswer, _SSE: None}),
            _Success(202, "some are not done in time: they have streams", {_JSON: calls.CallsAnswer}),
        ),
        body=msgspec.Raw,
        parameters=(
            _Option("format", ", ".join(Format), is_required=True),
            _TOOLS, _SERVER, _PREFER, _KEY, _PROFILE,
        ),
        problems=(400, 404, 406, 413, 415, 422, 500),
    ),
    RestRoute(
        method="GET", path="/v1/prompted", operation="promptTools",
        summary="What a prompt says about tools to a model whose calls are text",
        answers=(_Success(200, "the section", {_JSON: calls.PromptedSection}),),
        parameters=(
            _PROMPTED, _Option("style", "schemas, or signatures: fewer tokens (schemas)"), _TOOLS, _SERVER, _PROFILE,
        ),
        problems=(400, 404), has_head=True,
    ),
    RestRoute(
        method="POST", path="/v1/prompted", operation="readPrompted",
        summary="The calls in the text of a model; text/plain is read as it comes",
        answers=(
            _Success(200, "the events, and results of calls", {_JSON: calls.PromptedAnswer, _SSE: None}),
            _Success(202, "some calls are not done in time: they have streams", {_JSON: calls.PromptedAnswer}),
        ),
        body=calls.PromptedBody,
        parameters=(
            _PROMPTED, _Option("call", "1: make the calls (0)"),
            _Option("thinking", "1: the prompt has opened the model's thinking (0)"),
            _TOOLS, _SERVER, _PREFER, _PROFILE,
        ),
        problems=(400, 404, 406, 413, 415, 500),
    ),
    _call("/v1/prompts/{name}/get", "getPrompt", "Get a prompt, as a tool is called", calls.PromptBody),
    _call("/v1/resources/read", "readResource", "Read a resource, as a tool is called", calls.ReadBody),
    RestRoute(
        method="GET", path="/v1/streams", operation="listStreams", summary="The caller's streams, the newest first",
        answers=(_Success(200, "the streams", {_JSON: streams.StreamList}),), parameters=(_LIMIT,),
        problems=(400, 503), has_head=True,
    ),
    RestRoute(
        method="GET", path="/v1/streams/{id}", operation="getStream", summary="The state of a stream",
        answers=(_Success(200, "the stream", {_JSON: streams.StreamStatus}),), problems=(404, 503), has_head=True,
    ),
    RestRoute(
        method="DELETE", path="/v1/streams/{id}", operation="cancelStream", summary="Cancel the call of a stream",
        answers=(
            _Success(200, "it had ended already", {_JSON: streams.StreamStatus}),
            _Success(202, "it is being cancelled", {_JSON: streams.StreamStatus}),
        ),
        problems=(404, 503),
    ),
    RestRoute(
        method="GET", path="/v1/streams/{id}/events", operation="followStream",
        summary="The events of a stream behind a cursor",
        answers=(_Success(200, "the events", {_JSON: streams.StreamPage, _SSE: None, _NDJSON: None}),),
        parameters=(
            _Option("after", "number of the event to go on behind (0)", "integer"),
            _WAIT, _LIMIT,
            _Option("Last-Event-ID", "wins over after", "integer", is_header=True),
        ),
        problems=(400, 404, 406, 410, 503),
    ),
    RestRoute(
        method="POST", path="/v1/streams/{id}/input", operation="answerQuestion",
        summary="Answer a question of the tool",
        answers=(_Success(202, "the answer is passed on", {_JSON: streams.StreamStatus}),), body=streams.InputBody,
        problems=(400, 404, 409, 413, 415, 503),
    ),
    RestRoute(
        method="PUT", path="/v1/executors/{id}", operation="registerExecutor",
        summary="Offer tools that the caller executes itself",
        answers=(_Success(200, "registered", {_JSON: calls.ExecutorEpoch}),), body=calls.ExecutorBody,
        problems=(400, 403, 409, 413, 415, 503),
    ),
    RestRoute(
        method="DELETE", path="/v1/executors/{id}", operation="removeExecutor", summary="Take the tools back",
        answers=(_Success(204, "removed", {}),), problems=(403, 404),
    ),
    RestRoute(
        method="GET", path="/v1/executors/{id}/calls", operation="fetchCalls",
        summary="The calls that a worker has to execute",
        answers=(_Success(200, "what there is to do", {_JSON: calls.OfferPage, _SSE: None}),),
        parameters=(_EPOCH, _WAIT, _LIMIT), problems=(400, 403, 404, 406, 415), takes_away=True,
    ),
    RestRoute(
        method="POST", path="/v1/tool-results/stream", operation="postResults",
        summary="Output and result of a call, from its worker",
        answers=(_Success(200, "taken", {_JSON: calls.PostAnswer}), _Success(204, "taken before", {})),
        body=calls.PostBody, parameters=_PRODUCER, problems=(400, 403, 404, 409, 410, 413, 415, 429, 503),
    ),
    RestRoute(
        method="GET", path="/v1/history", operation="listPastCalls",
        summary="The caller's calls that have ended, the newest first",
        answers=(_Success(200, "the calls", {_JSON: history.HistoryPage}),),
        parameters=(
            *_CHOSEN,
            _Option("failed", "1: only calls that did not succeed"),
            _Option("status", "completed, tool_error, failed, cancelled or timed_out"),
            _Option("client", "only calls of clients with this name"),
            _Option("principal", "only calls of this principal; for operators"),
            _Option("method", "only calls of this method of MCP"),
            _Option("since", "an age such as 15m, 1h, 7d, a time in ISO 8601, or Unix seconds"),
            _Option("until", "the same, for the end"),
            _Option("before", "the cursor of an answer: the calls behind its last one"),
            _Option("details", "1: each call with its arguments and result"),
            _Option("limit", f"most calls, at most {history.MOST}, with details {history.MOST_DETAILS}", "integer"),
        ),
        problems=(400, 503), has_head=True,
    ),
    RestRoute(
        method="DELETE", path="/v1/history", operation="clearHistory",
        summary="Remove every call from the history; for operators",
        answers=(_Success(200, "how many", {_JSON: history.HistoryCleared}),), problems=(403, 503),
    ),
    RestRoute(
        method="GET", path="/v1/history/figures", operation="pastFigures",
        summary="Calls, failures and durations by server and tool over time",
        answers=(_Success(200, "the figures", {_JSON: history.HistoryFigures}),),
        parameters=(_Option("span", f"{', '.join(history.SPANS)} (1d)"), *_CHOSEN), problems=(400, 404, 503),
        has_head=True,
    ),
    RestRoute(
        method="GET", path="/v1/history/{id}", operation="getPastCall",
        summary="A call with its arguments and the beginning of its result",
        answers=(_Success(200, "the call", {_JSON: history.HistoryCall}),), problems=(404, 503), has_head=True,
    ),
    RestRoute(
        method="POST", path="/v1/history/{id}/run", operation="runAgain",
        summary="Make a call again, with the arguments that were kept",
        answers=(
            _Success(200, "the result, or the events of the call", {_JSON: calls.CallAnswer, _SSE: None}),
            _Success(202, "not done in time: Location has the stream", {_JSON: streams.StreamStatus}),
        ),
        parameters=(_PREFER, _KEY), problems=(403, 404, 406, 409, 415, 422, 500, 502, 503, 504),
    ),
    RestRoute(
        method="GET", path="/v1/servers", operation="listServers",
        summary="Every server that the caller may use, and its state",
        answers=(_Success(200, "the servers", {_JSON: servers.ServerList}),), parameters=(_PROFILE,),
        problems=(404,), has_head=True,
    ),
    RestRoute(
        method="GET", path="/v1/servers/{name}", operation="getServer", summary="The state of a server",
        answers=(_Success(200, "the server", {_JSON: servers.ServerInfo}),), parameters=(_PROFILE,),
        problems=(404,), has_head=True,
    ),
    RestRoute(
        method="POST", path="/v1/servers/{name}/restart", operation="restartServer",
        summary="Start a server again; its calls have time to end",
        answers=(_Success(202, "a fresh one is being started", {_JSON: servers.RestartAnswer}),),
        problems=(403, 404, 409, 415),
    ),
    RestRoute(
        method="POST", path="/v1/reload", operation="reload", summary="Read the configuration again",
        answers=(_Success(200, "what changed", {_JSON: servers.ReloadAnswer}),), problems=(403, 404, 415, 422),
    ),
    RestRoute(
        method="GET", path="/v1/openapi.json", operation="describe", summary="This description",
        answers=(_Success(200, "an OpenAPI 3.1 document", {_JSON: None}),), has_head=True,
    ),
)  # fmt: skip


def openapi_document(version: str) -> bytes:
    """The OpenAPI 3.1 document of a hub's version."""
    shapes = sorted(
        {route.body for route in ROUTES if route.body is not None}
        | {form for route in ROUTES for answer in route.answers for form in answer.forms.values() if form is not None}
        | {ProblemBody},
        key=lambda shape: shape.__name__,
    )
    references, schemas = msgspec.json.schema_components(shapes, ref_template=_REFERENCE)
    for name, published in _PUBLISHED.items():
        schemas[published] = {**schemas.pop(name), "title": published}
    refer = dict(zip(shapes, references, strict=True))
    paths: dict[str, JsonObject] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refer)
    described = msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "mcp-hub", "version": version},
            "paths": paths,
            "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
            "security": [{}, {"token": []}],
        }
    )
    for name, published in _PUBLISHED.items():
        described = described.replace(_quoted(name), _quoted(published))
    return described


def _quoted(name: str) -> bytes:
    return msgspec.json.encode(_REFERENCE.format(name=name))


def _operation(route: RestRoute, refer: dict[type, JsonObject]) -> JsonObject:
    in_path = [_Option(name, "", is_required=True) for name in re.findall(r"{(\w+)}", route.path)]
    parameters = [_parameter(each, "path") for each in in_path]
    parameters += [_parameter(each, "header" if each.is_header else "query") for each in route.parameters]
    responses: JsonObject = {str(answer.status): _response(answer, refer) for answer in route.answers}
    for status in sorted({*route.problems, *_EVERYWHERE}):
        content = {"application/problem+json": {"schema": refer[ProblemBody]}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    operation: JsonObject = {"operationId": route.operation, "summary": route.summary, "responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": refer[route.body]}}}
    return operation


def _parameter(parameter: _Option, location: str) -> JsonObject:
    described = {"description": parameter.summary} if parameter.summary else {}
    schema = {"type": parameter.kind}
    return {"name": parameter.name, "in": location, "required": parameter.is_required, "schema": schema, **described}


def _response(answer: _Success, refer: dict[type, JsonObject]) -> JsonObject:
    forms = {media: {} if form is None else {"schema": refer[form]} for media, form in answer.forms.items()}
    return {"description": answer.summary, **({"content": forms} if forms else {})}
