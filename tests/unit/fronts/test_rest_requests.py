"""Requests to the REST front that are wrong in some way, and the document that describes the right ones."""

import json
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from mcp_hub.errors import Busy, HubError, InvalidParams, RpcError
from mcp_hub.fronts.rest.problem import ended_in, problem_for
from mcp_hub.fronts.rest.routes import ROUTES
from mcp_hub.protocol.rest.calls import FailedCall
from mcp_hub.protocol.shape.stream_events import decoded, error_data
from tests.unit.fronts.rest_peer import RestPeer, problem, rest_hub

ECHO = "/v1/tools/echo/call"
BUILD = {"name": "build", "inputSchema": {"type": "object"}}
USE = {"type": "tool_use", "id": "c", "name": "echo", "input": {"text": "x"}}
QUERIES: dict[tuple[str, str], list[str]] = {
    ("GET /v1/tools", "unknown_format"): ["format=claude", "format="],
    ("GET /v1/tools", "invalid_parameter"): [
        *("strict=yes", "defer=2", "tools=", "tools=,", "defer=1&expose=search", "group=tag&format=openai-responses"),
        *("format=gemini&callers=programmatic", "format=anthropic&callers=me"),
    ],
    ("GET /v1/tools", "deferral_unsupported"): ["defer=1&format=openai", "defer=1&format=gemini"],
    ("GET /v1/tools", "grouping_unsupported"): ["group=server", "group=server&format=anthropic"],
    ("GET /v1/search", "invalid_parameter"): ["", "q=", "q=%20", "q=a&limit=0", "q=a&limit=x", "q=a&detail=long"],
    ("POST /v1/prompted", "unknown_format"): ["", "format=prolog"],
    ("POST /v1/prompted", "invalid_parameter"): ["format=hermes&call=maybe"],
    ("POST /v1/prompted", "unknown_tool"): ["format=hermes&tools=nope"],
    ("POST /v1/prompted", "unknown_server"): ["format=hermes&server=nope"],
    ("POST /v1/tools/call", "unknown_format"): ["", "format=", "format=claude"],
    ("POST /v1/tools/call", "invalid_calls"): ["format=openai"],
    ("POST /v1/tools/call", "unknown_server"): ["format=anthropic&server=nobody"],
    ("POST /v1/tools/call", "invalid_parameter"): ["format=anthropic&tools="],
}
BODY_OF: dict[str, object] = {"POST /v1/prompted": {"text": "x"}, "POST /v1/tools/call": [USE]}
BODIES: dict[tuple[str, str], list[object]] = {
    (f"POST {ECHO}", "invalid_json"): [
        *(b"hello", b'{"arguments":{"text":"x"}', b'{"arguments":{"text":NaN}}', b'{"arguments":{"text":"\\ud800"}}'),
        *(b'{"arguments":{"text":"\xff"}}', b'{"arguments":{"text":1e400}}'),
        b'{"arguments":{"text":' + b"[" * 20_000 + b"]" * 20_000 + b"}}",
    ],
    (f"POST {ECHO}", "invalid_body"): [
        *(b"5", b"[]", b"null", b'{"arguments":[]}', b'{"arguments":null}', b'{"argument":{}}', b'{"tools":"echo"}'),
        *(b'{"_meta":[1]}', b'{"_meta":{"progressToken":{}}}'),
    ],
    ("POST /v1/search", "invalid_parameter"): [{}, {"query": " "}, {"query": "x", "detail": "long"}],
    ("POST /v1/search", "invalid_body"): [{"query": "x", "limit": 0}, {"query": "x", "unknown": 1}],
    ("POST /v1/search?format=claude", "unknown_format"): [{"query": "x"}],
    ("POST /v1/search?strict=2", "invalid_parameter"): [{"query": "x"}],
    ("POST /v1/search", "unknown_format"): [{"call": {"id": "1", "name": "find_tools"}}],
    ("POST /v1/search?format=anthropic", "invalid_calls"): [{"call": {"id": "1", "name": "find_tools"}}],
    ("POST /v1/tools/call?format=anthropic", "too_many_calls"): [[{**USE, "id": f"c{at}"} for at in range(65)]],
    ("POST /v1/tools/call?format=anthropic", "duplicate_call_id"): [[USE] * 2],
    ("POST /v1/tools/call?format=anthropic", "invalid_calls"): [
        [{"type": "text", "text": "no calls"}],
        [{"type": "tool_use", "name": "echo", "input": {"text": "x"}}],
        [{"type": "tool_use", "id": 1, "name": ["echo"], "input": {}}],
        *({"content": {"type": "tool_use"}}, [1, None], None, b'"text"'),
    ],
    ("POST /v1/tools/call?format=anthropic", "invalid_json"): [b"{"],
    ("PUT /v1/executors/w1", "malformed"): [
        *({"tools": [BUILD], "lease": 1}, {"tools": [{"name": "x"}]}, {"tools": [BUILD, BUILD]}),
        *({"tools": [{**BUILD, "name": name}]} for name in ("", "a\r\nb", "a\x85", "x" * 1025)),
    ],
    ("PUT /v1/executors/w1", "invalid_body"): [{"tools": [BUILD], "lease": "1h"}, {"tools": BUILD}, {}],
    **{
        (f"GET {path}", "not_found"): [None]
        for path in (
            *("/v1/", "/v1/nothing", "/v1/tools/calls", "/v1/tools//call", "/v1/tools/%ff/call", "/v1//tools"),
            "/v1/tools//",
        )
    },
}
REFUSED = [
    *((f"{to}?{query}", BODY_OF.get(to), code) for (to, code), queries in QUERIES.items() for query in queries),
    *((to, body, code) for (to, code), bodies in BODIES.items() for body in bodies),
]


