"""Questions as the hub passes them on pass the SDK's own models of each version."""

import json
from typing import Any

import pytest
from mcp_types import ClientCapabilities
from mcp_types.methods import INPUT_REQUIRED_METHODS, SERVER_REQUESTS, validate_server_result
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_hub.protocol.capabilities import SUPERSET
from mcp_hub.protocol.eras import era_of
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire, url_elicitations
from mcp_hub.protocol.shape.questions import QUESTIONS, can_answer, for_version, input_required_result
from mcp_hub.types import Era, JsonObject

MESSAGE: JsonObject = {"role": "user", "content": {"type": "text", "text": "a"}}
ASKED: list[tuple[str, JsonObject]] = [
    ("roots/list", {}),
    ("elicitation/create", {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}),
    ("elicitation/create", {"mode": "form", "message": "m", "requestedSchema": {"type": "object", "properties": {}}}),
    ("elicitation/create", {"mode": "url", "message": "m", "url": "https://x/"}),
    ("elicitation/create", {"mode": "url", "message": "m", "url": "https://x/", "elicitationId": "e"}),
    ("sampling/createMessage", {"messages": [MESSAGE], "maxTokens": 5, "includeContext": "thisServer"}),
    ("sampling/createMessage", {"messages": [MESSAGE], "maxTokens": 5, "tools": [], "toolChoice": {"mode": "auto"}}),
]
ONE_HOP: JsonObject = {"task": {"ttl": 1}, "_meta": {"progressToken": 1, "x.y/z": 1}}

asked = pytest.mark.parametrize(("method", "params"), ASKED, ids=lambda value: str(value)[:60])


def passed_on(method: str, params: JsonObject, version: str) -> Any:
    sent = json.dumps({**params, **ONE_HOP}).encode()
    return json.loads(bytes(for_version(method, sent, version, "minted")))


@asked
@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
def test_requests_to_handshake_clients(method: str, params: JsonObject, version: str) -> None:
    model = SERVER_REQUESTS.get((method, version))
    assert (model is None) == (can_answer(SUPERSET, version, method, b"{}") is not None)
    if model is not None:
        passed = passed_on(method, params, version)
        model.model_validate({"jsonrpc": "2.0", "id": 1, "method": method, "params": passed})
        assert params.keys() - {"mode"} <= passed.keys() and "task" not in passed


@asked
@pytest.mark.parametrize("version", MODERN_PROTOCOL_VERSIONS)
def test_results_that_ask_modern_clients(method: str, params: JsonObject, version: str) -> None:
    wanted = passed_on(method, params, version)
    result = json.loads(bytes(input_required_result({"q": (method, json.dumps(wanted).encode())}, "s")))
    for call in INPUT_REQUIRED_METHODS:
        validate_server_result(call, version, result)
    assert not {"task", "elicitationId"} & wanted.keys()


def test_urls_from_an_error_ask_modern_clients() -> None:
    elicitation = {"mode": "url", "message": "m", "url": "https://x/", "elicitationId": "e"}
    error = from_wire(json.dumps({"code": -32042, "message": "", "data": {"elicitations": [elicitation]}}).encode())
    wanted = url_elicitations(error)
    assert wanted is not None
    validate_server_result("tools/call", "2026-07-28", json.loads(bytes(input_required_result(wanted, None))))


def test_the_models_refuse_what_was_not_shaped() -> None:
    """Or the tests of this file would show nothing."""
    params = {"mode": "url", "message": "m", "url": "https://x/"}
    with pytest.raises(ValidationError):
        SERVER_REQUESTS["elicitation/create", "2025-11-25"].model_validate(
            {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params}
        )


@pytest.mark.parametrize("version", KNOWN_PROTOCOL_VERSIONS)
def test_the_questions_are_those_of_the_sdk(version: str) -> None:
    of_version = {method for method, at in SERVER_REQUESTS if at == version} - {"ping"}
    assert of_version <= QUESTIONS.keys()
    if era_of(version) is Era.HANDSHAKE:
        assert of_version == {method for method in QUESTIONS if can_answer(SUPERSET, version, method, b"{}") is None}


def test_what_the_hub_declares_is_what_the_sdk_knows() -> None:
    read = ClientCapabilities.model_validate(SUPERSET).model_dump(by_alias=True, exclude_unset=True)
    assert read == SUPERSET
