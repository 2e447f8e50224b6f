"""Servers that are started when they are needed and stopped when they are not, with real processes."""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.interaction.fronts import is_alive, stdio_session
from tests.unit.cli.command import hub as command
from tests.upstreams.child import until
from tests.upstreams.launch import argv, events, servers_yaml
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

HELD = [sys.executable, str(Path(__file__).parents[1] / "upstreams" / "held_start.py")]
AT_ONCE = 100.0
"""Seconds: a guard against waiting for a server, not a measurement."""


def config(servers: dict[str, list[str]], **own: dict[str, Any]) -> str:
    """A `servers.yaml` of these command lines, with further keys for some."""
    document = json.loads(servers_yaml(dict(servers)))
    for name, more in own.items():
        document["servers"][name].update(more)
    return json.dumps(document)


async def names(client: StdioClient) -> list[str]:
    with anyio.fail_after(AT_ONCE):
        return [tool["name"] for tool in (await client.request("tools/list"))["result"]["tools"]]


def has_ended(journal: Path) -> bool:
    return not is_alive(pids(journal)[0])


def pids(journal: Path) -> list[int]:
    """Of every process that was started, the oldest first."""
    return [record["pid"] for record in events(journal, "start")]


async def remembered(root: Path, count: int) -> list[Path]:
    """The files of so many lists."""

    def found() -> list[Path]:
        return list((root / "state" / "lists").glob("*.json"))

    await until(lambda: len(found()) >= count)
    return found()


def tools(root: Path, *offered: str) -> Path:
    path = root / "tools.json"
    path.write_text(json.dumps([{"name": name, "inputSchema": {"type": "object"}} for name in offered]))
    return path


