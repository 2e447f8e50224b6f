"""Who can be asked what, and the multi round-trip form in both directions."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.protocol.shape.questions import (
    MAX_STATE,
    QUESTIONS,
    action_of,
    can_answer,
    for_version,
    input_requests,
    input_required_result,
    take_retry,
)
from mcp_hub.types import JsonObject, RawObject

ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
FORM: JsonObject = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}
URL: JsonObject = {"mode": "url", "message": "m", "url": "https://x/"}
OLD, OLDER, NEW, MODERN = "2025-06-18", "2025-03-26", "2025-11-25", "2026-07-28"


def encoded(params: object) -> bytes:
    return json.dumps(params).encode()


@pytest.mark.parametrize(
    ("capabilities", "version", "method", "params", "reason"),
    [
        ({"elicitation": {}}, NEW, ELICIT, FORM, None),
        ({"elicitation": {}}, OLD, ELICIT, FORM, None),
        ({"elicitation": {"form": {}}}, MODERN, ELICIT, {"mode": "form", **FORM}, None),
        ({"elicitation": {"form": {}, "url": {}}}, NEW, ELICIT, URL, None),
        ({"elicitation": {"url": {}}}, MODERN, ELICIT, URL, None),
        ({"elicitation": {}}, NEW, ELICIT, URL, "the client did not declare elicitation.url"),
        ({"elicitation": {"url": {}}}, NEW, ELICIT, FORM, "the client did not declare elicitation.form"),
        ({"elicitation": {"url": {}}}, NEW, ELICIT, {"mode": None}, "the client did not declare elicitation.form"),
        ({"elicitation": {}}, NEW, ELICIT, {"mode": "hologram"}, "the client did not declare elicitation.hologram"),
        ({}, NEW, ELICIT, FORM, "the client did not declare elicitation"),
        ({"elicitation": {}}, OLDER, ELICIT, FORM, "protocol version 2025-03-26 has no elicitation"),
        ({"sampling": {}}, "2024-11-05", SAMPLE, {"messages": []}, None),
        ({}, NEW, SAMPLE, {"messages": []}, "the client did not declare sampling"),
        ({"sampling": {}}, NEW, SAMPLE, {"includeContext": "allServers"}, None),
        ({"sampling": {}}, NEW, SAMPLE, {"tools": None, "toolChoice": None}, None),
        ({"sampling": {}}, NEW, SAMPLE, {"tools": []}, "the client did not declare sampling.tools"),
        ({"sampling": {}}, NEW, SAMPLE, {"toolChoice": {}}, "the client did not declare sampling.tools"),
        ({"sampling": {"tools": {}}}, MODERN, SAMPLE, {"tools": [], "toolChoice": {}}, None),
        ({"roots": {}}, MODERN, ROOTS, {}, None),
        ({"roots": {"listChanged": True}}, "2024-11-05", ROOTS, {}, None),
        ({"sampling": {}}, NEW, ROOTS, {}, "the client did not declare roots"),
        ({"roots": {}}, NEW, "tools/list", {}, "no client can be asked for tools/list"),
    ],
)  # fmt: skip
def test_who_can_be_asked_what(
    capabilities: JsonObject, version: str, method: str, params: object, reason: str | None
) -> None:
    assert can_answer(capabilities, version, method, encoded(params)) == reason


@pytest.mark.parametrize("method", QUESTIONS)
@pytest.mark.parametrize("params", [b"5", b"[]", b"{", b"[" * 10**5, b'{"mode":5,"tools":{}}'])
def test_malformed_params_are_judged_all_the_same(method: str, params: bytes) -> None:
    assert can_answer({}, NEW, method, params) == f"the client did not declare {QUESTIONS[method]}"


def test_a_reason_is_short_whatever_was_asked() -> None:
    for method, params in ((ELICIT, {"mode": "x" * 10**5}), ("x" * 10**5, {})):
        assert len(can_answer({"elicitation": {}}, NEW, method, encoded(params)) or "") < 200


def shaped(method: str, params: object, version: str) -> Any:
    return json.loads(bytes(for_version(method, encoded(params), version, "minted")))


@pytest.mark.parametrize(("version", "mode"), [(OLD, {}), (NEW, {"mode": "form"}), (MODERN, {"mode": "form"})])
def test_a_version_without_modes_gets_none(version: str, mode: JsonObject) -> None:
    assert shaped(ELICIT, {"mode": "form", **FORM}, version) == {**mode, **FORM}
    assert shaped(ELICIT, FORM, version) == FORM


@pytest.mark.parametrize(("version", "has_id"), [(OLD, True), (NEW, True), (MODERN, False)])
def test_a_url_has_an_id_in_the_handshake_era_only(version: str, has_id: bool) -> None:
    for named, id_ in (({"elicitationId": "own"}, "own"), ({}, "minted")):
        assert shaped(ELICIT, {**URL, **named}, version) == {**URL, **({"elicitationId": id_} if has_id else {})}


@pytest.mark.parametrize("version", [OLD, NEW, MODERN])
def test_null_in_a_question_counts_as_absent(version: str) -> None:
    assert shaped(ELICIT, {**FORM, "mode": None, "_meta": None}, version) == FORM
    assert shaped("sampling/createMessage", {"systemPrompt": None, "maxTokens": 1}, version) == {"maxTokens": 1}
    url = {} if version == MODERN else {"elicitationId": "minted"}
    assert shaped(ELICIT, {**URL, "elicitationId": None}, version) == {**url, **URL}


@pytest.mark.parametrize("method", QUESTIONS)
@pytest.mark.parametrize("version", [OLD, NEW, MODERN])
def test_what_belongs_to_the_old_hop_goes_and_all_else_passes(method: str, version: str) -> None:
    meta: JsonObject = {"progressToken": 1, "io.modelcontextprotocol/related-task": {"taskId": "t"}}
    kept: JsonObject = {"x-future": [1], "includeContext": "none"}
    params = {**kept, "task": {"ttl": 1}, "_meta": {**meta, "x.y/z": 1}}
    assert shaped(method, params, version) == {**kept, "_meta": {"x.y/z": 1}}


@pytest.mark.parametrize("method", QUESTIONS)
@pytest.mark.parametrize("raw", [b'{ "x": 1.50 , "_meta": {} }', b"5", b"{"])
def test_params_that_need_no_change_stay_byte_for_byte(method: str, raw: bytes) -> None:
    assert for_version(method, raw, NEW, "minted") is raw


WANTED = {"a": (ELICIT, b'{ "mode":"url" }'), "b\n": (ROOTS, b"{}")}


def test_what_is_asked_of_a_modern_client_can_be_read_again() -> None:
    for state in (None, "s\n"):
        found = input_requests(input_required_result(WANTED, state))
        assert found is not None and found.state == state
        assert {key: (method, bytes(params)) for key, (method, params) in found.requests.items()} == WANTED


def test_a_state_alone_is_enough_and_questions_alone_are() -> None:
    assert json.loads(bytes(input_required_result({}, "s"))) == {"resultType": "input_required", "requestState": "s"}
    assert "requestState" not in json.loads(bytes(input_required_result(WANTED, None)))
    found = input_requests(encoded({"resultType": "input_required", "requestState": "s", "inputRequests": None}))
    assert found is not None and (found.requests, found.state) == ({}, "s")


@pytest.mark.parametrize(
    "result", [{}, {"resultType": "complete", "inputRequests": {}}, {"content": "input_required"}, {"resultType": 1}]
)
def test_other_results_ask_for_nothing(result: object) -> None:
    assert input_requests(encoded(result)) is None


@pytest.mark.parametrize(
    ("members", "match"),
    [
        ({}, "without saying which"),
        ({"inputRequests": {}}, "without saying which"),
        ({"inputRequests": []}, "inputRequests is not an object"),
        ({"inputRequests": {"k": 5}}, "cannot be read: 'k'"),
        ({"inputRequests": {"k": {"params": {}}}}, "cannot be read: 'k'"),
        ({"inputRequests": {"k": {"method": "tools/call", "params": {}}}}, "'tools/call', which no client"),
        ({"inputRequests": {"k": {"method": ROOTS, "params": []}}}, "roots/list with params that are not an object"),
        ({"inputRequests": dict.fromkeys(map(str, range(65)), {"method": ROOTS})}, "65 inputs at once, more than 64"),
        ({"requestState": 5}, "requestState must be a string"),
        ({"requestState": "x" * (MAX_STATE + 1)}, "requestState is longer than 65536 characters"),
    ],
)
def test_what_a_server_cannot_ask_is_an_error_that_says_why(members: JsonObject, match: str) -> None:
    with pytest.raises(RpcError, match=match) as caught:
        input_requests(encoded({"resultType": "input_required", **members}))
    assert caught.value.code == -32603 and len(str(caught.value)) < 300


def raws(params: JsonObject) -> RawObject:
    return {name: msgspec.Raw(encoded(value)) for name, value in params.items()}


def test_a_retry_is_parted_from_the_request() -> None:
    params = raws({"name": "t", "inputResponses": {"a": {"action": "accept"}}, "requestState": "s"})
    responses, state = take_retry(params)
    assert responses is not None and state == "s" and list(params) == ["name"]
    assert {key: json.loads(bytes(raw)) for key, raw in responses.items()} == {"a": {"action": "accept"}}


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"inputResponses": []}, "params.inputResponses must be an object"),
        ({"inputResponses": "{}"}, "params.inputResponses must be an object"),
        ({"inputResponses": {"a": {}, "b": 5}}, "the response to 'b' must be an object"),
        ({"requestState": {}}, "params.requestState must be a string"),
        ({"requestState": "x" * (MAX_STATE + 1)}, "params.requestState is longer than 65536 characters"),
    ],
)
def test_a_malformed_retry_is_refused_by_name(params: JsonObject, match: str) -> None:
    with pytest.raises(InvalidParams, match=match):
        take_retry(raws(params))


@pytest.mark.parametrize(
    ("method", "outcome", "action"),
    [
        (ELICIT, b'{"action":"accept","content":{}}', "accept"),
        (ELICIT, b'{ "content": 1, "action" : "decline" }', "decline"),
        (ELICIT, b'{"action":"cancel"}', "cancel"),
        (ELICIT, b'{"action":"run"}', None),
        (ELICIT, b'{"action":["accept"]}', None),
        (ELICIT, b"{}", None),
        (ELICIT, b"[]", None),
        (ELICIT, RpcError("no"), None),
        (SAMPLE, b'{"action":"accept"}', None),
    ],
)
def test_the_action_of_an_elicitation_is_found(method: str, outcome: bytes | RpcError, action: str | None) -> None:
    assert action_of(method, outcome) == action
