"""The routes of the REST front as one table: it dispatches, and the OpenAPI document is made from it. Pure."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from mcp_hub.catalog.accounting import TokenAccount
from mcp_hub.fronts import rest_bodies as bodies

__all__ = ["PREFIX", "ROUTES", "Answer", "Found", "Parameter", "Route", "find"]

PREFIX: Final = "/v1"


class Parameter(msgspec.Struct, frozen=True):
    """One in the query, or a header. `kind` is its JSON type."""

    name: str
    summary: str
    kind: str = "string"
    is_header: bool = False
    is_required: bool = False


class Answer(msgspec.Struct, frozen=True):
    """A response that is no problem. `forms` are the bodies by media type; None: a stream or a document of its own."""

    status: int
    summary: str
    forms: Mapping[str, type | None]


class Route(msgspec.Struct, frozen=True):
    """One method of one path; `operation` names its handler. `problems` are the statuses of its own problems."""

    method: str
    path: str
    operation: str
    summary: str
    answers: tuple[Answer, ...]
    body: type | None = None
    parameters: tuple[Parameter, ...] = ()
    problems: tuple[int, ...] = ()
    has_head: bool = False


_JSON: Final = "application/json"
_SSE: Final = "text/event-stream"
_NDJSON: Final = "application/x-ndjson"

_WAIT: Final = Parameter("wait", "seconds to wait for something, at most 300 (25)", "number")
_LIMIT: Final = Parameter("limit", "most entries of the answer", "integer")
_PROFILE: Final = Parameter("profile", "the profile whose tools these are (that of the token, else all tools)")
_EPOCH: Final = Parameter("epoch", "the registration's; or the header Producer-Epoch", "integer")
_PRODUCER: Final = (
    Parameter("Producer-Epoch", "the registration's", "integer", is_header=True, is_required=True),
    Parameter("Producer-Seq", "1, 2, 3… for each call", "integer", is_header=True, is_required=True),
)

ROUTES: Final = (
    Route(
        "GET", "/v1/tools", "listTools", "Every tool that the caller may use",
        (Answer(200, "the tools", {_JSON: bodies.ToolList}),),
        parameters=(Parameter("format", "mcp"), _PROFILE),
        problems=(400, 404), has_head=True,
    ),
    Route(
        "GET", "/v1/tokens", "countTokens", "What the tools cost a model, each and in every way to list them",
        (Answer(200, "the tokens, by estimate", {_JSON: TokenAccount}),),
        parameters=(Parameter("client", "the kind of client that is listed the tools (unknown)"), _PROFILE),
        problems=(400, 404), has_head=True,
    ),
    Route(
        "POST", "/v1/tools/{name}/call", "callTool", "Call a tool; the call goes on when the connection closes",
        (
            Answer(200, "the result, or the events of the call", {_JSON: bodies.CallAnswer, _SSE: None}),
            Answer(202, "not done in time: Location has the stream", {_JSON: bodies.StreamInfo}),
        ),
        body=bodies.CallBody,
        parameters=(
            Parameter("Prefer", "wait=N: seconds to wait for the result, at most 300 (25)", is_header=True),
            Parameter("Idempotency-Key", "the same key and request: the same call", is_header=True),
            _PROFILE,
        ),
        problems=(400, 403, 404, 406, 409, 413, 415, 422, 500, 502, 503, 504),
    ),
    Route(
        "GET", "/v1/streams", "listStreams", "The caller's streams, the newest first",
        (Answer(200, "the streams", {_JSON: bodies.StreamList}),),
        parameters=(_LIMIT,), problems=(400, 503), has_head=True,
    ),
    Route(
        "GET", "/v1/streams/{id}", "getStream", "What is known of a stream",
        (Answer(200, "the stream", {_JSON: bodies.StreamInfo}),),
        problems=(404, 503), has_head=True,
    ),
    Route(
        "DELETE", "/v1/streams/{id}", "cancelStream", "Cancel the call of a stream",
        (
            Answer(200, "it had ended already", {_JSON: bodies.StreamInfo}),
            Answer(202, "it is being cancelled", {_JSON: bodies.StreamInfo}),
        ),
        problems=(404, 503),
    ),
    Route(
        "GET", "/v1/streams/{id}/events", "followStream", "The events of a stream behind a cursor",
        (Answer(200, "the events", {_JSON: bodies.EventPage, _SSE: None, _NDJSON: None}),),
        parameters=(
            Parameter("after", "number of the event to go on behind (0)", "integer"),
            _WAIT, _LIMIT,
            Parameter("Last-Event-ID", "wins over after", "integer", is_header=True),
        ),
        problems=(400, 404, 406, 410, 503),
    ),
    Route(
        "POST", "/v1/streams/{id}/input", "answerQuestion", "Answer a question of the tool",
        (Answer(202, "the answer is passed on", {_JSON: bodies.StreamInfo}),),
        body=bodies.InputBody, problems=(400, 404, 409, 413, 415, 503),
    ),
    Route(
        "PUT", "/v1/executors/{id}", "registerExecutor", "Offer tools that the caller executes itself",
        (Answer(200, "registered", {_JSON: bodies.ExecutorEpoch}),),
        body=bodies.ExecutorBody, problems=(400, 403, 409, 413, 415, 503),
    ),
    Route(
        "DELETE", "/v1/executors/{id}", "removeExecutor", "Take the tools back",
        (Answer(204, "removed", {}),), problems=(403, 404),
    ),
    Route(
        "GET", "/v1/executors/{id}/calls", "fetchCalls", "The calls that a worker has to execute",
        (Answer(200, "what there is to do", {_JSON: bodies.OfferPage, _SSE: None}),),
        parameters=(_EPOCH, _WAIT, _LIMIT), problems=(400, 403, 404, 406),
    ),
    Route(
        "POST", "/v1/tool-results/stream", "postResults", "What a worker says of a call",
        (Answer(200, "taken", {_JSON: bodies.PostAnswer}), Answer(204, "taken before", {})),
        body=bodies.PostBody, parameters=_PRODUCER, problems=(400, 403, 404, 409, 410, 413, 415, 429, 503),
    ),
    Route(
        "GET", "/v1/servers", "listServers", "Every server that the caller may use, and how it is",
        (Answer(200, "the servers", {_JSON: bodies.ServerList}),),
        parameters=(_PROFILE,), problems=(404,), has_head=True,
    ),
    Route(
        "GET", "/v1/servers/{name}", "getServer", "How a server is",
        (Answer(200, "the server", {_JSON: bodies.ServerInfo}),),
        parameters=(_PROFILE,), problems=(404,), has_head=True,
    ),
    Route(
        "POST", "/v1/servers/{name}/restart", "restartServer", "Start a server again; its running calls may end",
        (Answer(202, "a fresh one is being started", {_JSON: bodies.RestartAnswer}),), problems=(404, 409),
    ),
    Route(
        "POST", "/v1/reload", "reload", "Read the configuration again",
        (Answer(200, "what changed", {_JSON: bodies.ReloadAnswer}),), problems=(403, 404, 422),
    ),
    Route(
        "GET", "/v1/openapi.json", "describe", "This description",
        (Answer(200, "an OpenAPI 3.1 document", {_JSON: None}),), has_head=True,
    ),
)  # fmt: skip


class Found(msgspec.Struct, frozen=True):
    """The routes of one path by method, and its parameters, decoded."""

    by_method: Mapping[str, Route]
    parameters: Mapping[str, str]

    @property
    def allowed(self) -> str:
        """The value of an Allow header."""
        methods = [*self.by_method]
        if any(route.has_head for route in self.by_method.values()):
            methods.append("HEAD")
        return ", ".join([*methods, "OPTIONS"])


def find(raw_path: bytes) -> Found | None:
    """The routes of a path as it was sent, with or without a slash at its end; None if there is nothing.

    A slash in a parameter has to be percent-encoded; a parameter that is empty or no UTF-8 is no parameter.
    """
    segments = raw_path.removesuffix(b"/").split(b"/")[1:]
    for path, routes in _PATHS.items():
        parameters = _match(path, segments)
        if parameters is not None:
            return Found(routes, parameters)
    return None


def _match(path: tuple[str, ...], segments: list[bytes]) -> dict[str, str] | None:
    if len(path) != len(segments):
        return None
    parameters = {}
    for wanted, segment in zip(path, segments, strict=True):
        try:
            text = unquote_to_bytes(segment).decode()
        except UnicodeDecodeError:
            return None
        if wanted.startswith("{") and text:
            parameters[wanted[1:-1]] = text
        elif wanted != text:
            return None
    return parameters


def _paths() -> dict[tuple[str, ...], dict[str, Route]]:
    paths: dict[tuple[str, ...], dict[str, Route]] = {}
    for route in ROUTES:
        paths.setdefault(tuple(route.path.split("/")[1:]), {})[route.method] = route
    return paths


_PATHS: Final = _paths()