@pytest.fixture(scope="module")
async def refusing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RestPeer]:
    """For all requests that change nothing."""
    async with rest_hub(tmp_path_factory.mktemp("refusing")) as peer:
        yield peer


@pytest.mark.parametrize(("to", "body", "code"), REFUSED)
async def test_request_that_cannot_be_read_is_refused(refusing: RestPeer, to: str, body: object, code: str) -> None:
    status = 404 if code in ("not_found", "unknown_tool", "unknown_server") else 400
    method, _, path = to.partition(" ")
    problem(await refusing.ask(method, path, body), status, code)
    assert (await refusing.ask("GET", "/v1/streams")).json == {"streams": []}


@pytest.mark.parametrize("media", ["text/plain", "multipart/form-data; boundary=x", "application/jsonx", "text/json"])
async def test_body_of_another_type_is_refused(peer: RestPeer, media: str) -> None:
    response = await peer.ask("POST", ECHO, {"arguments": {}}, headers={"content-type": media})
    problem(response, 415, "unsupported_media_type")


CURL = "application/x-www-form-urlencoded"
PROMPTED = "/v1/prompted?format=hermes&call=1"
SIMPLE = ("text/plain", CURL, "multipart/form-data; boundary=x", "text/plain; application/json", None)
"""Types of bodies that a page may send anywhere without a preflight."""


@pytest.mark.parametrize("media", SIMPLE)
@pytest.mark.parametrize("path", [ECHO, PROMPTED, "/v1/reload", "/v1/servers/local/restart", "/v1/streams/st_x/input"])
async def test_no_page_changes_anything_by_a_request_that_needs_no_preflight(
    open_peer: RestPeer, path: str, media: str | None
) -> None:
    for body in (None, b"{}"):
        response = await open_peer.ask("POST", path, body, headers={"content-type": media}, token=None)
        detail = problem(response, 415, "unsupported_media_type")["detail"]
        assert "Content-Type: application/json" in detail and "X-MCP-Hub" in detail
    basic = {"content-type": media, "authorization": "Basic bWU6bWU="}  # which a browser sends by itself
    problem(await open_peer.ask("POST", path, b"{}", headers=basic, token=None), 415, "unsupported_media_type")
    assert (await open_peer.ask("GET", "/v1/streams")).json == {"streams": []}


