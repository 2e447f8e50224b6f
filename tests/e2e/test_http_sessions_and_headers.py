"""What a client can do wrong with what HTTP adds to its era: sessions of the handshake, headers of the modern one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.e2e.bad_input import ALICE, BOB, BOTH, TOKENS, VERSION, bearer, headers_of, line, send
from tests.e2e.client import Answer, HttpClient, Hub
from tests.interaction.fronts import HANDSHAKE, http_hub
from tests.upstreams.child import until
from tests.upstreams.launch import argv, events, received, servers_yaml
from tests.upstreams.messages import modern

pytestmark = pytest.mark.anyio


# -- sessions


async def test_handshake_request_needs_a_session(alice: HttpClient) -> None:
    good = headers_of(HANDSHAKE, alice)
    for headers in ({**good, "mcp-session-id": None}, {"accept": BOTH, "mcp-session-id": None}):
        answer = await alice.post(line(1, "tools/list"), {**headers, "mcp-protocol-version": None})
        assert (answer.status, answer.last["error"]["code"]) == (400, -32600)


async def test_session_that_was_ended_is_unknown(alice: HttpClient) -> None:
    assert (await alice.delete()).status == 204
    assert (await alice.request("ping")).status == 404
    assert (await alice.delete()).status == 404
    async with alice.listen() as stream:
        assert stream.status == 404


async def test_ending_a_session_ends_its_stream_and_calls(alice: HttpClient, hub: Hub) -> None:
    journal_ = Path(hub.argv[hub.argv.index("--config") + 1]).parent / "journal"
    answers: list[Answer] = []

    async def call() -> None:
        answers.append(await alice.request("tools/call", {"name": "a_wait_cancel", "arguments": {"nonce": "ended"}}))

    async with anyio.create_task_group() as tasks, alice.listen() as listening:
        tasks.start_soon(call)
        await until(lambda: "ended" in str(received(journal_, "tools/call")))
        assert (await alice.delete()).status == 204
        assert (await listening.rest()).status == 200
    assert not [message for message in answers[0].messages if "result" in message]
    await until(lambda: [event for event in events(journal_, "cancelled") if event["nonce"] == "ended"])


async def test_stream_needs_the_right_media_type(alice: HttpClient) -> None:
    async with alice.listen(headers={"accept": "application/json"}) as stream:
        assert stream.status == 406


async def test_the_session_of_a_killed_hub_is_as_its_client_left_it_and_ends_with_it(tmp_path: Path) -> None:
    """Its level, its subscriptions; nobody else can use it."""
    journal = tmp_path / "journal"
    text = servers_yaml({"a": argv(name="a", journal=journal, era="handshake")}, hub={"tokens": TOKENS})
    async with http_hub(text, tmp_path) as hub, HttpClient(hub.url, ALICE) as client:
        await client.initialize()
        await client.request("tools/list")
        params = {"name": "a_progress", "arguments": {"n": 3}, "_meta": {"progressToken": 1}}
        place = (await client.request("tools/call", params)).events[0].id
        assert (await client.request("resources/subscribe", {"uri": "fixture://text/1"})).last["result"] == {}
        assert (await client.request("logging/setLevel", {"level": "error"})).last["result"] == {}
        await hub.kill_alone()
    before = {method: len(received(journal, method)) for method in ("resources/subscribe", "logging/setLevel")}
    async with http_hub(text, tmp_path) as hub, HttpClient(hub.url, BOB) as bob, HttpClient(hub.url, ALICE) as again:
        for peer in (bob, again):
            peer.session, peer.version = client.session, client.version
        async with bob.listen(place) as refused:
            assert (await refused.rest()).status == 404
        async with again.listen():
            await until(lambda: all(len(received(journal, method)) > count for method, count in before.items()))
        assert received(journal, "logging/setLevel")[-1]["params"] == {"level": "error"}
        assert (await again.delete()).status == 204
        await hub.kill_alone()
    async with http_hub(text, tmp_path) as hub, HttpClient(hub.url, ALICE) as last:
        last.session, last.version = client.session, client.version
        assert (await last.request("tools/list")).status == 404


async def test_an_id_in_use_is_refused_also_while_its_call_waits_for_a_server(tmp_path: Path) -> None:
    text = servers_yaml({"a": argv(start_delay=1.5)})
    async with http_hub(text, tmp_path) as running, HttpClient(running.url) as client:
        await client.initialize()
        statuses: list[int] = []

        async def ask() -> None:
            answer = await client.request("tools/call", {"name": "a_echo", "arguments": {}}, id=5)
            statuses.append(answer.status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
        assert sorted(statuses) == [200, 400]
        await ask()
        assert statuses[-1] == 200


# -- the modern ladder


CALL = {"name": "a_echo", "arguments": {"text": "x"}}


async def modern_call(hub: Hub, changed: Mapping[str, str | bytes | None], params: Any = None) -> httpx2.Response:
    computed = bearer(
        accept=BOTH, content_type="application/json", mcp_protocol_version=VERSION, mcp_method="tools/call",
        mcp_name="a_echo",
    )  # fmt: skip
    merged = {**computed, **changed}
    sent = [(name, value) for name, value in merged.items() if value is not None]
    return await send(hub, "POST", sent, line(1, "tools/call", params=modern(CALL) if params is None else params))


@pytest.mark.parametrize(
    "changed",
    [
        {"mcp-method": None},
        {"mcp-method": "tools/list"},
        {"mcp-method": "TOOLS/CALL"},
        {"mcp-name": None},
        {"mcp-name": "a_log"},
        {"mcp-name": "=?base64?!!!?="},
        {"mcp-name": b"=?base64?\xe9?="},
        {"mcp-name": ""},
    ],
    ids=repr,
)
async def test_headers_that_contradict_the_body_are_a_mismatch(
    hub: Hub, alice: HttpClient, changed: dict[str, str | bytes | None]
) -> None:
    answer = await modern_call(hub, changed)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020), answer.text
    assert answer.json()["id"] == 1
    assert (await modern_call(hub, {})).status_code == 200


async def test_version_header_and_envelope_have_to_agree(hub: Hub, alice: HttpClient) -> None:
    answer = await modern_call(hub, {}, modern(CALL, version="2099-01-01"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)
    answer = await modern_call(hub, {}, CALL)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in (-32602, -32020)
    answer = await modern_call(hub, {"mcp-protocol-version": "2099-01-01"}, modern(CALL, version="2099-01-01"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32022)
    assert answer.json()["error"]["data"] == {"supported": [VERSION], "requested": "2099-01-01"}


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name"])
async def test_header_that_comes_twice_is_a_mismatch(hub: Hub, alice: HttpClient, name: str) -> None:
    values = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "a_echo"}
    headers = [*bearer(accept=BOTH, content_type="application/json").items(), *values.items(), (name, values[name])]
    answer = await send(hub, "POST", headers, line(1, "tools/call", params=modern(CALL)))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)


async def test_name_in_base64_is_understood(hub: Hub, alice: HttpClient) -> None:
    assert (await modern_call(hub, {"mcp-name": "=?base64?YV9lY2hv?="})).status_code == 200


async def test_argument_that_is_mirrored_in_a_header_has_to_agree(hub: Hub, alice: HttpClient) -> None:
    params = modern({"name": "r_in", "arguments": {"region": "eu"}})
    for value, status in (("eu", 200), ("us", 400), (None, 400)):
        answer = await modern_call(hub, {"mcp-name": "r_in", "mcp-param-region": value}, params)
        assert answer.status_code == status, answer.text
        assert status == 200 or answer.json()["error"]["code"] == -32020


async def test_header_of_an_argument_that_comes_twice_is_a_mismatch(hub: Hub, alice: HttpClient) -> None:
    values = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "r_in"}
    headers = [*bearer(accept=BOTH, content_type="application/json").items(), *values.items()]
    body = line(1, "tools/call", params=modern({"name": "r_in", "arguments": {"region": "eu"}}))
    for regions, status in ((["eu"], 200), (["us", "eu"], 400), (["eu", "eu"], 400)):
        answer = await send(hub, "POST", [*headers, *(("mcp-param-region", region) for region in regions)], body)
        assert answer.status_code == status, answer.text
        assert status == 200 or answer.json()["error"]["code"] == -32020


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_only_post_exists_in_the_modern_era(hub: Hub, method: str) -> None:
    answer = await send(hub, method, bearer(mcp_protocol_version=VERSION, accept=BOTH))
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
