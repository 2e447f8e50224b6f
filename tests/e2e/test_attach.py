"""Clients over stdio that join one background hub: sharing, separation, deaths and ends."""

import json
import os
import shutil
import signal
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from mcp_hub.attach import hello
from mcp_hub.attach import join as joining
from mcp_hub.attach.join import HubPipes, join
from tests.e2e import held_tools
from tests.e2e.background import Background
from tests.e2e.held_tools import Held
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import argv, entry, events, servers_yaml
from tests.upstreams.messages import rpc

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]

RESTARTED = 1006
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
HANDSHAKE = [rpc("initialize", HELLO, id=0), rpc("notifications/initialized", None)]


async def test_clients_that_start_at_once_share_one_hub_and_one_set_of_servers(hubs: Background) -> None:
    journal = hubs.root / "journal"
    text = servers_yaml({"a": argv(name="a", journal=journal, era="handshake")})
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(hubs.client(text)) for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(client.initialize)
        for number, client in enumerate(clients):
            answer = await client.call("a_echo", {"text": f"client {number}"})
            assert f"client {number}" in str(answer["result"])
        assert len(hubs.living) == 1
        assert len({event["pid"] for event in events(journal, "start")}) == 1


async def test_other_values_of_a_variable_mean_another_hub_with_other_servers(hubs: Background) -> None:
    journal = hubs.root / "journal"
    command, *args = argv(journal=journal, era="handshake")
    text = servers_yaml({"a": [command, *args, "--name=${ATTACH_TOKEN}"]})
    async with hubs.client(text, ATTACH_TOKEN="of-ann") as ann, hubs.client(text, ATTACH_TOKEN="of-bob") as bob:
        for client in (ann, bob):
            await client.initialize()
            assert "result" in await client.call("a_echo", {"text": "hello"})
        assert len(hubs.living) == 2
        assert {event["argv"][-1] for event in events(journal, "start")} == {"--name=of-ann", "--name=of-bob"}
    assert not any(b"of-ann" in place.read_bytes() for folder in hubs.folders for place in folder.glob("*.json"))


async def test_a_call_of_a_client_that_is_gone_ends_and_the_next_client_reads_its_result(hubs: Background) -> None:
    held, config = Held(hubs.root), held_tools.config()
    async with hubs.client(config) as first:
        await first.initialize()
        await first.send_request("tools/call", {"name": "job", "arguments": {"nonce": "n"}})
        await until(lambda: held.has_begun("n"))
        first.process.kill()
    async with hubs.client(config) as second:
        await second.initialize()
        await until(lambda: "client_gone" in (hubs.living[0] / "hub.log").read_text("utf-8"))
        held.say("n.more")
        held.say("n.done")
        await until(lambda: [one["status"] for one in hubs.command("streams", "--json")["streams"]] == ["completed"])
        assert len(hubs.living) == 1


async def test_a_hub_that_is_killed_in_a_call_is_replaced_and_the_call_gets_a_typed_error(hubs: Background) -> None:
    held, config = Held(hubs.root), held_tools.config()
    async with hubs.client(config) as client:
        await client.initialize()
        job = await client.send_request("tools/call", {"name": "job", "arguments": {"nonce": "n"}})
        await until(lambda: held.has_begun("n"))
        hubs.signal(signal.SIGKILL)
        error = (await client.response(job))["error"]
        assert error["code"] == RESTARTED, error
        assert (await client.call("quick"))["result"]["content"][0]["text"] == "quick"
        starts = [message for message in client.transcript if message.get("id") == 1]
        assert len(starts) == 1, "the answer to the second handshake belongs to the shim"


async def test_a_hub_ends_with_its_servers_when_nobody_has_needed_it_for_a_while(hubs: Background) -> None:
    journal = hubs.root / "journal"
    text = servers_yaml({"a": argv(name="a", journal=journal, era="handshake")}, hub={"attach_idle": "400ms"})
    async with hubs.client(text) as client:
        await client.initialize()
        await client.call("a_echo", {"text": "hello"})
        await anyio.sleep(0.8)
        assert len(hubs.living) == 1, "a client is there"
    await hubs.gone()
    (started,) = {event["pid"] for event in events(journal, "start")}
    await until(lambda: not Path(f"/proc/{started}").exists())


