"""Calls that clients cancel since their time for the request is over, and equal calls that join them."""

import pytest
from msgspec.structs import replace

from mcp_hub.app.limits import Current
from mcp_hub.calls.handle import CallHandle
from mcp_hub.calls.plan import CallRules
from mcp_hub.config.schema.settings import Settings
from mcp_hub.fronts.http.request import HttpRequest
from mcp_hub.fronts.http.resume import ClientCalls
from mcp_hub.protocol.jsonrpc.envelope import Envelope
from mcp_hub.protocol.notifications import names_timeout
from mcp_hub.sessions.session import LOCAL
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.fakes import enveloped
from tests.unit.fronts import task_hub
from tests.unit.fronts.http_peer import Connection, MadeCall, World
from tests.unit.fronts.soft_hub import SoftHub, in_virtual_time, said
from tests.unit.fronts.task_hub import Sent, TaskHub, over_the_pipe, text
from tests.unit.fronts.test_stream_restarts import accepted_again
from tests.upstreams.messages import rpc

TYPESCRIPT = "McpError: MCP error -32001: Request timed out"


@pytest.mark.parametrize(
    "reason",
    [
        TYPESCRIPT,
        "SdkError: Request timed out",
        "timed out after 30s",
        "timed out after 0.5s",
        "timed out",
        "request timeout",
        "TimeoutError: The operation was aborted due to timeout",
        "TimeoutError: The operation timed out.",
        "TimeoutError: signal timed out",
    ],
)
def test_the_words_of_a_timeout_are_known(reason: str) -> None:
    assert names_timeout(reason)


@pytest.mark.parametrize(
    "reason", [None, "", "AbortError: This operation was aborted", "enough", "the page timed out, so I stop", "x" * 101]
)
def test_any_other_reason_is_no_timeout(reason: str | None) -> None:
    assert not names_timeout(reason)


def gives_up(hub: TaskHub, sent: int, reason: str | None = TYPESCRIPT) -> None:
    """The client cancels its request of this id."""
    params = {"requestId": sent} | ({} if reason is None else {"reason": reason})
    hub._duplex.on_notification(enveloped(rpc("notifications/cancelled", params)))


async def times_out(hub: SoftHub, tool: str = "same", **arguments: object) -> Sent:
    sent = await hub.tool(tool, arguments)
    await sleep(20)
    gives_up(hub, hub._sent)
    await sleep(1)
    return sent


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    added = {
        "same": CallRules(idempotent=True),
        "brief": CallRules(idempotent=True, orphan=60.0),
        "dropped": CallRules(idempotent=True, orphan="cancel"),
        "apart": CallRules(idempotent=True, by_session=True),
    }
    monkeypatch.setattr(task_hub, "RULES", task_hub.RULES | added)
    monkeypatch.setattr(task_hub, "TOOLS", (*task_hub.TOOLS, *added))


@in_virtual_time
async def test_an_equal_call_joins_the_one_that_timed_out(hub: SoftHub) -> None:
    await hub.hello()
    first = await times_out(hub, n=1)
    assert not hub.running.is_cancelled
    second = await hub.tool("same", {"n": 1})
    await hub.running.ends(text("the work"))
    assert said(second) == "the work" and len(hub.server.calls) == 1
    assert not first.is_answered, "a cancelled request has no response"


@in_virtual_time
async def test_a_call_that_joins_is_asked_what_is_open_however_much_was_said_since(hub: SoftHub) -> None:
    await hub.hello(elicitation={})
    await hub.tool("same")
    await hub.running.asks()
    for value in range(30):
        await hub.running.says(value, "still at it")
    await sleep(1)
    gives_up(hub, hub._sent)
    joined = await hub.tool("same")
    assert len(hub.server.calls) == 1 and joined.methods[-1:] == ["elicitation/create"]


@in_virtual_time
async def test_a_call_that_joined_may_time_out_and_be_joined_itself(hub: SoftHub) -> None:
    await hub.hello()
    for _ in range(3):
        await times_out(hub)
    last = await hub.tool("same")
    await hub.running.ends(text("the work"))
    assert said(last) == "the work" and len(hub.server.calls) == 1


@in_virtual_time
async def test_only_one_call_joins(hub: SoftHub) -> None:
    await hub.hello()
    await times_out(hub)
    await hub.tool("same")
    await hub.tool("same")
    assert len(hub.server.calls) == 2


