"""Tasks that go on over another connection, in the middle of a call or for another hub after a restart."""

import json
from typing import Any

import anyio
import pytest

from mcp_hub.errors import HubRestarted, UpstreamLost
from mcp_hub.types import Cause, Era, JsonObject, UpstreamState
from mcp_hub.upstreams.peer import task_poll
from mcp_hub.upstreams.peer.task_poll import TaskLeft
from mcp_hub.upstreams.supervision import lifecycle, supervisor
from mcp_hub.upstreams.supervision.server import SupervisorRules
from tests.unit.upstreams.remote import Remote, ready, supervised
from tests.unit.upstreams.scripted import INITIALIZED
from tests.unit.upstreams.task_calls import BORN, FORM, Running, call, created, resumed, state
from tests.unit.wire.http_server import Reply, Request, serving
from tests.unit.wire.http_wires import says
from tests.unit.wire.raw_lines import group
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

DONE: JsonObject = {"content": [], "n": 2**70}
HANDSHAKE: dict[str, Any] = {"era": Era.HANDSHAKE, "version": "2025-11-25"}
WITH_TASKS: JsonObject = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow at once, and so does a session on one that was lost."""
    monkeypatch.setattr(task_poll, "_POLL", (0.001, 0.001, 0.001))
    monkeypatch.setattr(supervisor, "_SESSION", 0.0)
    monkeypatch.setattr(lifecycle, "_BASE", 0.05)


class Tasking(Remote):
    """A server whose every call becomes a task; `shown` is what its looks find, the last one again and again."""

    def __init__(self, era: Era, *shown: JsonObject) -> None:
        is_modern = era is Era.MODERN
        tool = {"name": "x", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
        super().__init__(modern=is_modern, handshake=not is_modern, tools=[tool])
        self.era = era
        self.shown = list(shown)
        self.looks = 0
        self.before: dict[int, Any] = {}
        self.does = {"tools/call": self._create, "tasks/get": self._look, "tasks/result": self._result}
        self.does |= dict.fromkeys(("tasks/update", "tasks/cancel"), self._note)
        if not is_modern:
            self.does["initialize"] = self._initialize

    async def _initialize(self, request: Request, reply: Reply) -> None:
        settled = {**INITIALIZED, "protocolVersion": "2025-11-25", "capabilities": WITH_TASKS}
        await reply.result(request, settled, Mcp_Session_Id=str(self.session))

    async def _create(self, request: Request, reply: Reply) -> None:
        await reply.result(request, created() if self.era is Era.MODERN else {"task": state()})

    async def _look(self, request: Request, reply: Reply) -> None:
        if self.era is Era.HANDSHAKE and request.headers.get("mcp-session-id") != self.session:
            return await reply.status(404)
        self.looks += 1
        if (happens := self.before.pop(self.looks, None)) is not None:
            await happens(request, reply)
            return
        await reply.result(request, self.shown.pop(0) if len(self.shown) > 1 else self.shown[0])

    async def _result(self, request: Request, reply: Reply) -> None:
        await reply.result(request, DONE)

    async def _note(self, request: Request, reply: Reply) -> None:
        await reply.result(request, {"resultType": "complete"})


def ended(era: Era) -> JsonObject:
    return state("completed", result=DONE) if era is Era.MODERN else state("completed")


def how(era: Era, task: str = "t1", born: str | None = BORN) -> bytes:
    return json.dumps({"era": era.value, "task": task, "created": born}).encode()


@pytest.mark.parametrize("era", Era)
async def test_another_hub_follows_the_task_to_its_end(era: Era) -> None:
    remote = Tasking(era, state(), state(), ended(era))
    async with serving(remote) as server, supervised(server) as far, resumed(far, how(era)) as made:
        assert await made.result() == DONE
        assert remote.looks == 3 and not server.of("tools/call")
        assert json.loads(bytes(made.how)) == json.loads(how(era)), "and a third hub could"


async def test_the_server_hears_which_task_is_meant_in_the_header_too() -> None:
    remote = Tasking(Era.MODERN, ended(Era.MODERN))
    async with serving(remote) as server, supervised(server) as far, resumed(far, how(Era.MODERN)) as made:
        await made.result()
        (look,) = server.of("tasks/get")
        assert (look.headers["mcp-name"], look.headers["mcp-method"]) == ("t1", "tasks/get")


@pytest.mark.parametrize("era", Era)
async def test_a_task_that_the_server_does_not_know_ends_with_its_outcome_unknown(era: Era) -> None:
    async def unknown(request: Request, reply: Reply) -> None:
        await reply.error(request, -32602)

    remote = Tasking(era, state())
    remote.does["tasks/get"] = unknown
    async with serving(remote) as server, supervised(server) as far, resumed(far, how(era)) as made:
        error = await made.error()
        assert isinstance(error, HubRestarted)
        assert '"far" does not know task t1' in error.message
        assert error.data == {"upstream": {"server": "far", "task": "t1"}, "outcome": "unknown"}


@pytest.mark.parametrize("era", Era)
async def test_a_task_of_the_same_id_that_was_made_at_another_time_is_another_one(era: Era) -> None:
    remote = Tasking(era, ended(era))
    born = "2026-07-28T09:59:59Z"
    async with serving(remote) as server, supervised(server) as far, resumed(far, how(era, born=born)) as made:
        error = await made.error()
        assert isinstance(error, HubRestarted) and "another task by that id" in error.message
        assert not server.of("tasks/result")


async def test_a_server_of_another_era_by_now_does_not_know_the_task() -> None:
    remote = Tasking(Era.MODERN, ended(Era.MODERN))
    async with serving(remote) as server, supervised(server) as far, resumed(far, how(Era.HANDSHAKE)) as made:
        assert isinstance(await made.error(), HubRestarted)
        assert remote.looks == 0


@pytest.mark.parametrize("left", [b"", b"{}", b'{"era":"x","task":"t"}', b"[1]", b'{"era":"modern","task":7}'])
async def test_what_was_left_behind_garbled_is_gone(left: bytes) -> None:
    async with serving(Tasking(Era.MODERN, state())) as server, supervised(server) as far:
        async with resumed(far, left) as made:
            error = await made.error()
            assert isinstance(error, HubRestarted) and (error.data or {})["outcome"] == "unknown"


async def test_a_server_that_does_not_come_up_ends_the_call() -> None:
    async with serving(Remote(handshake=False)) as server, supervised(server, era=Era.MODERN) as far:
        async with resumed(far, how(Era.MODERN)) as made:
            await until(lambda: far.status().state is not UpstreamState.STARTING)
            far.supervisor._become(lifecycle.gave_up(far.supervisor.life, Cause("crashed", "no use")))
            error = await made.error()
            assert isinstance(error, HubRestarted) and "no use" in error.message


async def test_cancelling_a_call_that_was_gone_on_with_cancels_its_task() -> None:
    remote = Tasking(Era.MODERN, state())
    async with serving(remote) as server, supervised(server) as far, resumed(far, how(Era.MODERN)) as made:
        await server.until("tasks/get", 2)
        made.scope.cancel()
        (request,) = await server.until("tasks/cancel")
        assert request.message["params"]["taskId"] == "t1"


@pytest.mark.parametrize("is_up", [False, True])
async def test_a_hub_that_leaves_its_tasks_leaves_those_of_a_server_that_comes_up_then_too(is_up: bool) -> None:
    remote = Tasking(Era.MODERN, state())
    async with serving(remote) as server, supervised(server) as far:
        if is_up:
            await ready(far)
        far.lifecycle.leave_tasks()
        async with resumed(far, how(Era.MODERN)):
            await server.until("tasks/get", 2)
        assert not server.of("tasks/cancel")


async def test_a_call_that_is_gone_on_with_takes_its_turn() -> None:
    remote = Tasking(Era.HANDSHAKE, state())
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        async with resumed(far, how(Era.HANDSHAKE), session="first") as made:
            await server.until("tasks/get")
            far.state.turns.switch_on()
            async with group() as tasks:
                other = Running(tasks, far.call, call(session="second"))
                await anyio.wait_all_tasks_blocked()
                assert not server.of("tools/call")
                remote.shown = [ended(Era.HANDSHAKE)]
                await made.result()
                await server.until("tools/call")
                assert await other.result() == DONE


@pytest.mark.parametrize("era", Era)
async def test_a_look_that_misses_is_repeated(era: Era) -> None:
    async def cut(request: Request, reply: Reply) -> None:
        reply.cut()

    async def garbled(request: Request, reply: Reply) -> None:
        await reply.json(b"{", 200)

    remote = Tasking(era, state(), ended(era))
    remote.before = {1: says(503), 2: says(429), 4: cut, 5: garbled}
    async with serving(remote) as server, supervised(server) as far, group() as tasks:
        made = Running(tasks, far.call, call())
        assert await made.result() == DONE
        assert len(server.of("tools/call")) == 1 and far.status().restarts == 0


@pytest.mark.parametrize("status", [401, 403, 404, 410])
async def test_a_poll_that_is_refused_permanently_is_not(status: int) -> None:
    remote = Tasking(Era.MODERN, ended(Era.MODERN))
    remote.before = {1: says(status)}
    async with serving(remote) as server, supervised(server) as far, group() as tasks:
        assert str(status) in (await Running(tasks, far.call, call()).error()).message
        assert remote.looks == 1


async def test_looks_do_not_miss_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_poll, "_MISSES", 2)
    remote = Tasking(Era.MODERN, state())
    remote.does["tasks/get"] = says(503)
    async with serving(remote) as server, supervised(server) as far, group() as tasks:
        assert "503" in (await Running(tasks, far.call, call()).error()).message
        assert len(server.of("tasks/get")) == 3


async def test_a_server_that_goes_and_comes_back_is_asked_for_the_same_task() -> None:
    remote = Tasking(Era.MODERN, state())
    async with serving(remote) as server, supervised(server) as far, group() as tasks:
        await ready(far)
        far.state.rules = SupervisorRules(ready_wait=0.0)
        made = Running(tasks, far.call, call())
        await server.until("tasks/get", 2)
        await server.close()
        await until(lambda: far.status().state is UpstreamState.BACKING_OFF)
        assert not made.has_ended
        remote.shown = [ended(Era.MODERN)]
        async with serving(remote, server.port):
            assert await made.result() == DONE


async def test_a_server_that_leaves_permanently_ends_the_call_with_its_outcome_unknown() -> None:
    remote = Tasking(Era.MODERN, state())
    async with serving(remote) as server, supervised(server) as far, group() as tasks:
        made = Running(tasks, far.call, call())
        await server.until("tasks/get")
        await server.close()
        await until(lambda: far.status().state is UpstreamState.BACKING_OFF)
        far.supervisor._become(lifecycle.gave_up(far.supervisor.life, Cause("crashed", "no use")))
        error = await made.error()
        assert isinstance(error, TaskLeft) and isinstance(error, UpstreamLost)
        assert error.data == {"upstream": {"server": "far", "task": "t1"}, "outcome": "unknown"}


async def test_a_question_that_is_open_stays_the_same_over_the_next_connection() -> None:
    asked = state("input_required", inputRequests={"a": {"method": "elicitation/create", "params": FORM}})
    remote = Tasking(Era.MODERN, asked)
    async with serving(remote) as server, supervised(server) as far, group() as tasks:
        made = Running(tasks, far.call, call())
        (key,) = await made.asked()
        await server.close()
        await until(lambda: far.status().state is UpstreamState.BACKING_OFF)
        made.record.questions.answer(key, b'{"action":"accept"}')
        async with serving(remote, server.port) as again:
            (update,) = await again.until("tasks/update")
            assert update.message["params"]["inputResponses"] == {"a": {"action": "accept"}}
            assert not made.record.questions.open, "it was not asked again"
            remote.shown = [ended(Era.MODERN)]
            assert await made.result() == DONE
