"""Log messages that name no call: with `logs: shared` they reach each session of one principal that asked for them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from mcp_hub.call import Call
from mcp_hub.events import Log
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.types import Era, JsonObject, LogFlow, LogRule, RawJson, RawObject
from mcp_hub.upstreams.peer.callers import Callers, completed
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import Observer, ServerLogs, SignsOfLife
from mcp_hub.upstreams.peer.task_poll import RELATED, TaskHandle
from mcp_hub.upstreams.peer.tasks import ServerTasks, _ModernTask
from mcp_hub.wire.base import Pending
from tests.unit.upstreams.function_calls import Recorder
from tests.unit.upstreams.scripted import Server, talking
from tests.unit.upstreams.task_calls import call
from tests.unit.wire.raw_lines import group

pytestmark = pytest.mark.anyio

MESSAGE: JsonObject = {"level": "info", "logger": "l", "data": {"x": [1]}}


class Channel(Recorder):
    """One of a call that another hub could continue."""

    def continuable(self, how: RawJson | None, *, is_firm: bool = False, is_quiet: bool = False) -> None:
        return


class Owner(Observer):
    """The owner of the session, with the messages for sessions outside of calls."""

    def __init__(self, rule: LogRule) -> None:
        self.rule = rule
        self.told: list[str] = []
        self._logs = ServerLogs(lambda: self.rule)

    @property
    def logs(self) -> ServerLogs:
        return self._logs

    def passes(self, method: str) -> bool:
        return False

    def on_notice(self, method: str, params: RawObject) -> None:
        return

    def on_message(self, session: str, frame: bytes) -> None:
        assert json.loads(frame)["params"]["data"] == MESSAGE["data"]
        self.told.append(session)


class Scene:
    """Calls in flight at one server, by name, with what they were sent."""

    def __init__(self, peer: Peer, server: Server, tasks: TaskGroup, owner: Owner) -> None:
        self.owner = owner
        self.logs = owner.logs
        self.channels: dict[str, Channel] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._peer, self._server, self._tasks = peer, server, tasks

    async def begin(self, name: str, **differs: Any) -> None:
        """A call of the session `s` of the principal `p` that asked for everything, unless it `differs`."""
        made = call(**{"session": "s", "principal": "p", "log_level": "debug", **differs})
        channel, scope = self.channels.setdefault(name, Channel()), anyio.CancelScope()
        self._scopes[name] = scope
        self._tasks.start_soon(self._run, made, channel, scope)
        await self._server.expect(made.method)

    async def _run(self, made: Call, channel: Channel, scope: anyio.CancelScope) -> None:
        with scope:
            await self._peer.call(made, channel)

    async def give_up(self, name: str) -> None:
        self._scopes[name].cancel()
        await self._server.expect("notifications/cancelled")
        if self._peer.callers.is_ordered:
            await self._server.expect("ping")

    async def hear(self, **differs: object) -> str:
        """The names of those who get this log message."""
        before = {name: len(channel.sent) for name, channel in self.channels.items()}
        await self._server.send(method="notifications/message", params={**MESSAGE, **differs})
        await self._server.flush()
        return "".join(name for name, channel in self.channels.items() if len(channel.sent) > before[name])


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize(("rule", "heard", "kept"), [("hub", "", 1), ("shared", "ab", 0), ("turns", "", 1)])
async def test_message_while_two_sessions_call_goes_by_the_rule(era: Era, rule: LogRule, heard: str, kept: int) -> None:
    async with acting(rule, "ab", era) as scene:
        assert await scene.hear() == heard
        assert scene.logs.flow() == LogFlow(rule, sent=1 - kept, kept=kept)
        for channel in scene.channels.values():
            assert all(isinstance(event, Log) and event.level == "info" for event in channel.sent)
            assert all(json.loads(bytes(event.params)) == MESSAGE for event in channel.sent)  # type: ignore[union-attr]


async def test_only_sessions_that_asked_for_the_level_share_a_message() -> None:
    async with acting("shared") as scene:
        for name, level in {"d": "debug", "i": "info", "e": "error", "n": None}.items():
            await scene.begin(name, session=name, log_level=level)
        heard = {level: await scene.hear(level=level) for level in ("debug", "info", "warning", "error", "odd", "WARN")}
        assert heard == {"debug": "d", "info": "di", "warning": "di", "error": "die", "odd": "di", "WARN": "di"}
        assert scene.logs.flow() == LogFlow("shared", sent=6)


async def test_where_nobody_asked_it_stays_in_the_hubs_log() -> None:
    async with acting("shared") as scene:
        await scene.begin("a", session="a", log_level=None)
        await scene.begin("b", session="b", log_level="error")
        assert await scene.hear() == ""
        assert scene.logs.flow() == LogFlow("shared", kept=1)


async def test_a_session_gets_it_once_at_its_newest_call_that_asked() -> None:
    async with acting("shared") as scene:
        await scene.begin("1", session="a")
        await scene.begin("2", session="a")
        await scene.begin("3", session="a", log_level="error")  # modern requests each have their own
        await scene.begin("4", session="b")
        assert await scene.hear() == "24"


async def test_calls_of_two_principals_share_nothing() -> None:
    async with acting("shared", "ab") as scene:
        assert await scene.hear() == "ab"
        await scene.begin("x", session="x", principal="q", log_level=None)
        assert await scene.hear() == "", "also if theirs did not ask for any"
        await scene.give_up("x")
        assert await scene.hear() == "", "the server may still log for the call that was given up"
        assert scene.logs.flow() == LogFlow("shared", sent=1, kept=2)


async def test_what_a_call_that_was_given_up_still_says_is_shared_with_its_own_principal_only() -> None:
    async with acting("shared", "ab") as scene:
        await scene.give_up("a")
        assert await scene.hear() == "b"
        await scene.give_up("b")
        await scene.begin("x", session="x", principal="q")
        assert await scene.hear() == ""


@asynccontextmanager
async def acting(rule: LogRule, sessions: str = "", era: Era = Era.HANDSHAKE) -> AsyncIterator[Scene]:
    """Beside a call of each of these sessions, by its name."""
    owner = Owner(rule)
    async with talking(era, observer=owner) as (peer, server), group() as tasks:
        scene = Scene(peer, server, tasks, owner)
        for name in sessions:
            await scene.begin(name, session=name)
        yield scene


@asynccontextmanager
async def after_calls(*sessions: str, **differs: Any) -> AsyncIterator[tuple[Peer, Server, Scene, Owner]]:
    """A server that has answered a call of each of these sessions, one after the other."""
    owner = Owner("hub")
    async with talking(observer=owner) as (peer, server), group() as tasks:
        scene = Scene(peer, server, tasks, owner)
        peer.callers.is_ordered = False  # as over HTTP
        for session in sessions:
            answered = call(**{"session": session, "principal": "p", "era": Era.HANDSHAKE, **differs})
            async with anyio.create_task_group() as calling:
                calling.start_soon(peer.call, answered, Channel())
                request = await server.expect(answered.method)
                await server.send(id=request["id"], result={})
        yield peer, server, scene, owner


async def test_message_just_after_the_last_call_is_its_sessions() -> None:
    async with after_calls("a", "a") as (_, _, scene, told):
        await scene.hear()
        assert told.told == ["a"] and scene.logs.flow() == LogFlow("hub", sent=1)


@pytest.mark.parametrize(
    ("sessions", "differs", "level"),
    [
        (["a", "b"], {}, "info"),
        (["a"], {"era": Era.MODERN}, "info"),
        (["a"], {"log_level": "error"}, "info"),
        ([], {}, "info"),
    ],
)
async def test_unclear_message_after_calls_is_logged(sessions: list[str], differs: dict[str, Any], level: str) -> None:
    async with after_calls(*sessions, **differs) as (_, _, scene, told):
        await scene.hear(level=level)
        assert told.told == [] and scene.logs.flow() == LogFlow("hub", kept=1)


async def test_message_after_a_call_is_nobodys_beside_another_or_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with after_calls("a") as (_, _, scene, told):
        await scene.begin("b", session="b")
        assert await scene.hear() == ""
        await scene.give_up("b")
        await scene.hear()
        assert told.told == []
    async with after_calls("a") as (peer, _, scene, told):
        peer.callers.is_ordered = True
        await scene.hear()
        assert told.told == [], "over a pipe it would have come before the answer"
    async with after_calls("a") as (_, _, scene, told):
        monkeypatch.setattr("mcp_hub.upstreams.peer.callers._LATE", -1.0)
        await scene.hear()
        assert told.told == []


async def test_messages_after_one_call_have_a_bound() -> None:
    async with after_calls("a") as (_, _, scene, told):
        for _ in range(40):
            await scene.hear()
        assert len(told.told) == 32


async def test_message_on_a_stream_of_its_own_is_not_the_next_callers_while_it_may_be_the_last_ones() -> None:
    async with after_calls("a") as (_, _, scene, told):
        await scene.begin("b", session="b")
        assert await scene.hear() == "" and told.told == []
        await scene.begin("c", session="a")
        assert await scene.hear() == ""


@pytest.mark.parametrize("rule", ["hub", "shared"])
async def test_a_message_of_one_session_alone_goes_to_it_whatever_it_asked_for(rule: LogRule) -> None:
    async with acting(rule) as scene:
        await scene.begin("1", log_level=None)
        await scene.begin("2", log_level="error")
        assert await scene.hear() == "2"


@pytest.mark.slow
async def test_a_call_that_its_server_runs_as_a_task_is_in_flight_too() -> None:
    """Its server need not name the task in a log message: it must not reach another principal's only call."""
    observer = Owner("shared")
    async with talking(Era.MODERN, observer=observer) as (peer, server), group() as tasks:
        scene = Scene(peer, server, tasks, observer)
        await scene.begin("x", session="x", principal="q")
        assert await scene.hear() == "x"
        owner, channel = call(session="t", principal="p", log_level="debug"), scene.channels.setdefault("t", Channel())
        tasks.start_soon(peer.follow, _ModernTask(owner, channel, TaskHandle(Era.MODERN, "task")))
        await server.expect("tasks/get")
        assert await scene.hear() == ""
        assert await scene.hear(_meta={RELATED: {"taskId": "task"}}) == "t"