async def test_a_removed_socket_is_put_back(hubs: Background) -> None:
    text = servers_yaml({"a": argv(name="a", era="handshake")})
    async with hubs.client(text) as client:
        await client.initialize()
        pid = hubs.record()["pid"]
        (hubs.living[0] / "hub.sock").unlink()
        async with hubs.client(text) as other:
            await other.initialize()
        assert hubs.record()["pid"] == pid


@pytest.mark.proof
async def test_hub_whose_folder_was_removed_leaves_the_sockets_of_the_next_hub_alone(hubs: Background) -> None:
    text = servers_yaml({"a": argv(name="a", era="handshake")}, hub={"attach_idle": "400ms"})
    async with hubs.client(text) as first:
        await first.initialize()
        (folder,), pid = hubs.living, hubs.record()["pid"]
        shutil.rmtree(folder)
        async with hubs.client(text) as second:
            await second.initialize()
            sockets = {path: path.lstat().st_ino for path in folder.iterdir() if path.is_socket()}
            assert len(sockets) == 2 and hubs.record()["pid"] != pid
            await first.close()
            await until(lambda: not Path(f"/proc/{pid}").exists())  # it looks at its sockets four times until then
            assert {path: path.lstat().st_ino for path in folder.iterdir() if path.is_socket()} == sockets
            assert "result" in await second.call("a_echo", {"text": "hello"})


