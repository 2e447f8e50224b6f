"""Questions of servers that many share: turns, processes of their own, tasks, what is said after the call."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.answers import Answers, Reply, form, never
from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, children, connected, http_hub, stdio_hub
from tests.upstreams.child import until
from tests.upstreams.launch import argv, events, received, servers_yaml
from tests.upstreams.messages import Message

pytestmark = pytest.mark.anyio

FINISHED = "notifications/elicitation/complete"


def config(root: Path, *options: str, **settings: Any) -> str:
    """One handshake server `s`, with these settings of its own."""
    text = json.loads(servers_yaml({"s": argv(*options, name="s", era=HANDSHAKE, journal=root / "s.journal")}))
    text["servers"]["s"] |= settings
    return json.dumps(text)


def starts(root: Path) -> int:
    return len(events(root / "s.journal", "start"))


def answering(name: str, **how: Any) -> Answers:
    return Answers({"elicitation/create": Reply(form(answer=name).body, **how)})


async def listed_by(hub: Hub) -> set[int]:
    """The processes of a hub that has listed its servers."""
    async with connected(hub, MODERN) as peer:
        await peer.names()
    return children(hub.pid)


async def asks(peer: Peer, nonce: str) -> Message:
    found: Message = (await peer.call("s_ask_form", {"nonce": nonce})).result["structuredContent"]
    return found


async def test_sessions_take_turns_at_a_server_that_asks(tmp_path: Path) -> None:
    """Both are asked their own question, one after the other, in the one process."""
    async with http_hub(config(tmp_path), tmp_path) as hub:
        gate = anyio.Event()
        slow, quick = answering("slow", after=gate), answering("quick")
        async with (
            connected(hub, HANDSHAKE, answers=answering("first")) as first,
            connected(hub, HANDSHAKE, answers=slow) as one,
            connected(hub, HANDSHAKE, answers=quick) as two,
        ):
            await asks(first, "0")  # from here on the hub knows that it asks
            found: dict[str, Message] = {}

            async def run(peer: Peer, nonce: str) -> None:
                found[nonce] = await asks(peer, nonce)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, one, "1")
                await until(lambda: slow.asked)
                tasks.start_soon(run, two, "2")
                assert not quick.asked
                gate.set()
        assert {nonce: told["answers"]["form"]["result"]["content"]["answer"] for nonce, told in found.items()} == {
            "1": "slow",
            "2": "quick",
        }
        assert starts(tmp_path) == 1


async def test_the_calls_of_a_modern_client_of_its_own_hub_need_no_turns(tmp_path: Path) -> None:
    """Over stdio there is nobody else: one call that lasts keeps none waiting."""
    gate = anyio.Event()
    slow = answering("slow", after=gate)
    async with stdio_hub(config(tmp_path), tmp_path) as hub, connected(hub, MODERN, answers=slow) as peer:
        await peer.names()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asks, peer, "1")
            await until(lambda: slow.asked)
            async with anyio.create_task_group() as others:
                for _ in range(3):
                    others.start_soon(peer.call, "s_echo", {"text": "meanwhile"})
            gate.set()
        assert starts(tmp_path) == 1


async def test_that_it_asks_is_remembered_by_the_next_hub(tmp_path: Path) -> None:
    """Two first calls at once: without that memory the questions would belong to nobody."""
    async with http_hub(config(tmp_path), tmp_path) as hub, connected(hub, MODERN, answers=answering("a")) as peer:
        await asks(peer, "0")
    async with (
        http_hub(config(tmp_path), tmp_path) as hub,
        connected(hub, HANDSHAKE, answers=answering("one", delay=0.2)) as one,
        connected(hub, HANDSHAKE, answers=answering("two", delay=0.2)) as two,
    ):
        told: list[Message] = []

        async def run(peer: Peer) -> None:
            told.append(await asks(peer, "n"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, one)
            tasks.start_soon(run, two)
        assert sorted(each["answers"]["form"]["result"]["content"]["answer"] for each in told) == ["one", "two"]


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS)
async def test_with_scope_session_nobody_waits_for_anybody(tmp_path: Path, era: str) -> None:
    async with http_hub(config(tmp_path, scope="session"), tmp_path) as hub:
        before = await listed_by(hub)
        never_answers = Answers({"elicitation/create": never()})
        async with (
            connected(hub, HANDSHAKE, answers=never_answers) as stuck,
            connected(hub, era, answers=answering("free")) as free,
        ):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(asks, stuck, "stuck")
                await until(lambda: never_answers.asked)
                told = await asks(free, "free")
                assert told["answers"]["form"]["result"]["content"]["answer"] == "free"
                assert starts(tmp_path) == 3, "the one that is listed, and one for each"
                tasks.cancel_scope.cancel()
            assert isinstance(stuck.wire, HttpClient) and isinstance(free.wire, HttpClient)
            await stuck.wire.delete()
            if era == HANDSHAKE:
                await free.wire.delete()
                await until(lambda: children(hub.pid) == before)


async def test_with_scope_call_every_call_has_a_process_that_ends_with_it(tmp_path: Path) -> None:
    async with http_hub(config(tmp_path, scope="call"), tmp_path) as hub:
        before = await listed_by(hub)
        async with connected(hub, HANDSHAKE, answers=answering("a")) as peer:
            for nonce in ("1", "2"):
                await asks(peer, nonce)
        await until(lambda: children(hub.pid) == before)
        assert starts(tmp_path) == 3


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS[::-1])
async def test_a_tool_that_runs_only_as_a_task_is_an_ordinary_call(tmp_path: Path, era: str) -> None:
    options = ("--tasks-capability", "--poll-interval", "20")
    async with (
        http_hub(config(tmp_path, *options), tmp_path) as hub,
        connected(hub, era, answers=answering("yes")) as peer,
    ):
        listed = {tool["name"]: tool for tool in (await peer.request("tools/list")).result["tools"]}
        assert "taskSupport" not in listed["s_task_required"].get("execution", {})
        seen = await peer.call("s_task_required", {"seconds": 0.1, "nonce": "n"}, token="t")
        assert "task" not in seen.result and seen.progress
        failed = await peer.call("s_task_fails", {"seconds": 0.05})
        assert failed.error["code"]
        asked = await peer.call("s_task_asks", {"nonce": "n"})
        assert "yes" in json.dumps(asked.result)


async def test_a_task_is_cancelled_with_its_call(tmp_path: Path) -> None:
    async with (
        http_hub(config(tmp_path, "--tasks-capability", "--poll-interval", "20"), tmp_path) as hub,
        connected(hub, HANDSHAKE) as peer,
    ):
        wire = peer.wire
        assert isinstance(wire, HttpClient)
        async with wire.stream(wire.message("tools/call", {"name": "s_task_never", "arguments": {}}, id="c")) as stream:
            await until(lambda: received(tmp_path / "s.journal", "tasks/get"))
            await wire.notify("notifications/cancelled", {"requestId": "c"})
            await until(lambda: events(tmp_path / "s.journal", "cancelled"))
            assert (await stream.rest()).messages == []


async def test_that_the_user_is_done_at_a_url_reaches_the_session_that_was_sent_there(tmp_path: Path) -> None:
    async with http_hub(config(tmp_path), tmp_path) as hub:
        async with (
            connected(hub, HANDSHAKE, answers=Answers({"elicitation/create": form()})) as one,
            _heard(hub) as two,
        ):
            assert isinstance(one.wire, HttpClient)
            async with one.wire.listen() as stream:
                seen = await one.call("s_url_required", {"nonce": "n", "complete_after": 0.1})
                (wanted,) = seen.error["data"]["elicitations"]
                message = await stream.wait_for(lambda one: one["method"] == FINISHED)
                assert message["params"] == {"elicitationId": wanted["elicitationId"]}
        assert not any(message["method"] == FINISHED for message in two)


class _heard:
    """What another session hears on its own stream meanwhile."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._messages: list[Message] = []

    async def __aenter__(self) -> list[Message]:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        await self._tasks.start(self._listen)
        return self._messages

    async def _listen(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with connected(self._hub, HANDSHAKE) as peer:
            assert isinstance(peer.wire, HttpClient)
            async with peer.wire.listen() as stream:
                task_status.started()
                while True:
                    self._messages.append((await stream.next_event()).message)

    async def __aexit__(self, *error: Any) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