async def test_a_rule_that_changes_holds_at_once() -> None:
    async with acting("hub", "ab") as scene:
        assert await scene.hear() == ""
        scene.owner.rule = "shared"
        assert await scene.hear() == "ab"
        assert scene.logs.flow() == LogFlow("shared", sent=1, kept=1)


async def test_log_messages_may_be_of_a_call_that_was_given_up_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may all be for that call, also what comes when one session alone has calls in flight again."""
    now = [0.0]
    monkeypatch.setattr(anyio, "current_time", lambda: now[0])
    channel, in_flight = Channel(), [Pending(id_, "tools/call", (call(session=f"s{id_}"), Channel())) for id_ in (1, 2)]
    in_flight.append(Pending(3, "tools/call", (call(session="s3"), channel)))
    callers = Callers(
        lambda: in_flight, ServerTasks(outlive=False), SignsOfLife(), ServerLogs(), server="s", is_ordered=True
    )
    message = envelope.decode(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}')
    assert isinstance(message, envelope.Envelope)
    callers.abandon(call(session="gone", principal="q"), 4)
    for now[0] in (4.0, 8.0):
        assert not callers.log("info", message, None)
    del in_flight[:2]
    now[0] = 12.0
    assert not callers.log("info", message, None)
    now[0] = 17.0
    assert callers.log("info", message, None) and len(channel.sent) == 1


@pytest.mark.parametrize(
    ("result", "is_plain", "changed"),
    [
        (b' {"content":[{"text":"a\\u00e9","type":"text"}],"isError":false}', True, None),
        (b'{"content":[],"isError":true,"isError":false}', True, None),  # of members of one name the last counts
        (b'{"content":[],"isError":false,"isError":true}', False, None),
        (b'{"content":[],"\\u0069sError":true}', False, None),
        (b'{"content":[],"_meta":{}}', False, None),
        (b'{"content":[],"x":1}', False, None),
        (b'{"content":[],"resultType":"complete"}', False, None),
        (b'{"content":[],"structuredContent":{}}', False, None),
        (b'{"content":[{"type":"text","text":"a","annotations":{}}]}', False, None),
        (b'{"content":[{"text":"a"}]}', False, {"content": [{"type": "text", "text": "a"}]}),
    ],
)
def test_plain_result_is_texts_for_every_client(result: bytes, is_plain: bool, changed: JsonObject | None) -> None:
    done = completed(call(), result, Era.HANDSHAKE)
    assert done.is_plain is is_plain
    if changed is None:
        assert bytes(done.result) == result
    else:
        assert json.loads(bytes(done.result)) == changed