async def test_a_lazy_server_is_listed_without_a_process_and_started_by_its_first_call(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    text = config({"a": argv(journal=journal, tools_json=tools(tmp_path, "old"))}, a={"start": "lazy"})
    async with stdio_session(text, tmp_path) as client:
        assert await names(client) == ["a_old"]
        assert len(pids(journal)) == 1, "it was started once, to be listed"
        await remembered(tmp_path, 1)
        assert await client.close() == 0
    tools(tmp_path, "old", "new")
    async with stdio_session(text, tmp_path) as client:
        assert await names(client) == ["a_old"]
        assert len(pids(journal)) == 1
        assert (await client.call("a_old", {"n": 1}))["result"]["structuredContent"] == {"n": 1}
        assert len(pids(journal)) == 2
        await client.wait_for(lambda message: message.get("method") == "notifications/tools/list_changed")
        assert await names(client) == ["a_old", "a_new"]
        os.kill(pids(journal)[-1], signal.SIGKILL)
        await until(lambda: len(pids(journal)) == 3)
        assert "result" in await client.call("a_new")
        assert await client.close() == 0
    assert not any(map(is_alive, pids(journal)))


async def test_idle_servers_are_stopped_started_again_and_not_cut_while_they_work(tmp_path: Path) -> None:
    lazy, eager = tmp_path / "lazy", tmp_path / "eager"
    own = {"idle_stop": "400ms"}
    servers = {"a": argv(journal=lazy), "b": argv(journal=eager)}
    async with stdio_session(config(servers, a={"start": "lazy", **own}, b=own), tmp_path) as client:
        offered = await names(client)
        coming_up = client.notifications("notifications/tools/list_changed")
        for journal, tool in ((lazy, "a"), (eager, "b")):
            await until(partial(has_ended, journal))
            assert "result" in await client.call(f"{tool}_echo")
            assert len(pids(journal)) == 2
        slow = await client.call("a_slow", {"seconds": 1.5})
        assert "result" in slow, "four times as long as it may be idle"
        assert len(pids(lazy)) <= 3
        await until(lambda: not any(map(is_alive, [*pids(lazy), *pids(eager)])))
        assert await names(client) == offered
        assert client.notifications("notifications/tools/list_changed") == coming_up
        assert await client.close() == 0


async def test_a_server_that_starts_slowly_or_not_at_all_is_listed_as_it_was(tmp_path: Path) -> None:
    gate, journal = tmp_path / "gate", tmp_path / "journal"
    gate.touch()
    fails = ["sh", "-c", f'test -e {gate} && exec "$@"; echo no gate >&2; exit 3', "sh", *argv()]
    servers = {"slow": [*HELD, str(gate), *argv(journal=journal)], "bad": fails}
    text = config(servers, bad={"restart": {"intensity": 0}})
    async with stdio_session(text, tmp_path) as client:
        offered = await names(client)
        await remembered(tmp_path, 2)
    gate.unlink()
    async with stdio_session(text, tmp_path) as client:
        assert await names(client) == offered, "nobody waits for a server whose list is known"
        bad = await client.call("bad_echo")
        assert bad["error"]["code"] == 1001 and '"bad"' in str(bad) and "no gate" in str(bad)
        assert await names(client) == offered, "it says why when it is called"
        call = await client.send_request("tools/call", {"name": "slow_echo", "arguments": {"n": 1}})
        assert len(pids(journal)) == 1
        gate.touch()
        assert (await client.response(call))["result"]["structuredContent"] == {"n": 1}


async def test_processes_of_a_session_end_by_the_same_rule(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    own = {"start": "lazy", "scope": "session", "idle_stop": "400ms"}
    text = config({"a": argv(journal=journal)}, a=own)
    async with stdio_session(text, tmp_path) as client:
        offered = await names(client)
        await remembered(tmp_path, 1)
    async with stdio_session(text, tmp_path) as client:
        assert await names(client) == offered
        assert len(pids(journal)) == 1
        assert "result" in await client.call("a_echo")
        await until(lambda: len(pids(journal)) == 3)  # its own, and the one that is listed anew
        assert "result" in await client.call("a_slow", {"seconds": 1.0})
        await until(lambda: not any(map(is_alive, pids(journal))))
        before = len(pids(journal))
        assert "result" in await client.call("a_echo")
        assert len(pids(journal)) == before + 1, "the listed one need not start for every call"


def test_list_says_that_a_server_rests_and_doctor_starts_it(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    (tmp_path / "servers.yaml").write_text(config({"a": argv(journal=journal)}, a={"start": "lazy"}))
    first = json.loads(command(tmp_path, "list", "--json").stdout)["servers"][0]
    assert (first["state"], first["rests"]) == ("ready", False)
    again = command(tmp_path, "list", "--json")
    (server,) = json.loads(again.stdout)["servers"]
    assert again.returncode == 0 and len(pids(journal)) == 1
    assert (server["state"], server["rests"], server["tools"]) == ("stopped", True, first["tools"])
    assert server["listedAt"].startswith("20") and server["version"] == first["version"]
    told = command(tmp_path, "list").stdout
    assert "a is stopped" in told and "[not_started]" in told
    assert command(tmp_path, "doctor").stdout.startswith("a: ok, 2025-11-25 (handshake), ")
    assert len(pids(journal)) == 2


async def test_a_warmed_hub_lists_all_servers_while_none_has_started(tmp_path: Path) -> None:
    gate, listed = tmp_path / "gate", str(tools(tmp_path, "one"))
    gate.touch()
    servers = {name: [*HELD, str(gate), *argv(name=name, tools_json=listed)] for name in "abc"}
    broken = {"d": [sys.executable, "-c", "raise SystemExit('no')"]}
    text = config({**servers, **broken}, b={"start": "lazy"})
    (tmp_path / "servers.yaml").write_text(text)
    done = await anyio.to_thread.run_sync(partial(command, tmp_path, "serve", "--warm"))
    assert done.returncode == 3 and "3 of 4 servers ready" in done.stderr and done.stdout.startswith("d ")
    gate.unlink()
    async with stdio_session(text, tmp_path) as client:
        assert await names(client) == ["a_one", "b_one", "c_one"]
        assert await client.close() == 0


async def test_call_without_a_list_waits_for_its_server_on_its_first_way_up(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    text = servers_yaml({"a": argv(), "b": [*HELD, str(gate), *argv(name="b")]}, hub={"first_list_wait": 0})
    async with stdio_session(text, tmp_path) as client:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("tools/call", {"name": "b_echo", "arguments": {"n": 1}}),
            ("tools/call", {"name": "run_tool", "arguments": {"name": "b_echo", "arguments": {"n": 1}}}),
            ("prompts/get", {"name": "b_greet", "arguments": {"who": "you"}}),
            ("resources/read", {"uri": "test://b/readme"}),
            ("resources/subscribe", {"uri": "test://b/readme"}),
        ]
        with anyio.fail_after(AT_ONCE):
            async with anyio.create_task_group() as tasks:
                answers: dict[int, Any] = {}

                async def ask(number: int) -> None:
                    answers[number] = await client.request(*calls[number])

                for number in range(len(calls)):
                    tasks.start_soon(ask, number)
                assert "error" in await client.request("tools/call", {"name": "c_echo"}), "of no server that starts"
                assert answers == {}
                gate.touch()
        assert all(answers[number]["result"]["structuredContent"] == {"n": 1} for number in (0, 1))
        assert answers[2]["result"]["messages"] and answers[3]["result"]["contents"]
        assert answers[4]["result"] == {}
        assert await client.close() == 0
