"""What a client can do wrong over stdio, and with names on each front: the next request is served."""

from collections.abc import AsyncIterator

import pytest

from tests.e2e.bad_input import ALICE, BAD, LIMIT, PARAMS, line
from tests.e2e.client import Hub
from tests.interaction.fronts import ERAS, Peer, connected, stdio_session
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stdio(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    root = tmp_path_factory.mktemp("stdio")
    servers = {"a": argv(name="a", journal=root / "journal")}
    async with stdio_session(servers_yaml(servers, hub={"limits": {"line": LIMIT}}), root) as client:
        await client.request("tools/list")
        yield client
        assert client.noise == []
        assert await client.close() == 0


# -- stdio


@pytest.mark.parametrize("name", BAD)
async def test_stdio_answers_what_is_no_message_with_an_error_and_continues(stdio: StdioClient, name: str) -> None:
    raw, code = BAD[name]
    position = len(stdio.transcript)
    await stdio.send_raw(raw + b"\n")
    answer = await stdio.wait_for(lambda message: "error" in message, after=position)
    assert answer["error"]["code"] == code, answer
    assert answer["id"] in (None, 1, 2)
    assert (await stdio.request("ping", id="alive"))["result"] == {}
    assert len([m for m in stdio.transcript[position:] if "id" in m]) == 2


@pytest.mark.parametrize("name", PARAMS)
async def test_stdio_answers_malformed_params_with_invalid_params(stdio: StdioClient, name: str) -> None:
    method, params = PARAMS[name]
    await stdio.send_raw(line(name, method, params=params) + b"\n")
    assert (await stdio.response(name))["error"]["code"] == -32602
    assert (await stdio.request("ping"))["result"] == {}


async def test_stdio_survives_blank_lines_strays_and_unknown_notifications(stdio: StdioClient) -> None:
    position = len(stdio.transcript)
    for raw in (
        b"\n\r\n   \n",
        b'{"jsonrpc":"2.0","id":77,"result":{}}\n',
        b'{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}\n',
        b'{"jsonrpc":"2.0","method":"notifications/nobody","params":5}\n',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}\n',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}\n',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nobody"}}\n',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}\n',
    ):
        await stdio.send_raw(raw)
    assert (await stdio.request("ping", id="after"))["result"] == {}
    assert [m for m in stdio.transcript[position:] if "id" in m] == [{"jsonrpc": "2.0", "id": "after", "result": {}}]


async def test_crlf_and_spaces_around_a_message_do_no_harm(stdio: StdioClient) -> None:
    await stdio.send_raw(b' \t{ "jsonrpc" : "2.0" , "id" : "crlf", "method" : "ping" } \r\n')
    assert (await stdio.response("crlf"))["result"] == {}


@pytest.mark.parametrize("size", [LIMIT + 1, 3_000_000])
async def test_line_over_the_limit_is_an_error_and_the_rest_of_it_is_skipped(stdio: StdioClient, size: int) -> None:
    huge = line(f"huge{size}", "tools/call", params={"name": "a_echo", "arguments": {"text": "x" * size}})
    await stdio.send_raw(huge + b"\n" + line("next") + b"\n")
    answer = await stdio.response(f"huge{size}")
    assert answer["error"]["code"] in (-32700, -32600)
    assert str(LIMIT) in answer["error"]["message"]
    assert (await stdio.response("next"))["result"] == {}


# -- names


@pytest.mark.parametrize("era", ERAS)
async def test_unknown_tool_is_invalid_params_and_names_the_nearest(stdio: StdioClient, hub: Hub, era: str) -> None:
    async with connected(hub, era, ALICE) as remote:
        await remote.names()
        for peer in (Peer(stdio, era), remote):
            for name in ("a_ehco", "echo", "A_Echo"):
                error = (await peer.call(name)).error
                assert error["code"] == -32602
                assert name in error["message"]
                assert "a_echo" in error["message"]
            assert (await peer.call("x" * 10_000)).error["code"] == -32602
            assert (await peer.call("")).error["code"] == -32602
            assert (await peer.request("prompts/get", {"name": "a_gret"})).error["code"] == -32602