async def test_a_server_that_is_bound_to_a_working_directory_has_a_process_there_for_each_client(
    hubs: Background, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, placed = hubs.root / "journal", hubs.root / "placed"
    by_folder = [*argv(journal=placed, era="handshake"), "--name=${client.cwd}"]
    (tmp_path / "w").mkdir()
    monkeypatch.chdir(tmp_path / "w")  # not where the program of the hub is, which no rule opens
    text = servers_yaml({"a": [*argv(journal=journal, era="handshake"), "--name=./here"], "b": by_folder})
    async with hubs.client(text) as first, hubs.client(text) as second:
        for client in (first, second):
            await client.initialize()
            assert "result" in await client.call("a_echo", {"text": "hello"})
        served = {event["pid"] for event in events(journal, "start")}
        assert len(served) == 3, "one is listed, two serve"
        assert {os.readlink(f"/proc/{pid}/cwd") for pid in served} == {os.getcwd()}
    for folder in "xyx":
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        async with hubs.client(text) as client:
            await client.initialize()
            assert "result" in await client.call("b_echo", {"text": "hello"})
    starts = [event["argv"][-1] for event in events(placed, "start")]
    counts = [starts.count(f"--name={tmp_path / name}") for name in "xy"]
    assert counts == [1, 1], "two clients of a folder share a process"


@pytest.mark.first(1)
@pytest.mark.parametrize("attach", ["always", "never"])
async def test_overlay_of_a_project_decides_what_its_clients_get(
    hubs: Background, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attach: str
) -> None:
    a, db = entry(name="a", era="handshake"), entry(name="db", era="handshake")
    text = json.dumps({"servers": {"a": a, "db": {**db, "enabled": "project"}}})
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    monkeypatch.chdir(project / "src")
    for overlay, offered, notice in (
        ("", {"a"}, ""),
        ("{disable: [a], enable: [db]}", {"db"}, ""),
        ("{enable: [db], command: evil}", set(), "the file .mcp-hub.yaml of this project was refused (unknown_key"),
        ("{profile: gone}", set(), "of this project names a profile that does not exist"),
        (None, {"a"}, ""),
    ):
        if overlay:
            (project / ".git").mkdir(exist_ok=True)
            (project / ".mcp-hub.yaml").write_text(overlay)
        elif overlay is None:
            (project / ".git").rmdir()
        async with hubs.client(text, attach=attach) as client:
            initialized = await client.initialize()
            assert notice in initialized["result"].get("instructions", "")
            for name in ("a", "db"):
                answer = await client.call(f"{name}_echo", {"text": "hello"})
                is_offered = answer.get("error", {}).get("data", {}).get("code") != "unknown_entry"
                assert is_offered == (name in offered), (overlay, answer)


async def test_clients_that_gave_the_hub_both_ends_of_their_pipes_are_seen_to_go(
    hubs: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the hub tells one of them it hears from the other: it holds all ends itself, so no pipe shows an end."""
    (first_read, first_write), (second_read, second_write) = os.pipe(), os.pipe()
    ends = iter([(first_read, second_write), (second_read, first_write)])
    text = servers_yaml({"a": argv(name="a", era="handshake")}, hub={"attach_idle": "400ms"})
    async with hubs.client(text) as client:
        await client.initialize()
        connections = []

        def handed(connection: socket.socket) -> HubPipes:
            socket.send_fds(connection, [b"\0"], next(ends))
            connections.append(connection)
            return HubPipes(*os.pipe(), connection)

        monkeypatch.setattr(joining, "handed", handed)
        joined = [join(str(hubs.living[0]), {}, lambda until: pytest.fail("a second hub")) for _ in range(2)]
        await until(lambda: (hubs.living[0] / "hub.log").read_text("utf-8").count("client_attached") == 3)
        for file in (first_read, first_write, second_read, second_write):
            os.close(file)
    assert len(hubs.living) == 1
    for pipes in joined:
        pipes.close()
    await hubs.gone()


def _joined(hubs: Background, **said: str) -> HubPipes:
    def start(until: float) -> None:
        pytest.fail("a second hub was started")

    pipes = join(str(hubs.living[0]), said, start)
    os.write(pipes.write, b"".join(json.dumps(one).encode() + b"\n" for one in HANDSHAKE))
    return pipes


async def _line(pipes: HubPipes, begins: bytes) -> bytes:
    read = b""
    while True:
        await anyio.wait_readable(pipes.read)
        read += os.read(pipes.read, 1 << 16)
        for line in read.split(b"\n")[:-1]:
            if line.startswith(begins):
                return line


@pytest.mark.first(1)
@pytest.mark.parametrize("has_ended", [True, False])
async def test_a_request_is_taken_up_on_another_connection_by_its_stream(hubs: Background, has_ended: bool) -> None:
    held, config = Held(hubs.root), held_tools.config()
    call = json.dumps(rpc("tools/call", {"name": "job", "arguments": {"nonce": "n"}}, id=7)).encode() + b"\n"
    with anyio.fail_after(WAIT):
        async with hubs.client(config) as first:
            await first.initialize()
            pipes = _joined(hubs)
            os.write(pipes.write, call)
            id_, name = (await _line(pipes, hello.STREAM)).split()[1:]
            pipes.close()
            held.say("n.more")
            if has_ended:
                held.say("n.done")
                await until(lambda: hubs.command("streams", "--json")["streams"][0]["status"] == "completed")
            pipes = _joined(hubs, streams=f"{id_.decode()} {name.decode()}")
            os.write(pipes.write, call)
            held.say("n.done")
            answer = json.loads(await _line(pipes, b'{"jsonrpc":"2.0","id":7'))
            assert answer["result"]["structuredContent"] == {"n": 7}
            pipes.close()


async def test_nobody_waits_for_a_question_that_another_client_has_not_answered(hubs: Background) -> None:
    journal = hubs.root / "journal"
    text = servers_yaml({"a": argv(name="a", journal=journal, era="handshake")})
    async with hubs.client(text) as asked, hubs.client(text) as other:
        await asked.initialize(capabilities={"elicitation": {}})
        await other.initialize()
        call = await asked.send_request("tools/call", {"name": "a_ask_form", "arguments": {"nonce": "n"}})
        question = await asked.wait_for(lambda message: message.get("method") == "elicitation/create")
        assert "result" in await other.call("a_echo", {"text": "hello"})
        assert len({event["pid"] for event in events(journal, "start")}) > 1
        await asked.respond(question["id"], {"action": "accept", "content": {"name": "x"}})
        assert "accept" in str((await asked.response(call))["result"])
    async with hubs.client(text) as later:
        await later.initialize()
        (server,) = hubs.command("list", "--json")["servers"]
        assert server["scope"] == "session"