@pytest.mark.parametrize("media", [CURL, None])
@pytest.mark.parametrize("mark", [{"x-mcp-hub": "1"}, {"authorization": "Bearer x"}])
async def test_a_program_that_shows_itself_by_a_header_needs_no_type(
    open_peer: RestPeer, media: str | None, mark: dict[str, str]
) -> None:
    sent = {"content-type": media, **mark}
    answer = await open_peer.ask("POST", ECHO, b'{"arguments":{"text":"x"}}', headers=sent, token=None)
    assert answer.json["result"]["content"][0]["text"] == "x"
    problem(await open_peer.ask("POST", "/v1/servers/none/restart", headers=mark, token=None), 404, "unknown_server")


async def test_a_page_takes_no_calls_from_a_worker(open_peer: RestPeer) -> None:
    tools = {"tools": [{"name": "build", "inputSchema": {"type": "object"}}]}
    epoch = (await open_peer.ask("PUT", "/v1/executors/w", tools, token=None)).json["epoch"]
    path = f"/v1/executors/w/calls?wait=0&epoch={epoch}"
    problem(await open_peer.ask("GET", path, token=None), 415, "unsupported_media_type")
    for mark in ({"x-mcp-hub": "1"}, {"producer-epoch": str(epoch)}, {"content-type": "application/json"}):
        assert (await open_peer.ask("GET", path, headers=mark, token=None)).json == {"offers": []}


async def test_body_may_have_a_charset_line_breaks_or_not_be_there_at_all(peer: RestPeer) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    response = await peer.ask("POST", ECHO, b'{\r\n"arguments":\n{"text":\n"x"}}', headers=headers)
    assert response.json["result"]["content"][0]["text"] == "x"
    assert (await peer.ask("POST", ECHO)).json["result"]["isError"] is True


