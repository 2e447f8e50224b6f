"""What an upstream can do wrong: its callers get a typed error in time, and everybody else notices nothing."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.e2e.bad_upstreams import AT_ONCE, LOST, UNAVAILABLE, echoes, listed
from tests.interaction.fronts import FRONTS, HANDSHAKE, Peer, connected, http_hub, stdio_hub, stdio_session
from tests.upstreams.launch import argv, events, servers_yaml
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio


# -- bad ones among good ones


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.first(1)
async def test_hanging_crashing_and_missing_servers_delay_nobody(front: str, tmp_path: Path) -> None:
    servers = {
        "hang": argv(mode="hang-start"),
        "lists": argv(mode="hang-list"),
        "crash": argv(mode="crash-start"),
        "missing": ["/no/such/program"],
        "good": argv(name="good"),
    }
    text = servers_yaml(servers, hub={"first_list_wait": "5s"})
    async with (stdio_hub if front == "stdio" else http_hub)(text, tmp_path) as running:
        if isinstance(running, StdioClient):
            with anyio.fail_after(AT_ONCE):
                await running.initialize()
        with anyio.fail_after(AT_ONCE):
            async with connected(running, HANDSHAKE) as peer:
                await peer.request("ping")
        async with connected(running, HANDSHAKE) as peer:
            with anyio.fail_after(AT_ONCE):
                tools = await peer.names()
            assert "good_echo" in tools
            assert {tool.partition("_")[0] for tool in tools} == {"good"}
            for method, key, field in (("resources/list", "resources", "uri"), ("prompts/list", "prompts", "name")):
                with anyio.fail_after(AT_ONCE):
                    assert await peer.names(method, key, field)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(peer.call, "hang_echo", {"text": "x"})  # waits for its server's first start
                for _ in range(20):
                    await echoes(peer, "good")
                tasks.cancel_scope.cancel()
            await running.wait_stderr("boom: cannot open database")
            await running.wait_stderr("no such file|not found")
            for name, said in (("crash", "cannot open database"), ("missing", "/no/such/program")):
                with anyio.fail_after(AT_ONCE):  # one that is started again says nothing meanwhile
                    while said not in (message := (await peer.call(f"{name}_echo", {"text": "x"})).error["message"]):
                        await anyio.lowlevel.checkpoint()
                assert f"{name}_echo" in message and f'"{name}"' in message and "good_echo" not in message


async def test_crashed_server_says_why_and_comes_back(tmp_path: Path) -> None:
    servers = {"bad": argv(name="bad", mode="crash-after", on="env", exit_code=7, journal=tmp_path / "journal")}
    servers["good"] = argv(name="good")
    async with http_hub(servers_yaml(servers), tmp_path) as running, connected(running, HANDSHAKE) as peer:
        await listed(peer, "bad", "good")
        await peer.call("bad_stderr", {"text": "the disk is full"})
        before = len(events(tmp_path / "journal", "start"))  # that of the first era is replaced if it is quick
        with anyio.fail_after(AT_ONCE):
            error = (await peer.call("bad_env")).error
        assert error["code"] == LOST
        assert "code 7" in error["message"]
        assert '"bad"' in error["message"]
        assert error["data"]["upstream"]["server"] == "bad"
        await echoes(peer, "good")
        await echoes(peer, "bad")
        assert len(events(tmp_path / "journal", "start")) == before + 1


async def test_call_to_a_server_that_stays_down_names_state_and_reason(tmp_path: Path) -> None:
    """It was listed once, so that its tools are known; then it dies at every start."""
    switch = tmp_path / "switch"
    script = tmp_path / "server.sh"
    command = " ".join(f"'{part}'" for part in argv(name="bad"))
    script.write_text(f"#!/bin/sh\nif test -e {switch}; then echo 'no licence' >&2; exit 9; fi\nexec {command}\n")
    script.chmod(0o755)
    own = {"restart": {"intensity": 1, "period": "60s"}}
    text = servers_yaml({"bad": [str(script)], "good": argv(name="good")}, defaults=own)
    async with http_hub(text, tmp_path) as running, connected(running, HANDSHAKE) as peer:
        await listed(peer, "bad", "good")
        await echoes(peer, "bad")  # a server that a call has reached is not begun anew in the caller's era
        switch.touch()
        assert (await peer.call("bad_crash", {"code": 4})).error["code"] == LOST
        with anyio.fail_after(240):
            error = (await peer.call("bad_echo", {"text": "x"})).error
        assert error["code"] == UNAVAILABLE
        assert "code 9" in error["message"]
        assert "no licence" in error["message"]
        assert error["data"]["upstream"]["server"] == "bad"
        assert error["data"]["upstream"]["state"] in ("failed", "backing_off")
        await echoes(peer, "good")
        assert "bad_echo" in await peer.names()


async def test_all_running_calls_of_a_crashed_server_end_at_once_and_only_those(tmp_path: Path) -> None:
    servers = {"bad": argv(name="bad"), "good": argv(name="good")}
    async with stdio_session(servers_yaml(servers), tmp_path) as client:
        await listed(Peer(client, HANDSHAKE), *servers)
        slow = {"name": "good_slow", "arguments": {"seconds": 1}}
        await client.send_request("tools/call", slow, id="good")
        for i in range(20):
            await client.send_request(
                "tools/call", {"name": "bad_wait_cancel", "arguments": {"nonce": "x"}}, id=f"b{i}"
            )
        await client.send_request("tools/call", {"name": "bad_crash"}, id="crash")
        for id_ in ("crash", *(f"b{i}" for i in range(20))):
            assert (await client.response(id_, seconds=AT_ONCE))["error"]["code"] == LOST
        assert "result" in await client.response("good")
        answers = [message["id"] for message in client.transcript if "error" in message]
        assert len(answers) == len(set(answers)) == 21


# -- starting
