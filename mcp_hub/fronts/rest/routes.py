"""The routes as one table. Pure."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

from mcp_hub.formats.prompted import FORMATS
from mcp_hub.protocol.rest import calls, history, servers
from mcp_hub.types import CONNECTORS, Format, JsonObject, Mode

PREFIX: Final = "/v1"
_JSON: Final = "application/json"
_SSE: Final = "text/event-stream"
_NDJSON: Final = "application/x-ndjson"
_FLAG: Final = ("1", "0", "true", "false")
EXPOSE: Final[tuple[Mode | Literal["auto"], ...]] = ("full", "search", "names", "auto")
"""Ways to list the tools."""


class _Option(msgspec.Struct, frozen=True):
    """A query parameter or header. `kind` is its JSON type; `least` and `greatest` bound numbers, or lengths."""

    name: str
    summary: str
    kind: str = "string"
    is_header: bool = False
    is_required: bool = False
    choices: tuple[str, ...] = ()
    least: int | None = None
    greatest: int | None = None

    def described(self) -> JsonObject:
        names = ("minLength", "maxLength") if self.kind == "string" else ("minimum", "maximum")
        limits = zip(names, (self.least, self.greatest), strict=True)
        schema: JsonObject = {"type": self.kind, **{name: limit for name, limit in limits if limit is not None}}
        if self.choices:
            schema["enum"] = list(self.choices)
        return {
            "name": self.name, "in": "header" if self.is_header else "query", "required": self.is_required,
            "schema": schema, "description": self.summary,
        }  # fmt: skip


class _Success(msgspec.Struct, frozen=True):
    """A successful response. `forms`: bodies by media type, None for streams."""

    status: int
    summary: str
    forms: Mapping[str, type | None]

    def described(self, refer: Mapping[type, JsonObject]) -> JsonObject:
        response: JsonObject = {"description": self.summary}
        if self.forms:
            response["content"] = {
                media: {} if form is None else {"schema": refer[form]} for media, form in self.forms.items()
            }
        return response


class RestRoute(msgspec.Struct, frozen=True):
    """One method of a path. `operation` names its handler, `problems` are its statuses; `takes_away`: GET with an
    effect. `text`: the media type of a body that is text, in place of JSON.
    """

    method: str
    path: str
    operation: str
    summary: str
    answers: tuple[_Success, ...]
    body: type | None = None
    text: str | None = None
    parameters: tuple[_Option, ...] = ()
    problems: tuple[int, ...] = ()
    has_head: bool = False
    takes_away: bool = False

    @property
    def needs_header(self) -> bool:
        """Whether any web page could cause its effect. PUT and DELETE need a preflight."""
        return self.method == "POST" or self.takes_away


_WAIT: Final = _Option("wait", "seconds to wait for something, at most 300 (25)", "number", least=0, greatest=300)
_LIMIT: Final = _Option("limit", "most entries of the answer", "integer", least=1)
_PROFILE: Final = _Option("profile", "the profile whose tools these are (that of the token, else all tools)")
_PRINCIPAL: Final = _Option("principal", "whose account (the caller's); another one is for operators")
_FORMAT: Final = _Option("format", "the format (mcp)", choices=tuple(Format))
_PROMPTED: Final = _Option("format", "the format", is_required=True, choices=tuple(FORMATS))
_STRICT: Final = _Option(
    "strict", "1: enforced by the provider where its subset of JSON Schema allows it", choices=_FLAG
)
_CALLERS: Final = _Option(
    "callers",
    "programmatic: code that the model writes may call read-only ones, too (direct)",
    choices=("direct", "programmatic"),
)
_GROUP: Final = _Option(
    "group", "tools in namespaces by server (openai-responses; with defer=1 unless none)", choices=("server", "none")
)
_INLINE: Final = _Option(
    "inline", "1: the tools that a search finds are defined in messages (anthropic)", choices=_FLAG
)
_TOOLS: Final = _Option("tools", "only these tools: names separated by commas")
_SERVER: Final = _Option("server", "only tools of this server")
_EPOCH: Final = _Option("epoch", "the registration's; or the header Producer-Epoch", "integer", least=1)
_PREFER: Final = _Option("Prefer", "wait=N: seconds to wait for the result, at most 300 (25)", is_header=True)
_KEY: Final = _Option(
    "Idempotency-Key", "the same key and request: the same call", is_header=True, least=1, greatest=255
)
_PATH: Final = _Option("path", "a JSON path (RFC 9535): the result is what it selects of it", greatest=1000)
_FOR_START: Final = _Option("Prefer", "wait=N: seconds to wait for servers that start (0)", is_header=True)
_CHOSEN: Final = (
    _Option("server", "only calls of this server"),
    _Option("tool", "only calls of tools with this name or glob"),
)
_PRODUCER: Final = (
    _Option("Producer-Epoch", "the registration's; a post with events needs it", "integer", is_header=True, least=1),
    _Option("Producer-Seq", "1, 2, 3… for each call; comes with Producer-Epoch", "integer", is_header=True, least=1),
)


def _call(path: str, operation: str, summary: str, body: type, *options: _Option, text: str | None = None) -> RestRoute:
    return RestRoute(
        method="POST", path=path, operation=operation, summary=summary,
        answers=(
            _Success(200, "the result, or the events of the call", {_JSON: calls.CallAnswer, _SSE: None}),
            _Success(202, "not done in time: Location has the stream", {_JSON: calls.StreamStatus}),
        ),
        body=body, text=text,
        parameters=(*options, _PREFER, _KEY, _PROFILE),
        problems=(400, 403, 404, 406, 409, 413, 415, 422, 500, 502, 503, 504),
    )  # fmt: skip


def _account(
    method: str, path: str, operation: str, summary: str, shape: type, *problems: int, body: type | None = None
) -> RestRoute:
    """A route of the caller's account; but for the way to log in, operators name another's."""
    return RestRoute(
        method=method, path=f"/v1/accounts{path}", operation=operation, summary=summary, body=body,
        answers=(_Success(200, "of the account, without secrets", {_JSON: shape}),), has_head=method == "GET",
        parameters=() if method == "POST" else (_PRINCIPAL,), problems=(*problems, *((404,) if path else ()), 503),
    )  # fmt: skip


def _reading(
    path: str, operation: str, summary: str, answered: str, shape: type, *problems: int,
    parameters: tuple[_Option, ...] = (),
) -> RestRoute:  # fmt: skip
    answers = (_Success(200, answered, {_JSON: shape}),)
    return RestRoute(
        "GET", path, operation, summary, answers=answers, parameters=parameters, problems=problems, has_head=True
    )


ROUTES: Final = (
    RestRoute(
        method="GET", path="/v1/tools", operation="listTools", summary="Every tool that the caller may use",
        answers=(_Success(200, "the tools", {_JSON: calls.ToolList}),),
        parameters=(
            _Option("format", "the format (mcp)", choices=(*Format, *CONNECTORS)), _STRICT,
            _Option("defer", "1: a search loads the tools, and the tool for that comes first (0)", choices=_FLAG),
            _CALLERS, _GROUP, _INLINE, _TOOLS, _SERVER,
            _Option("hints", "1: _meta of each tool says which hints count, and why (mcp)", choices=_FLAG),
            _Option("url", "for connectors: the https address of the hub (hub.http.public_url)"),
            _Option("expose", "all tools, or as clients of MCP are listed them (full)", choices=EXPOSE),
            _FOR_START, _PROFILE,
        ),
        problems=(400, 404, 503), has_head=True,
    ),
    _reading("/v1/tools/losses", "listLosses", "What a format does not carry of the tools that are listed in it",
             "the losses", calls.ToolLosses, 400, 404, parameters=(_FORMAT, _STRICT, _TOOLS, _SERVER, _PROFILE)),
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
            _Option("q", "what the tool is needed for, or words of its name", is_required=True, least=1),
            _FORMAT, _STRICT, _GROUP, _INLINE, _TOOLS, _SERVER,
            _Option("limit", "most hits, at most 50 (8)", "integer", least=1, greatest=50),
            _Option("detail", "brief, or full with each definition (brief)", choices=("brief", "full")),
            _PROFILE,
        ),
        problems=(400, 404), has_head=True,
    ),
    _reading("/v1/resources", "listResources", "Every resource and template that the caller may use",
             "the resources", calls.ResourceList, 404, parameters=(_FOR_START, _PROFILE)),
    _reading("/v1/prompts", "listPrompts", "Every prompt that the caller may use", "the prompts", calls.PromptList, 404,
             parameters=(_FOR_START, _PROFILE)),
    RestRoute(
        method="GET", path="/v1/tokens", operation="countTokens",
        summary="What the tools cost a model, each and in every way to list them",
        answers=(_Success(200, "the tokens, by estimate", {_JSON: servers.TokenAccount}),),
        parameters=(
            _Option("client", "the kind of client that is listed the tools (unknown)", greatest=256),
            _Option("server", "count the tools of this server only"),
            _Option("top", "how many names heaviest has (10)", "integer", least=1), _PROFILE,
        ),
        problems=(400, 404), has_head=True,
    ),
    _call(
        "/v1/tools/{name}/call", "callTool", "Call a tool; a lost connection does not end the call", calls.CallBody,
        _PATH,
    ),
    RestRoute(
        method="POST", path="/v1/tools/call", operation="callTools",
        summary="Make 1 to 64 calls of a model; the messages that answer them",
        answers=(
            _Success(200, "the answers, or the events of all calls", {_JSON: calls.CallsAnswer, _SSE: None}),
            _Success(202, "some are not done in time: they have streams", {_JSON: calls.CallsAnswer}),
        ),
        body=msgspec.Raw,
        parameters=(
            _Option("format", "the format", is_required=True, choices=tuple(Format)),
            _TOOLS, _SERVER, _PATH, _PREFER, _KEY, _PROFILE,
        ),
        problems=(400, 404, 406, 413, 415, 422, 500),
    ),
    RestRoute(
        method="GET", path="/v1/prompted", operation="promptTools",
        summary="What a prompt says about tools to a model whose calls are text",
        answers=(_Success(200, "the section", {_JSON: calls.PromptedSection}),),
        parameters=(
            _PROMPTED,
            _Option("style", "signatures take fewer tokens (schemas)", choices=("schemas", "signatures")),
            _TOOLS, _SERVER, _PROFILE,
        ),
        problems=(400, 404), has_head=True,
    ),
    RestRoute(
        method="POST", path="/v1/prompted", operation="readPrompted",
        summary="The calls in the text of a model; text/plain is read as it comes",
        answers=(
            _Success(200, "the events, and results of calls", {_JSON: calls.CallsAnswer, _SSE: None}),
            _Success(202, "some calls are not done in time: they have streams", {_JSON: calls.CallsAnswer}),
        ),
        body=calls.PromptedBody, text="text/plain",
        parameters=(
            _PROMPTED, _Option("call", "1: make the calls (0)", choices=_FLAG),
            _Option("thinking", "1: the prompt has opened the model's thinking (0)", choices=_FLAG),
            _TOOLS, _SERVER, _PATH, _PREFER, _PROFILE,
        ),
        problems=(400, 404, 406, 413, 415, 500),
    ),
    _call(
        "/v1/code", "runCode", "Run a script over the tools, as JSON or as text/x-python", calls.CodeBody,
        _Option("again", "1: with text/x-python, run it although the same script runs (0)", choices=_FLAG),
        text="text/x-python",
    ),
    _call("/v1/prompts/{name}/get", "getPrompt", "Get a prompt, as a tool is called", calls.PromptBody),
    _call("/v1/resources/read", "readResource", "Read a resource, as a tool is called", calls.ReadBody),
    _reading("/v1/streams", "listStreams", "The caller's streams, the newest first", "the streams", calls.StreamList,
             400, 503, parameters=(_LIMIT,)),
    _reading("/v1/streams/{id}", "getStream", "The state of a stream", "the stream", calls.StreamStatus, 404, 503),
    RestRoute(
        method="DELETE", path="/v1/streams/{id}", operation="cancelStream", summary="Cancel the call of a stream",
        answers=(
            _Success(200, "it had ended already", {_JSON: calls.StreamStatus}),
            _Success(202, "it is being cancelled", {_JSON: calls.StreamStatus}),
        ),
        problems=(404, 503),
    ),
    RestRoute(
        method="GET", path="/v1/streams/{id}/events", operation="followStream",
        summary="The events of a stream behind a cursor",
        answers=(_Success(200, "the events", {_JSON: calls.StreamPage, _SSE: None, _NDJSON: None}),),
        parameters=(
            _Option("after", "number of the event to go on behind (0)", "integer", least=0),
            _WAIT, _LIMIT,
            _Option("Last-Event-ID", "wins over after", "integer", is_header=True, least=0),
        ),
        problems=(400, 404, 406, 410, 503),
    ),
    RestRoute(
        method="GET", path="/v1/events", operation="followEvents",
        summary="The types of events; with a name, what happens, behind a cursor",
        answers=(_Success(200, "the types, or the events", {_JSON: calls.EventList, _SSE: None, _NDJSON: None}),),
        parameters=(
            _Option("server", "only types of this server"), _Option("name", "the type of events"),
            _Option("arguments", "of the subscription: a JSON object ({})"),
            _Option("after", "the cursor of an answer (what happens from now on)"), _WAIT, _LIMIT, _FOR_START,
            _Option("Last-Event-ID", "wins over after", is_header=True), _PROFILE,
        ),
        problems=(400, 403, 404, 406, 502, 503, 504),
    ),
    RestRoute(
        method="POST", path="/v1/streams/{id}/input", operation="answerQuestion",
        summary="Answer a question of the tool",
        answers=(_Success(202, "the answer is passed on", {_JSON: calls.StreamStatus}),), body=calls.InputBody,
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
            _Option("failed", "1: only calls that did not succeed", choices=("0", "1")),
            _Option("status", "how the call ended", choices=get_args(history.PastStatus)),
            _Option("client", "only calls of clients with this name"),
            _Option("principal", "only calls of this principal; for operators"),
            _Option("parent", "only calls that this run of a script has made"),
            _Option("method", "only calls of this method of MCP"),
            _Option("since", "an age such as 15m, 1h, 7d, a time in ISO 8601, or Unix seconds"),
            _Option("until", "the same, for the end"),
            _Option("before", "the cursor of an answer: the calls behind its last one"),
            _Option("details", "1: each call with its arguments and result", choices=("0", "1")),
            _Option("limit", f"with details {history.MOST_DETAILS} at most", "integer", least=1, greatest=history.MOST),
        ),
        problems=(400, 503), has_head=True,
    ),
    RestRoute(
        method="DELETE", path="/v1/history", operation="clearHistory",
        summary="Remove every call from the history; for operators",
        answers=(_Success(200, "how many", {_JSON: history.HistoryCleared}),), problems=(403, 503),
    ),
    _reading("/v1/history/figures", "pastFigures", "Calls, failures and durations by server and tool over time",
             "the figures", history.HistoryFigures, 400, 404, 503,
             parameters=(_Option("span", "until now (1d)", choices=tuple(history.SPANS)), *_CHOSEN)),
    _reading("/v1/history/{id}", "getPastCall", "A call with its arguments and the beginning of its result",
             "the call", history.HistoryCall, 404, 503),
    RestRoute(
        method="POST", path="/v1/history/{id}/run", operation="runAgain",
        summary="Make a call again, with the arguments that were kept",
        answers=(
            _Success(200, "the result, or the events of the call", {_JSON: calls.CallAnswer, _SSE: None}),
            _Success(202, "not done in time: Location has the stream", {_JSON: calls.StreamStatus}),
        ),
        parameters=(_PATH, _PREFER, _KEY), problems=(400, 403, 404, 406, 409, 415, 422, 500, 502, 503, 504),
    ),
    _reading("/v1/servers", "listServers", "Every server that the caller may use, and its state", "the servers",
             servers.ServerList, 404, parameters=(_PROFILE,)),
    _reading("/v1/servers/{name}", "getServer", "The state of a server", "the server", servers.ServerInfo, 404,
             parameters=(_PROFILE,)),
    RestRoute(
        method="POST", path="/v1/servers/{name}/restart", operation="restartServer",
        summary="Start a server again; its calls have time to end",
        answers=(_Success(202, "a fresh one is being started", {_JSON: servers.RestartAnswer}),),
        problems=(403, 404, 409, 415),
    ),
    _account("POST", "/{server}/login", "linkAccount", "A link by which the caller logs in to an account of their own",
             servers.AccountAnswer, 400, 415),
    _account("POST", "/{server}/confirm", "confirmAccount", "Make a login the account, by the code of its last page",
             servers.AccountAnswer, 400, 403, 413, 415, body=servers.AccountCode),
    _account("GET", "", "listAccounts", "Accounts at servers: the caller's, for operators those of everybody",
             servers.AccountList, 403),
    _account("DELETE", "/{server}", "removeAccount", "Remove an account: revoked at its server, all that uses it ends",
             servers.AccountAnswer, 403),
    _account("PUT", "/{server}/values/{name}", "putAccountValue", "Set a value of an account, never shown again",
             servers.AccountAnswer, 400, 403, 413, 415, body=servers.AccountValue),
    RestRoute(
        method="POST", path="/v1/reload", operation="reload", summary="Read the configuration again",
        answers=(_Success(200, "what changed", {_JSON: servers.ReloadAnswer}),), problems=(403, 404, 415, 422),
    ),
    RestRoute(
        method="GET", path="/v1/openapi.json", operation="describe", summary="This description",
        answers=(_Success(200, "an OpenAPI 3.1 document", {_JSON: None}),), has_head=True,
    ),
)  # fmt: skip