async def test_body_over_the_limit_is_refused(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.fronts.http.admission._DISCARD", 0.01)
    response = await peer.ask("POST", ECHO, {"arguments": {"text": "x" * 100_000}})
    problem(response, 413, "body_too_large")
    assert response.headers["connection"] == "close"


async def test_client_that_leaves_before_its_body_is_there_is_not_answered(peer: RestPeer) -> None:
    response = peer.start("POST", ECHO, b"{")
    response._parts.clear()
    response.leave()
    await response.done.wait()
    assert not response.status


async def test_what_is_not_below_v1_is_none_of_its_business(peer: RestPeer) -> None:
    for path in ("/v1", "/v10/tools", "/other"):
        response = await peer.ask("GET", path)
        assert (response.status, response.headers["content-type"]) == (404, "application/json")


async def test_name_may_be_percent_encoded_and_the_path_end_in_a_slash(peer: RestPeer) -> None:
    response = await peer.ask("POST", "/v1/tools/%65cho/call/", {"arguments": {"text": "x"}})
    assert response.status == 200
    unknown = await peer.ask("POST", "/v1/tools/a%2Fb%3F%C3%A9/call", {})
    assert problem(unknown, 404, "unknown_tool")["detail"] == "Unknown tool: a/b?é"


async def test_method_that_a_path_lacks_is_refused_with_those_that_it_has(peer: RestPeer) -> None:
    for route in ROUTES:
        path = re.sub(r"{\w+}", "x", route.path)
        refused = await peer.ask("PATCH", path)
        problem(refused, 405, "method_not_allowed")
        told = await peer.ask("OPTIONS", path)
        assert (told.status, told.body, "content-length" in told.headers) == (204, b"", False)
        assert told.headers["allow"] == refused.headers["allow"]
        assert {route.method, "OPTIONS"} <= set(told.headers["allow"].split(", "))
    problem(await peer.ask("POST", "/v1/tools"), 405, "method_not_allowed")


async def test_head_is_get_without_a_body_where_get_ends_by_itself(peer: RestPeer) -> None:
    get, head = await peer.ask("GET", "/v1/tools"), await peer.ask("HEAD", "/v1/tools")
    assert (head.status, head.body, head.headers) == (200, b"", get.headers)
    refused = await peer.ask("HEAD", "/v1/streams/x/events")
    assert (refused.status, refused.body) == (405, b"") and "HEAD" not in refused.headers["allow"]


async def test_guard_s_refusals_are_problems(peer: RestPeer) -> None:
    nobody = await peer.ask("GET", "/v1/tools", token=None)
    problem(nobody, 401, "unauthorized")
    assert nobody.headers["www-authenticate"] == "Bearer"
    problem(await peer.ask("GET", "/v1/tools", token="x"), 401, "unauthorized")
    elsewhere = await peer.ask("GET", "/v1/tools", headers={"host": "evil.example"})
    problem(elsewhere, 421, "host_not_served")
    page = await peer.ask("GET", "/v1/tools", headers={"origin": "https://evil.example"})
    problem(page, 403, "origin_not_allowed")


async def test_bug_is_a_problem_that_tells_nothing(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer.app.streams.store.log, "rows", None)
    told = problem(await peer.ask("GET", "/v1/streams"), 500, "internal_error")
    assert "NoneType" not in told["detail"]


# -- errors


def test_json_rpc_error_of_a_call_has_a_fitting_status() -> None:
    statuses = {
        "invalid_params": 400, "not_read_only": 400, "not_approved": 403, "busy": 503, "upstream_unavailable": 503,
        "upstream_crashed": 502,
        "deadline_exceeded": 504, "hub_restarted": 503, "internal_error": 500, "method_not_found": 502,
    }  # fmt: skip
    for code, status in statuses.items():
        failed = FailedCall(code, "x", True, "why", msgspec.Raw(b'{"code":1}'))
        told = ended_in("st_1", failed)
        assert (told.status, told.code, (b"retry-after", b"5") in told.headers) == (status, code, status == 503)
    told = ended_in("st_1", FailedCall("hub_restarted", "x", False, "why", msgspec.Raw(b'{"code":1}'), "unknown"))
    assert told.status == 502 and not told.headers


def test_problem_of_a_call_is_read_from_what_the_stream_has_of_its_error() -> None:
    error = RpcError("gone", code=1002, data={"outcome": "unknown"})
    failed = msgspec.json.decode(b"".join(error_data(error)), type=FailedCall)
    assert (failed.outcome, failed.retryable, bytes(failed.jsonrpc)) == ("unknown", False, bytes(error.encoded()))
    assert decoded(b'{"v":1,"seq":1,"type":"error","data":%b}' % b"".join(error_data(error)))[0] == 1


@pytest.mark.parametrize(
    ("error", "status"), [(InvalidParams("x"), 400), (Busy("x"), 503), (RpcError("x"), 500), (HubError("x"), 500)]
)
def test_every_error_of_the_hub_is_a_problem(error: HubError, status: int) -> None:
    told = json.loads(problem_for(error).encoded())
    assert (told["status"], told["title"]) == (status, HTTPStatus(status).phrase)


# -- the document


async def document(tmp_path: Path) -> Any:
    async with rest_hub(tmp_path) as peer:
        first = await peer.ask("GET", "/v1/openapi.json")
        assert first.body == (await peer.ask("GET", "/v1/openapi.json")).body
        return first.json


async def test_document_has_every_route_and_nothing_else(tmp_path: Path) -> None:
    described = await document(tmp_path)
    operations = {
        (method.upper(), path): operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == {(route.method, route.path) for route in ROUTES}
    ids = [operation["operationId"] for operation in operations.values()]
    assert len(set(ids)) == len(ids)
    for route in ROUTES:
        operation = operations[route.method, route.path]
        assert {str(answer.status) for answer in route.answers} <= operation["responses"].keys()
        assert {"401", "421", "429", "503"} <= operation["responses"].keys(), "what any route may answer with"
        assert ("requestBody" in operation) == (route.body is not None)
        in_path = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", route.path))


async def test_parameters_are_bounded_as_the_document_says(tmp_path: Path) -> None:
    """Every value that it excludes is refused, every choice of it is known."""
    described = await document(tmp_path)
    tried = 0
    async with rest_hub(tmp_path) as peer:
        for path, methods in described["paths"].items():
            parameters = methods.get("get", {}).get("parameters", []) if "{" not in path else []
            needed = {"/v1/search": "q=x&", "/v1/prompted": "format=hermes&"}.get(path, "")
            for each in parameters:
                schema = each["schema"]
                wrong = ["no_choice_of_it"] if "enum" in schema else []
                wrong += [str(schema["minimum"] - 1)] if "minimum" in schema else []
                wrong += ["x" * (schema["maxLength"] + 1)] if "maxLength" in schema else []
                query = needed if each["name"] not in needed else ""
                for value in wrong if each["in"] == "query" else ():
                    answer = await peer.ask("GET", f"{path}?{query}{each['name']}={value}")
                    assert answer.status == 400, (path, each, value, answer.body)
                    tried += 1
                for value in schema.get("enum", ()):
                    answer = await peer.ask("GET", f"{path}?{query}{each['name']}={value}")
                    is_refused = "has to be" in answer.json.get("detail", "") or "unknown" in answer.json.get(
                        "code", ""
                    )
                    assert not is_refused, (path, each, value)
    assert tried >= 20


@pytest.mark.parametrize("method", ["TRACE", "PATCH", "QUERY"])
async def test_a_method_that_no_route_has_is_a_405_that_names_the_others(tmp_path: Path, method: str) -> None:
    async with rest_hub(tmp_path) as peer:
        for path in {route.path for route in ROUTES}:
            answer = await peer.ask(method, re.sub(r"{\w+}", "x", path))
            assert (answer.status, answer.json["code"]) == (405, "method_not_allowed"), path
            assert set(answer.headers["allow"].split(", ")) >= {one.method for one in ROUTES if one.path == path}


async def test_document_is_whole(tmp_path: Path) -> None:
    described = await document(tmp_path)
    assert described["openapi"] == "3.1.0" and described["info"] == {"title": "mcp-hub", "version": "1.2"}
    schemas = described["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    references = re.findall(r'"\$ref":\s*"([^"]*)"', json.dumps(described))
    assert references and {f"#/components/schemas/{name}" for name in schemas} == set(references)
    for methods in described["paths"].values():
        for operation in methods.values():
            assert operation["summary"] and all(each["description"] for each in operation["responses"].values())


async def test_answers_are_as_the_document_says(tmp_path: Path) -> None:
    described = await document(tmp_path)

    def fits(name: str, value: object) -> None:
        schema = {**described, "$ref": f"#/components/schemas/{name}"}
        jsonschema.Draft202012Validator(schema).validate(value)

    async with rest_hub(tmp_path) as peer:
        fits("ToolList", (await peer.ask("GET", "/v1/tools")).json)
        answer = (await peer.call("echo", {"text": "x"}).ended()).json
        fits("CallAnswer", answer)
        fits("StreamInfo", (await peer.ask("GET", f"/v1/streams/{answer['stream']}")).json)
        fits("StreamList", (await peer.ask("GET", "/v1/streams")).json)
        fits("EventPage", (await peer.ask("GET", f"/v1/streams/{answer['stream']}/events")).json)
        fits("ProblemBody", (await peer.ask("GET", "/v1/streams/x")).json)
        fits("TokenAccount", account := (await peer.ask("GET", "/v1/tokens")).json)
        with pytest.raises(jsonschema.ValidationError):
            fits("TokenAccount", {**account, "modes": [{"expose": "some"}]})
    parameters = described["paths"]["/v1/tokens"]["get"]["parameters"]
    assert {each["name"] for each in parameters} == {"client", "server", "top", "profile"}


async def test_status_says_that_a_result_is_an_error_of_the_tool(peer: RestPeer) -> None:
    answer = (await peer.ask("POST", "/v1/tools/echo/call")).json
    assert answer["status"] == "tool_error" and answer["result"]["isError"] is True
    (listed,) = (await peer.ask("GET", "/v1/streams")).json["streams"]
    kept = await peer.ask("GET", f"/v1/streams/{answer['stream']}")
    assert (listed["status"], kept.json["status"]) == ("tool_error", "tool_error")
    assert "expires" in listed