@pytest.mark.parametrize(("tool", "arguments"), [("same", {"n": 2}), ("same", {"n": True}), ("brief", {"n": 1})])
def test_another_call_does_not_join(tool: str, arguments: dict[str, object]) -> None:
    async def scenario(hub: SoftHub) -> None:
        await hub.hello()
        await times_out(hub, n=1)
        await hub.tool(tool, arguments)
        assert len(hub.server.calls) == 2

    in_virtual_time(scenario)()


@in_virtual_time
async def test_the_early_answer_of_a_call_that_joined_counts_from_its_own_begin(hub: SoftHub) -> None:
    await hub.hello()
    await times_out(hub)
    second = await hub.tool("same")
    await sleep(40)
    assert not second.is_answered
    await sleep(5)
    assert "not the result" in said(second)


@pytest.mark.parametrize("tool", ["slow", "dropped"])
@pytest.mark.parametrize("reason", [TYPESCRIPT, "timed out"])
def test_a_call_that_may_act_twice_or_must_not_continue_is_cancelled(tool: str, reason: str) -> None:
    async def scenario(hub: SoftHub) -> None:
        await hub.hello()
        await hub.tool(tool)
        await sleep(20)
        gives_up(hub, hub._sent, reason)
        await sleep(1)
        assert hub.running.is_cancelled

    in_virtual_time(scenario)()


@pytest.mark.parametrize("reason", [None, "AbortError: This operation was aborted"])
def test_a_call_that_is_cancelled_for_another_reason_is_cancelled(reason: str | None) -> None:
    async def scenario(hub: SoftHub) -> None:
        await hub.hello()
        await hub.tool("same")
        await sleep(20)
        gives_up(hub, hub._sent, reason)
        await sleep(1)
        assert hub.running.is_cancelled

    in_virtual_time(scenario)()


@pytest.mark.parametrize(("tool", "seconds"), [("brief", 60), ("same", 600)])
def test_a_call_that_nobody_joins_ends_after_its_orphan_time(tool: str, seconds: float) -> None:
    async def scenario(hub: SoftHub) -> None:
        await hub.hello()
        await times_out(hub, tool)
        await sleep(seconds - 5)
        assert not hub.running.is_cancelled
        await sleep(15)
        assert hub.running.is_cancelled

    in_virtual_time(scenario)()


@over_the_pipe
async def test_a_call_that_was_joined_has_a_client_again(hub: TaskHub) -> None:
    await hub.call("brief", capabilities={})
    await sleep(20)
    gives_up(hub, hub._sent)
    joined = await hub.call("brief", capabilities={})
    await sleep(300)
    assert not hub.running.is_cancelled
    await hub.running.ends(text("the work"))
    assert said(joined) == "the work"


@over_the_pipe
async def test_a_session_with_a_process_of_its_own_joins_its_own_calls_only(hub: TaskHub) -> None:
    await hub.call("apart", capabilities={})
    await sleep(20)
    gives_up(hub, hub._sent)
    await hub.call("apart", capabilities={})
    assert len(hub.server.calls) == 2


@in_virtual_time
async def test_beyond_the_limit_of_detached_calls_a_call_is_cancelled(hub: SoftHub) -> None:
    await hub.hello()
    for n in range(4):
        await times_out(hub, n=n)
    assert [call.is_cancelled for call in hub.server.calls] == [False, False, False, True]


@in_virtual_time
async def test_a_call_that_has_ended_is_made_again(hub: SoftHub) -> None:
    await hub.hello()
    await times_out(hub)
    await hub.running.ends()
    second = await hub.tool("same")
    await hub.running.ends(text("new"))
    assert said(second) == "new" and len(hub.server.calls) == 2


# -- over HTTP, in the handshake era


@virtual
async def test_a_response_ends_when_its_request_timed_out_and_nothing_comes_back_to_it() -> None:
    call = MadeCall(World(), tool="reads")
    await call.progresses(1)
    await call.world.resumption.cancel(call.client, 1, TYPESCRIPT)
    await sleep(1)
    assert call.post.is_complete and call.client.requests == {}
    assert "result" not in str(call.post.messages) and call.world.cancelled == []
    assert (await call.comes_back(2)).status == 400
    await sleep(45)
    assert call.world.cancelled == [call.record], "30 s for a tool that only reads"


