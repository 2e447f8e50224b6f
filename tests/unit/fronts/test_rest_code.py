"""Scripts over REST: the forms of the request and of the answer."""

from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fronts.rest_peer import BOB, NARROW, SSE, RestPeer, problem, rest_hub

SCRIPT = "words = [await echo(text=text) for text in ['ä', 'b']]\nprint('echoed')\nwords\n"
PYTHON = {"content-type": "text/x-python; charset=utf-8"}
needs_engine = pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed")


@pytest.fixture
async def coding(tmp_path: Path) -> AsyncIterator[RestPeer]:
    async with rest_hub(tmp_path, code="all") as peer:
        yield peer


@needs_engine
@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/code", {"code": SCRIPT}, {}),
        ("/v1/code", {"code": SCRIPT, "again": True}, {}),
        ("/v1/code", SCRIPT.encode(), PYTHON),
        ("/v1/code?again=1", SCRIPT.encode(), PYTHON),
        ("/v1/code?again=false", SCRIPT.encode(), PYTHON),
    ],
)
async def test_script_comes_as_json_or_as_text(
    coding: RestPeer, path: str, body: object, headers: dict[str, str]
) -> None:
    response = await coding.ask("POST", path, body, headers=headers)
    assert response.status == 200, response.body
    assert response.json["status"] == "completed"
    assert response.json["result"]["content"] == [
        {"type": "text", "text": "echoed\n"},
        {"type": "text", "text": '["ä","b"]'},
    ]


@needs_engine
async def test_script_has_the_forms_of_a_call(coding: RestPeer) -> None:
    events = (await coding.ask("POST", "/v1/code", {"code": SCRIPT}, headers=SSE)).events
    types = [event.event for event in events]
    assert types[0] == "start" and types[-2:] == ["end", "closed"]
    assert types.count("tool-call") == types.count("tool-result") == 2
    later = await coding.ask("POST", "/v1/code", {"code": "await hold(nonce='a')"}, headers={"prefer": "wait=0"})
    assert (later.status, later.headers["location"]) == (202, f"/v1/streams/{later.json['stream']}")
    await coding.tools.has_come("a")
    coding.tools.go.set()
    ended = await coding.until(later.json["stream"], "completed")
    assert ended["result"]["content"] == [{"type": "text", "text": "a"}]


@needs_engine
async def test_text_may_ask_to_run_again(coding: RestPeer) -> None:
    """A run that is under way answers for the same code, unless that is to run again."""
    body = b"await hold(nonce='a')"
    streams: list[str] = []
    for path in ("/v1/code", "/v1/code", "/v1/code?again=1"):
        begun = await coding.ask("POST", path, body, headers={**PYTHON, "prefer": "wait=0"})
        streams.append(begun.json["stream"])
        await coding.tools.has_come("a")
    coding.tools.go.set()
    for stream in streams:
        assert (await coding.until(stream, "completed"))["result"]["content"][0]["text"] == "a"
    assert coding.tools.held == ["a", "a"], "the first, and the one that is to run again"


@needs_engine
async def test_idempotency_key_stands_for_one_run(coding: RestPeer) -> None:
    key = {"idempotency-key": "k"}
    first, second = [await coding.ask("POST", "/v1/code", {"code": "1"}, headers=key) for _ in range(2)]
    assert first.json == second.json
    as_text = await coding.ask("POST", "/v1/code", b"1", headers={**key, **PYTHON})
    assert as_text.json == first.json, "the same script in another form is the same request"
    problem(await coding.ask("POST", "/v1/code", {"code": "2"}, headers=key), 422, "idempotency_key_reused")
    foreign = await coding.ask("POST", "/v1/code", {"code": "1"}, headers=key, token=BOB)
    assert foreign.json["stream"] != first.json["stream"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "code"),
    [
        ("/v1/code", {}, {}, 400, "invalid_body"),
        ("/v1/code", {"code": 1}, {}, 400, "invalid_body"),
        ("/v1/code", {"code": "1", "more": 1}, {}, 400, "invalid_body"),
        ("/v1/code", b"{", {}, 400, "invalid_json"),
        ("/v1/code", b"\xff", PYTHON, 400, "invalid_body"),
        ("/v1/code?again=yes", b"1", PYTHON, 400, "invalid_parameter"),
        ("/v1/code", b"1" * 100_001, PYTHON, 413, "body_too_large"),
        ("/v1/code", b"1", {**PYTHON, "content-encoding": "gzip"}, 415, "unsupported_media_type"),
        ("/v1/code", b"1", {"content-type": "text/plain"}, 415, "unsupported_media_type"),
    ],
)
async def test_request_that_is_no_script_is_refused(
    coding: RestPeer, path: str, body: object, headers: dict[str, str], status: int, code: str
) -> None:
    problem(await coding.ask("POST", path, body, headers=headers), status, code)
    assert (await coding.ask("GET", "/v1/streams")).json["streams"] == []


async def test_text_of_a_web_page_needs_a_type_that_no_form_has(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, tokens=False) as peer:
        refused = await peer.ask("POST", "/v1/code", b"1", headers={"content-type": "text/plain"}, token=None)
        problem(refused, 415, "unsupported_media_type")
        problem(await peer.ask("POST", "/v1/code", b"1", headers=PYTHON, token=None), 403, "code_off")


async def test_hub_without_scripts_says_how_to_switch_them_on(peer: RestPeer) -> None:
    refused = await peer.ask("POST", "/v1/code", {"code": "1"})
    assert "hub.code" in problem(refused, 403, "code_off")["detail"]


@needs_engine
async def test_profile_without_scripts_is_refused_as_well(tmp_path: Path) -> None:
    profiles: Any = {"narrow": {"tools": {"allow": ["echo"]}, "code": "off"}, "elsewhere": {"servers": []}}
    async with rest_hub(tmp_path, code="all", profiles=profiles) as peer:
        problem(await peer.ask("POST", "/v1/code", b"1", headers=PYTHON, token=NARROW), 403, "code_off")
        assert (await peer.ask("POST", "/v1/code", b"1", headers=PYTHON)).status == 200


async def test_document_has_both_forms_of_the_script(peer: RestPeer) -> None:
    described = (await peer.ask("GET", "/v1/openapi.json")).json
    body = described["paths"]["/v1/code"]["post"]["requestBody"]["content"]
    assert body["text/x-python"]["schema"] == {"type": "string"}
    assert body["application/json"]["schema"]["$ref"].endswith("/CodeBody")
