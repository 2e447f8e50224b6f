"""`era: follow` with a real server of the Python SDK: questions reach handshake clients, modern ones stay modern."""

import json
import shlex
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.answers import Answers, form
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import HANDSHAKE, MODERN, Peer, connected, http_hub, is_alive, stdio_hub
from tests.upstreams.child import until
from tests.upstreams.launch import argv
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).with_name("sdk_asking_server.py")


def config(journal: Path, **more: Any) -> str:
    entry = {"command": sys.executable, "args": [str(SERVER), str(journal)], **more}
    # the SDK takes its time on a busy machine
    return json.dumps({"servers": {"asking": entry}})


def pids(journal: Path) -> list[int]:
    """Of every process that was started, the oldest first."""
    return [int(line) for line in journal.read_text().split()] if journal.exists() else []


async def remembered(root: Path) -> None:
    """Returns when the hub has written its lists."""
    await until(lambda: any((root / "state" / "lists").glob("*.json")))


def are_ready(client: StdioClient, count: int) -> bool:
    """Whether the hub of this client has had so many connections."""
    return client.stderr.count("upstream_ready") == count


async def version_of(peer: Peer) -> str:
    return (await peer.call("asking_version")).text


@pytest.mark.proof
async def test_a_question_of_an_sdk_server_reaches_a_handshake_client_over_stdio(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with stdio_hub(config(journal), tmp_path) as client:
        client.answers = Answers({"elicitation/create": form(name="Ann")})
        await client.initialize()
        await client.request("tools/list")
        answer = await client.call("asking_greet")
        assert answer["result"]["content"][0]["text"] == "hello Ann"
        await until(lambda: sum(map(is_alive, pids(journal))) == 1)
        assert len(pids(journal)) == 2, "one client costs one process, and the first one stays in the era of the probe"
        assert await client.close() == 0


@pytest.mark.proof
async def test_one_process_serves_clients_of_both_eras_and_asks_them(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    answers = Answers({"elicitation/create": form(name="Ann")})
    async with http_hub(config(journal), tmp_path) as hub:
        async with connected(hub, HANDSHAKE, answers=answers) as old, connected(hub, MODERN, answers=answers) as new:
            lists = [await peer.request("tools/list") for peer in (old, new)]
            assert lists[0].result["tools"] == lists[1].result["tools"]
            for peer in (old, new):
                assert (await peer.call("asking_greet")).text == "hello Ann"
                assert await version_of(peer) == "2025-11-25"
            async with RestClient(hub) as rest:
                called = (await rest.ask("POST", "/tools/asking_version/call", {"arguments": {}})).json()
                assert called["result"]["content"][0]["text"] == "2025-11-25"
                shown = (await rest.ask("GET", "/servers")).json()["servers"][0]
                assert shown["era"] == HANDSHAKE and "second" not in shown and shown["pid"] == pids(journal)[-1]
    assert not any(map(is_alive, pids(journal)))


async def test_a_second_process_is_for_the_questions_of_a_modern_one_and_nothing_is_left_behind(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    answers = Answers({"elicitation/create": form(name="Ann")})
    async with http_hub(config(journal), tmp_path) as hub:
        async with connected(hub, MODERN) as new, AsyncExitStack() as stack:
            assert await version_of(new) == "2026-07-28"
            old = await stack.enter_async_context(connected(hub, HANDSHAKE, answers=answers))
            assert await version_of(old) == "2026-07-28"
            assert len(pids(journal)) == 1, "the probe needs no process of its own"
            assert (await old.call("asking_greet")).text == "hello Ann"
            assert [await version_of(peer) for peer in (old, new, old)] == ["2025-11-25", "2026-07-28", "2025-11-25"]
            async with RestClient(hub) as rest:
                shown = (await rest.ask("GET", "/servers")).json()["servers"][0]
                assert (shown["era"], shown["second"]["era"]) == (MODERN, HANDSHAKE)
                assert shown["second"]["reason"] == "for questions"
                assert [shown["pid"], shown["second"]["pid"]] == pids(journal)
                await rest.ask("POST", "/servers/asking/restart")
            await until(lambda: not any(map(is_alive, pids(journal)[:2])))
            # in the era of this caller, or of the last one if the new process was there before
            assert await version_of(new) in ("2026-07-28", "2025-11-25")
    assert not any(map(is_alive, pids(journal)))


@pytest.mark.parametrize(("first", "other"), [(HANDSHAKE, MODERN), (MODERN, HANDSHAKE)])
@pytest.mark.proof
async def test_hubs_of_clients_of_other_eras_list_the_same_bytes_and_need_one_process(
    tmp_path: Path, first: str, other: str
) -> None:
    journal, lists, eras = tmp_path / "journal", [], []
    for era in (first, other, other):
        before = len(pids(journal))
        async with stdio_hub(config(journal), tmp_path) as client, connected(client, era) as peer:
            if era == HANDSHAKE:
                await client.initialize()
            lists.append((await peer.request("tools/list")).result["tools"])
            assert await version_of(peer) == ("2025-11-25" if era == HANDSHAKE else "2026-07-28")
            await until(partial(are_ready, client, 1))
            await remembered(tmp_path)
            assert await client.close() == 0
        probed = era == HANDSHAKE and era not in eras  # a process stays in the era of the probe
        eras.append(era)
        assert len(pids(journal)) - before == 1 + probed
    assert all(one == lists[0] for one in lists)


@pytest.mark.first(1)
@pytest.mark.parametrize(("era", "version"), [("handshake", "2025-11-25"), ("modern", "2026-07-28")])
async def test_a_pinned_era_holds_for_all_callers(tmp_path: Path, era: str, version: str) -> None:
    journal = tmp_path / "journal"
    async with http_hub(config(journal, era=era), tmp_path) as hub:
        for client in (HANDSHAKE, MODERN):
            async with connected(hub, client) as peer:
                assert await version_of(peer) == version
    assert len(pids(journal)) == 1


@pytest.mark.proof
async def test_sessions_have_processes_of_their_own_era(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    answers = Answers({"elicitation/create": form(name="Ann")})
    async with http_hub(config(journal, scope="session"), tmp_path) as hub:
        async with connected(hub, HANDSHAKE, answers=answers) as old, connected(hub, MODERN) as new:
            assert (await old.call("asking_greet")).text == "hello Ann"
            assert [await version_of(peer) for peer in (old, new)] == ["2025-11-25", "2026-07-28"]
            assert sum(map(is_alive, pids(journal))) == 3, "the one that is listed, and one for each client"


@pytest.mark.proof
async def test_many_servers_that_start_at_once_have_the_era_that_they_have_alone(tmp_path: Path) -> None:
    late = ["/bin/sh", "-c", f"sleep 5; exec {shlex.join(argv(name='late'))}"]
    commands = {f"s{number}": argv(name=f"s{number}") for number in range(48)}
    servers = {name: {"command": own[0], "args": own[1:]} for name, own in {**commands, "late": late}.items()}
    text = json.dumps({"servers": servers})
    async with stdio_hub(text, tmp_path) as client, connected(client, MODERN) as peer:
        await peer.request("tools/list", seconds=120)
        assert client.stderr.count('"era": "modern"') == len(servers), client.stderr  # the era of the client
        assert await client.close() == 0