@pytest.mark.parametrize("is_joined", [True, False])
@pytest.mark.parametrize("is_elsewhere", [True, False])
@virtual
async def test_the_end_of_the_session_that_began_a_call_does_not_end_it_for_the_one_that_joined(
    is_elsewhere: bool, is_joined: bool
) -> None:
    call = MadeCall(World(), tool="reads")
    world = call.world
    await call.progresses(1)
    await world.resumption.cancel(call.client, 1, TYPESCRIPT)
    await sleep(1)
    if is_joined:
        assert world.hub.durable.timed_out.rejoin(replace(call.record.call, session="s2")) is call.record
    if is_elsewhere:
        beside = world.beside()
        await beside.resumption.cancel_all(await accepted_again(beside))
        for message in await world.store.inbox.take():
            world.streams._take(message)
    else:
        call.client.stored.was_elsewhere = True
        await world.resumption.cancel_all(call.client)
    await sleep(1)
    assert world.cancelled == ([] if is_joined else [call.record])
    CallHandle(call.record.call, call.record, world.hub.durable).cancel(is_clients=True)
    assert world.cancelled == [call.record], "who joined may cancel it"


@virtual
async def test_a_call_over_http_that_may_act_twice_is_cancelled() -> None:
    call = MadeCall(World(), tool="runs")
    await call.progresses(1)
    await call.world.resumption.cancel(call.client, 1, TYPESCRIPT)
    assert call.world.cancelled == [call.record]


@pytest.mark.parametrize(
    ("scope", "by_session"), [(None, False), ("shared", False), ("call", False), ("session", True)]
)
def test_a_server_with_processes_for_sessions_keeps_sessions_apart(scope: str | None, by_session: bool) -> None:
    entry = {"command": "git-server"} | ({} if scope is None else {"scope": scope})
    settings = Settings.model_validate({"servers": {"git": entry}})
    assert Current(settings).call_rules("git", "log").by_session is by_session


async def joined(call: MadeCall, client: ClientCalls, id_: int) -> Connection:
    """A request of this session to the call that a time-out has left."""
    world = call.world
    running = world.hub.durable.timed_out.rejoin(replace(call.record.call, session=client.session.id))
    assert running is call.record
    handle = CallHandle(running.call, running, world.hub.durable, after=1)

    async def answer(peer: Connection) -> None:
        request = HttpRequest({}, {}, LOCAL, peer.receive, peer.send, Envelope(), takes_sse=True)
        await world.resumption.answer(client, request, b"%d" % id_, id_, b'"t2"', handle)

    post = world.open(answer)
    await sleep(0.5)
    return post


@virtual
async def test_a_client_of_another_session_that_joined_comes_back_for_its_stream() -> None:
    call = MadeCall(World(), tool="reads")
    world = call.world
    await call.progresses(1)
    await world.resumption.cancel(call.client, 1, TYPESCRIPT)
    await sleep(1)
    second, stranger = world.client(id_="s2"), world.client(id_="s3")
    post = await joined(call, second, 7)
    await call.progresses(2)
    assert post.ids == [0, 2, 3]
    post.leave()
    await sleep(0.5)
    for other in (call.client, stranger):
        assert (await world.get(other, call.place(2))).status == 400
    again = await world.get(second, call.place(3))
    await call.progresses(3)
    await call.ends()
    assert again.status == 200 and again.ids == [3, 4, 5] and again.messages[-1]["id"] == 7


@pytest.mark.parametrize("has_left", [False, True])
@virtual
async def test_who_joined_a_call_comes_back_for_its_response_when_the_call_has_ended(has_left: bool) -> None:
    call = MadeCall(World(), tool="reads")
    world = call.world
    await call.progresses(1)
    await world.resumption.cancel(call.client, 1, TYPESCRIPT)
    await sleep(1)
    second, stranger = world.client(id_="s2"), world.client(id_="s3")
    post = await joined(call, second, 7)
    await call.progresses(2)
    if has_left:
        post.leave()
        await sleep(0.5)
    await call.ends()
    await sleep(5)
    for _ in range(2):
        again = await world.get(second, call.place(2))
        assert again.status == 200 and again.ids[-2:] == [3, 4]
        progress, answer = again.messages
        assert progress["params"]["progressToken"] == "t2" and answer["id"] == 7 and "result" in answer
    for other in (call.client, stranger):
        assert (await world.get(other, call.place(2))).status == 400
