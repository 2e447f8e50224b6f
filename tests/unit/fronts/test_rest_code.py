"""Scripts over REST: the forms of the request and of the answer. A made `run_code` answers with its arguments."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.fronts import local_hub
from tests.unit.fronts.local_hub import Tools
from tests.unit.fronts.rest_peer import NARROW, SSE, RestPeer, problem, rest_hub

SCRIPT = "rows = await list_rows(kind='ä')\nlen(rows)\n"
PYTHON = {"content-type": "text/x-python; charset=utf-8"}


class _CodeTools(Tools):
    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[str, bool]] = []
        self.registry.tool(self.run_code)

    async def run_code(self, code: str, again: bool = False) -> str:
        self.scripts.append((code, again))
        if code == "hold":
            await self.go.wait()
        return f"{code}{again}"


@pytest.fixture
async def coding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RestPeer]:
    monkeypatch.setattr(local_hub, "Tools", _CodeTools)
    async with rest_hub(tmp_path) as peer:
        yield peer


@pytest.mark.parametrize(
    ("path", "body", "headers", "again"),
    [
        ("/v1/code", {"code": SCRIPT}, {}, False),
        ("/v1/code", {"code": SCRIPT, "again": True}, {}, True),
        ("/v1/code", SCRIPT.encode(), PYTHON, False),
        ("/v1/code?again=1", SCRIPT.encode(), PYTHON, True),
        ("/v1/code?again=false", SCRIPT.encode(), PYTHON, False),
    ],
)
async def test_script_comes_as_json_or_as_text(
    coding: RestPeer, path: str, body: object, headers: dict[str, str], again: bool
) -> None:
    response = await coding.ask("POST", path, body, headers=headers)
    assert response.status == 200, response.body
    assert response.json["status"] == "completed"
    assert response.json["result"]["content"] == [{"type": "text", "text": f"{SCRIPT}{again}"}]


async def test_script_has_the_forms_of_a_call(coding: RestPeer) -> None:
    events = await coding.ask("POST", "/v1/code", {"code": "1"}, headers=SSE)
    assert [event.event for event in events.events][-2:] == ["end", "closed"]
    later = await coding.ask("POST", "/v1/code", {"code": "hold"}, headers={"prefer": "wait=0"})
    assert (later.status, later.headers["location"]) == (202, f"/v1/streams/{later.json['stream']}")
    part = await coding.ask("POST", "/v1/code?path=$[0].text", {"code": "3"})
    assert "3False" in part.body.decode()


async def test_idempotency_key_stands_for_one_run(coding: RestPeer) -> None:
    key = {"idempotency-key": "k"}
    first, second = [await coding.ask("POST", "/v1/code", {"code": "1"}, headers=key) for _ in range(2)]
    assert first.json == second.json
    as_text = await coding.ask("POST", "/v1/code", b"1", headers={**key, **PYTHON})
    assert as_text.json == first.json, "the same script in another form is the same request"
    problem(await coding.ask("POST", "/v1/code", {"code": "2"}, headers=key), 422, "idempotency_key_reused")
    assert isinstance(coding.tools, _CodeTools) and coding.tools.scripts == [("1", False)]


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
    assert isinstance(coding.tools, _CodeTools) and not coding.tools.scripts


async def test_text_of_a_web_page_needs_a_type_that_no_form_has(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, tokens=False) as peer:
        refused = await peer.ask("POST", "/v1/code", b"1", headers={"content-type": "text/plain"}, token=None)
        problem(refused, 415, "unsupported_media_type")
        problem(await peer.ask("POST", "/v1/code", b"1", headers=PYTHON, token=None), 403, "code_off")


async def test_hub_without_scripts_says_how_to_switch_them_on(peer: RestPeer) -> None:
    refused = await peer.ask("POST", "/v1/code", {"code": "1"})
    assert "hub.code" in problem(refused, 403, "code_off")["detail"]


async def test_profile_without_scripts_is_refused_as_well(coding: RestPeer) -> None:
    problem(await coding.ask("POST", "/v1/code", b"1", headers=PYTHON, token=NARROW), 403, "code_off")


async def test_document_has_both_forms_of_the_script(peer: RestPeer) -> None:
    described = (await peer.ask("GET", "/v1/openapi.json")).json
    body = described["paths"]["/v1/code"]["post"]["requestBody"]["content"]
    assert body["text/x-python"]["schema"] == {"type": "string"}
    assert body["application/json"]["schema"]["$ref"].endswith("/CodeBody")
