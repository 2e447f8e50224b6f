"""Reloads of a running hub: what is not changed notices nothing, what is changed is replaced, and clients are told."""

import json
import sys
from pathlib import Path

import anyio
import pytest

from tests.e2e.reloads import File, applied, begun, names, notices, params, reload, reloaded, running, told
from tests.interaction.fronts import is_alive, stdio_session
from tests.upstreams.child import until
from tests.upstreams.launch import argv, received
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio


def progressed(client: StdioClient) -> int:
    return sum(message.get("method") == "notifications/progress" for message in client.transcript)


async def test_reload_disturbs_none_of_a_thousand_calls_to_servers_that_stay(tmp_path: Path) -> None:
    file = File(tmp_path, "a", "b", "gone", "other")
    answers: dict[int, Message] = {}
    gate = tmp_path / "gate"
    async with running(file) as client:

        async def call(number: int) -> None:
            tool = "a_progress" if number % 2 else "b_progress"
            asked = params(tool, n=3, nonce=f"n{number}", gate=str(gate))
            answers[number] = await client.request("tools/call", {**asked, "_meta": {"progressToken": number}})

        async with anyio.create_task_group() as calls:
            for number in range(1000):
                calls.start_soon(call, number)
            await until(lambda: progressed(client) >= 2000)
            del file.servers["gone"]
            file.add("new")
            file.add("other", "--instructions", "others")
            file.servers["a"]["timeout"] = "20m"
            done = await applied(file, client)
            assert not answers, "all are in flight until here"
            gate.touch()
        assert (done["added"], done["removed"], done["restarted"]) == (["new"], ["gone"], ["other"])
        assert (done["adjusted"], done["kept"]) == (["a"], 1)
        progress: dict[int, list[int]] = {}
        for message in client.transcript:
            if message.get("method") == "notifications/progress":
                given = message["params"]
                progress.setdefault(given["progressToken"], []).append(given["progress"])
        for number, answer in answers.items():
            assert json.loads(answer["result"]["content"][0]["text"]) == {"n": 3, "nonce": f"n{number}"}
            assert [value for value in progress[number] if value % 1 == 0] == [1, 2, 3]  # beside signs of life
        assert len(answers) == 1000
        await until(lambda: (file.starts("new"), file.starts("other")) == (1, 2))
        assert (file.starts("a"), file.starts("b")) == (1, 1)
        await until(lambda: len(told(client, "upstream_retired")) == 2)
        assert {line["upstream"] for line in told(client, "upstream_retired")} == {"gone", "other"}
        assert not is_alive(file.pids("gone")[0]) and not is_alive(file.pids("other")[0])


async def test_added_and_removed_servers_are_announced_once_and_no_change_is_not_announced(tmp_path: Path) -> None:
    file = File(tmp_path, "a", "b", watch=True)
    async with running(file) as client:
        file.add("c")
        del file.servers["b"]
        file.hub["watch"] = False
        file.write()  # found by looking at the file
        done = await reloaded(client)
        assert (done["trigger"], done["added"], done["removed"]) == ("file", ["c"], ["b"])
        await until(lambda: client.stderr.count('"upstream_ready"') == 3)
        await until(lambda: notices(client))
        assert {name.partition("_")[0] for name in await names(client)} == {"a", "c"}
        refused = await client.request("tools/call", params("b_echo", text="x"))
        (said,) = refused["result"]["content"]
        assert refused["result"]["isError"] and said["text"].startswith("Tool b_echo is no longer offered")
        assert not is_alive(file.pids("b")[0])
        before = notices(client)
        assert before <= 2  # b goes at once, c comes once it is ready
        file.servers["a"]["timeout"] = "20m"
        file.hub["aliases"] = {"pr": ["pull request"]}
        done = await applied(file, client, 2)
        assert done["adjusted"] == ["a"] and done["settings"] == ["hub.aliases"]
        reload(client)
        await reloaded(client, 3)
        await anyio.sleep(0.2)  # longer than changes are collected
        assert notices(client) == before and (file.starts("a"), file.starts("c")) == (1, 1)
        file.servers["a"]["tools"] = {"deny": ["echo"]}
        file.write()
        reload(client)
        await until(lambda: notices(client) == before + 1)
        assert "a_echo" not in await names(client) and file.starts("a") == 1


