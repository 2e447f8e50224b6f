"""Methods that the hub does not know, let through to the servers whose `passthrough` has them, in both eras."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.answers import Answers, Reply, result
from tests.e2e.client import Hub
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, connected, http_hub, stdio_hub
from tests.interaction.hub_process import written
from tests.upstreams.child import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

SERVER = str(Path(__file__).with_name("acme_server.py"))
ANN, BEN, EVE = "ann-" + "a" * 32, "ben-" + "b" * 32, "eve-" + "e" * 32
NOTICES = ("acme/told", "notifications/acme/told")
OURS = ["acme/*", "notifications/acme/*"]


def entry(name: str, era: str, *passthrough: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [SERVER, name, era], "passthrough": [*passthrough], **more}


def config(servers: dict[str, Any], **hub: Any) -> str:
    tokens = [
        {"token": ANN, "principal": "ann"}, {"token": BEN, "principal": "ben"},
        {"token": EVE, "principal": "eve", "profile": "other"},
    ]  # fmt: skip
    profiles = {"other": {"servers": [name for name in servers if name == "plain"]}}
    return json.dumps({"servers": servers, "profiles": profiles, "hub": {"tokens": tokens, **hub}})


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    servers = {"one": entry("one", HANDSHAKE, *OURS), "plain": entry("plain", HANDSHAKE)}
    async with http_hub(config(servers), tmp_path_factory.mktemp("one")) as running:
        async with connected(running, HANDSHAKE, ANN) as peer:
            await peer.names()
        yield running


@pytest.fixture(scope="module")
async def quiet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    """A hub whose server asks nobody, so that sessions do not take turns."""
    servers = {"one": entry("one", HANDSHAKE, *OURS)}
    async with http_hub(config(servers), tmp_path_factory.mktemp("quiet")) as running:
        yield running


@pytest.fixture(scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    servers = {
        "one": entry("one", HANDSHAKE, "acme/*"), "one-more": entry("one-more", MODERN, "acme/*", "acme/echo"),
        "plain": entry("plain", HANDSHAKE), "off": entry("off", HANDSHAKE, "acme/*", enabled=False),
    }  # fmt: skip
    async with http_hub(config(servers), tmp_path_factory.mktemp("two")) as running:
        async with connected(running, HANDSHAKE, ANN) as peer:
            await peer.names()
        yield running


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("front", ["stdio", "http"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_request_and_its_answer_pass_byte_for_byte(
    front: str, era: str, server_era: str, tmp_path: Path
) -> None:
    text = json.dumps({"servers": {"one": entry("one", server_era, "acme/*")}})
    async with AsyncExitStack() as stack:
        running: Any = await stack.enter_async_context((http_hub if front == "http" else stdio_hub)(text, tmp_path))
        if front == "stdio" and era == HANDSHAKE:
            await running.initialize()
        peer = await stack.enter_async_context(connected(running, era))
        await peer.names()
        params = {"name": "one_look", "uri": "x:y", "ünïcode": [1.50, None], "task": {}, "cursor": ""}
        answer = (await peer.request("acme/echo", params)).result
        assert answer["params"] == params and answer["huge"] == 1 << 70
        assert ("resultType" in answer) == (era == MODERN)
        error = (await peer.request("acme/fail")).error
        assert (error["code"], error["message"], error["data"]) == (77, "no", {"x": [1]})
        assert (await peer.request("acme/none")).error["code"] == -32601
        seen = (await peer.request("acme/announce", {"text": "new"})).before
        assert {"jsonrpc": "2.0", "method": "acme/changed", "params": {"text": "new"}} in seen
        methods = {message["method"] for message in seen}
        assert methods == {"acme/changed"}, "other/changed and notifications/acme/changed have no pattern"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "method",
    [
        "other/echo", "ACME/echo", "acme", "acme/", "/acme/echo", "acme//echo", "acme/../tools/call", "acme/écho",
        "\uff41cme/echo", "acme/echo\u0000", "acme\u2215echo", "TOOLS/call", "tools\u200b/call",
        "\uff54ools/call", "tools/CALL",
        "tools/call ", "notifications/acme/echo2/é", "acme/" + "x" * 200, "skills/other", "events/other",
    ],
)  # fmt: skip
async def test_any_other_method_is_unknown_and_reaches_no_server(hub: Hub, era: str, method: str) -> None:
    async with connected(hub, era, ANN) as peer:
        if era == MODERN and not (method.isascii() and method.isprintable()):
            pytest.skip("no header can have it")
        error = (await peer.request(method, {"name": "one_look"})).error
        assert error["code"] in (-32601, -32602, -32020, -32600), error
        seen = (await peer.request("acme/seen")).result["seen"]
        assert method not in [name for name, _ in seen]


async def test_known_methods_are_the_hubs_whatever_the_server_has(hub: Hub) -> None:
    async with connected(hub, HANDSHAKE, ANN) as peer:
        assert (await peer.request("tools/call", {"name": "look"})).error["code"] == -32602, "exported names only"
        assert (await peer.request("prompts/list")).result == {"prompts": []}


@pytest.mark.parametrize("era", ERAS)
async def test_extensions_of_the_server_are_declared_to_its_profile_only(hub: Hub, era: str) -> None:
    declared = {}
    for token in (ANN, EVE):
        async with connected(hub, era, token) as peer:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            method = "initialize" if era == HANDSHAKE else "server/discover"
            declared[token] = (await peer.request(method, hello if era == HANDSHAKE else None)).result["capabilities"]
    mine, hers = declared[ANN], declared[EVE]
    assert mine["acme"] == {"version": 1} and mine["experimental"]["acme-trial"] == {}
    assert mine["extensions"]["com.acme/things"] == {"of": "one"}
    assert mine["extensions"]["dev.mcp-hub/streams"] == {}, "the hub's own"
    assert "io.modelcontextprotocol/secret" not in mine["extensions"]
    assert "acme" not in hers and "acme-trial" not in hers.get("experimental", {})
    assert "com.acme/things" not in hers["extensions"]


@pytest.mark.parametrize("era", ERAS)
async def test_another_profile_does_not_reach_the_server(hub: Hub, era: str) -> None:
    async with connected(hub, era, EVE) as peer:
        for params in ({}, {"name": "one_look"}, {"_meta": {"dev.mcp-hub/server": "one"}}):
            assert (await peer.request("acme/echo", params)).error["code"] == -32601


@pytest.mark.parametrize("era", ERAS)
async def test_of_two_servers_the_named_one_gets_the_request(two: Hub, era: str) -> None:
    async with connected(two, era, ANN) as peer:
        for name, server in (("one_look", "one"), ("one-more_look", "one-more")):
            answer = (await peer.request("acme/echo", {"name": name})).result
            assert (answer["by"], answer["params"]) == (server, {"name": name})
        for server in ("one", "one-more"):
            answer = (await peer.request("acme/echo", {"_meta": {"dev.mcp-hub/server": server}})).result
            assert answer["by"] == server


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "params",
    [
        {}, {"name": "look"}, {"name": "plain_look"}, {"name": ["one_look"]}, {"name": None}, {"name": "off_look"},
        {"_meta": {"dev.mcp-hub/server": "plain"}}, {"_meta": {"dev.mcp-hub/server": "off"}},
        {"_meta": {"dev.mcp-hub/server": 1}}, {"name": "one_look", "_meta": {"dev.mcp-hub/server": "plain"}},
    ],
)  # fmt: skip
async def test_an_unclear_server_is_an_error_that_names_the_candidates(
    two: Hub, era: str, params: dict[str, Any]
) -> None:
    async with connected(two, era, ANN) as peer:
        error = (await peer.request("acme/echo", params)).error
        assert error["code"] == -32602 and error["data"]["servers"] == ["one", "one-more"], error
        assert "one, one-more" in error["message"]


async def test_a_notification_of_a_client_reaches_the_server(hub: Hub) -> None:
    async with connected(hub, HANDSHAKE, ANN) as peer:
        for method in (
            "acme/told",
            "notifications/acme/told",
            "tools/told",
            "notifications/told",
            "notifications/progress",
        ):
            await peer.wire.notify(method, {"text": "hear"})
        seen: list[Any] = []
        with anyio.fail_after(WAIT):
            while ["notifications/acme/told", {"text": "hear"}] not in seen:
                seen = (await peer.request("acme/seen")).result["seen"]
        assert ["acme/told", {"text": "hear"}] in seen
        assert not {"tools/told", "notifications/told", "notifications/progress"} & {name for name, _ in seen}
    async with connected(hub, HANDSHAKE, EVE) as eve:
        await eve.wire.notify("acme/told", {"text": "from eve"})
        await eve.names()
    async with connected(hub, HANDSHAKE, ANN) as peer:
        assert ["acme/told", {"text": "from eve"}] not in (await peer.request("acme/seen")).result["seen"]


async def test_a_request_of_the_server_goes_to_the_client_whose_call_it_belongs_to(tmp_path: Path) -> None:
    async with stdio_hub(json.dumps({"servers": {"one": entry("one", HANDSHAKE, "acme/*")}}), tmp_path) as wire:
        await wire.initialize()
        answers = Answers({"acme/question": result({"yes": True}), "tools/call": result({})})
        async with connected(wire, HANDSHAKE, answers=answers) as peer:
            asked = await peer.request("acme/ask")
            assert asked.result["outcome"] == {"result": {"yes": True}}
            assert asked.params("acme/question") == [{"task": 1, "text": "?"}]
            for method in ("tools/call", "other/question", "notifications/message", "ACME/question", "ping2"):
                refused = await peer.request("acme/ask", {"method": method})
                assert refused.result["outcome"]["error"]["code"] == -32601
                assert not refused.params(method)
        answers = Answers({"acme/question": Reply({"error": {"code": 5, "message": "no"}})})
        async with connected(wire, HANDSHAKE, answers=answers) as peer:
            assert (await peer.request("acme/ask")).result["outcome"]["error"]["code"] == 5


async def test_a_modern_client_and_a_server_without_patterns_are_not_asked(hub: Hub) -> None:
    async with connected(hub, MODERN, ANN) as peer:
        assert (await peer.request("acme/ask")).result["outcome"]["error"]["code"] == -32601


@pytest.mark.parametrize("eras", [(HANDSHAKE, HANDSHAKE), (MODERN, HANDSHAKE), (MODERN, MODERN)])
@pytest.mark.parametrize("tokens", [(ANN, ANN), (ANN, BEN)])
async def test_nobody_gets_a_notification_that_may_be_of_several_sessions(
    quiet: Hub, eras: tuple[str, str], tokens: tuple[str, str]
) -> None:
    got: list[Any] = []
    async with AsyncExitStack() as stack:
        pairs = zip(eras, tokens, strict=True)
        holder, freer = [await stack.enter_async_context(connected(quiet, *pair)) for pair in pairs]

        async def hold() -> None:
            got.append(await holder.request("acme/hold"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            with anyio.fail_after(WAIT):
                while not (await freer.request("acme/held")).result["held"]:
                    pass
            got.append(await freer.request("acme/free", {"text": "secret of one of them"}))
    assert [seen.params("acme/changed") + seen.params("notifications/acme/changed") for seen in got] == [[], []]
    async with connected(quiet, eras[0], tokens[0]) as alone:
        seen = await alone.request("acme/announce", {"text": "mine"})
        assert seen.params("acme/changed") == seen.params("notifications/acme/changed") == [{"text": "mine"}]


async def test_patterns_hold_from_a_reload_on(tmp_path: Path) -> None:
    def text(*passthrough: str) -> str:
        return json.dumps({"servers": {"one": entry("one", HANDSHAKE, *passthrough)}})

    async with stdio_hub(text(), tmp_path) as wire:
        await wire.initialize()
        async with connected(wire, HANDSHAKE) as peer:
            assert (await peer.request("acme/echo")).error["code"] == -32601
            for patterns, code in ((("acme/*",), None), (("acme/fail",), -32601)):
                written(tmp_path, text(*patterns))
                with anyio.fail_after(WAIT):
                    while (await peer.request("acme/echo")).answer.get("error", {}).get("code") != code:
                        pass
            assert (await peer.request("acme/fail")).error["code"] == 77