async def test_a_changed_server_lets_its_calls_end_while_new_ones_go_to_the_new_process(tmp_path: Path) -> None:
    file = File(tmp_path, "a")
    file.servers["a"]["env"] = {"PLACE": "old"}
    async with running(file) as client, anyio.create_task_group() as tasks:
        gate = tmp_path / "gate"
        answers = begun(tasks, client, "a_progress", n=2, nonce="long", gate=str(gate))
        await until(lambda: received(tmp_path / "a.journal", "tools/call"))
        file.servers["a"]["env"] = {"PLACE": "new"}
        await applied(file, client)
        answer = await client.request("tools/call", params("a_env", name="PLACE"))
        assert json.loads(answer["result"]["content"][0]["text"])["PLACE"] == "new", answer
        assert not answers and file.starts("a") == 2 and is_alive(file.pids("a")[0])
        gate.touch()
        await until(lambda: answers)
        assert "long" in str(answers[0]["result"])
        await until(lambda: not is_alive(file.pids("a")[0]))
        assert notices(client) == 0  # the same tools


async def test_a_call_that_outlasts_its_server_ends_with_the_reason(tmp_path: Path) -> None:
    file = File(tmp_path, "a", "b", drain_timeout="300ms")
    async with running(file) as client, anyio.create_task_group() as tasks:
        answers = begun(tasks, client, "b_wait_cancel", nonce="x")
        await until(lambda: received(tmp_path / "b.journal", "tools/call"))
        del file.servers["b"]
        file.write()
        reload(client)
        await until(lambda: answers)
        error = answers[0]["error"]
        assert error["code"] == 1002 and error["data"]["outcome"] == "unknown", error
        assert error["data"]["upstream"]["server"] == "b"
        await until(lambda: not is_alive(file.pids("b")[0]))
        assert "error" not in await client.request("tools/call", params("a_echo", text="x"))


async def test_a_call_that_waits_for_a_server_goes_to_its_successor(tmp_path: Path) -> None:
    file = File(tmp_path, "a")
    good = file.servers["a"]
    async with running(file) as client, anyio.create_task_group() as tasks:
        file.servers["a"] = {**good, "command": sys.executable, "args": ["-c", "import time; time.sleep(60)"]}
        await applied(file, client)
        assert "a_echo" in await names(client)  # the lists stand until there are others
        answers = begun(tasks, client, "a_echo", text="x")
        await client.request("ping")
        assert not answers
        file.servers["a"] = good
        file.write()
        reload(client)
        await until(lambda: answers)
        assert "error" not in answers[0], answers
        assert file.starts("a") == 2 and notices(client) == 0


async def test_a_server_that_failed_is_tried_again_by_a_reload_of_the_same_file(tmp_path: Path) -> None:
    program = tmp_path / "server"
    file = File(tmp_path, "a")
    file.servers["b"] = {"command": str(program)}
    async with stdio_session(file.text, tmp_path) as client:
        await client.wait_stderr('"state": ?"failed"')
        command, *args = argv(name="b", journal=tmp_path / "b.journal")
        program.write_text(f"#!/bin/sh\nexec {command} {' '.join(args)}\n")
        program.chmod(0o755)
        reload(client)
        assert (await reloaded(client))["revived"] == ["b"]
        await until(lambda: client.stderr.count('"upstream_ready"') == 2)
        assert "b_echo" in await names(client) and file.starts("a") == 1


async def test_an_invalid_file_keeps_the_hub_serving_and_what_it_was_started_for_stays(tmp_path: Path) -> None:
    file = File(tmp_path, "a")
    file.more["profiles"] = {"small": {"tools": {"allow": ["a_echo"]}}}
    async with stdio_session(file.text, tmp_path, "--profile", "small") as client:
        await client.wait_stderr('"upstream_ready"')
        assert "a_echo" in await names(client)
        (tmp_path / "servers.yaml").write_text("servers: {a: {comand: x}}")
        reload(client)
        await until(lambda: told(client, "reload_failed"))
        assert "comand" in told(client, "reload_failed")[0]["findings"][0]
        del file.more["profiles"]
        file.write()
        reload(client)
        await until(lambda: len(told(client, "reload_failed")) >= 2)
        assert "--profile" in told(client, "reload_failed")[-1]["findings"][0]
        assert "error" not in await client.request("tools/call", params("a_echo", text="x"))
        assert file.starts("a") == 1
        file.more["profiles"] = {"small": {"tools": {"allow": ["a_env"]}}}
        await applied(file, client)
        assert "a_env" in await names(client) and "a_echo" not in await names(client)
        assert await client.close() == 0
