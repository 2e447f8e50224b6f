"""An MCP session with one server: calls out, everything that the server says in."""

import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.call import Call
from mcp_hub.errors import Busy, RpcError, UpstreamLost
from mcp_hub.events import Cancelled, Log, Progressed, cancelled_by_client
from mcp_hub.types import CallId, Cause, Era, JsonObject, Kind
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.wire.base import WireClosed
from mcp_hub.wire.pipe import Pipe
from tests.unit.upstreams.function_calls import Recorder
from tests.unit.upstreams.scripted import EXTENSIONS, Server, talking, together
from tests.unit.wire.raw_lines import group, within

pytestmark = pytest.mark.anyio

META = "io.modelcontextprotocol/"


def raws(members: JsonObject) -> dict[str, msgspec.Raw]:
    return {key: msgspec.Raw(json.dumps(value).encode()) for key, value in members.items()}


def call(session: str = "s", era: Era = Era.HANDSHAKE, **more: Any) -> Call:
    params, meta = raws({"name": "x", "arguments": {"a": 1}}), raws(more.pop("meta", {}))
    can: JsonObject = {"roots": {}, "extensions": {"x/y": {}}}
    return Call(CallId("st_1"), "git", "tools/call", params, meta, session, "p", era, can, **more)


class Calls:
    """Calls in flight on one peer, each with what its channel got."""

    def __init__(self, peer: Peer, tasks: anyio.abc.TaskGroup) -> None:
        self.peer = peer
        self.tasks = tasks
        self.scopes: list[anyio.CancelScope] = []

    def start(self, made: Call) -> Recorder:
        channel, scope = Recorder(), anyio.CancelScope()
        self.scopes.append(scope)

        async def run() -> None:
            with scope:
                await self.peer.call(made, channel)

        self.tasks.start_soon(run)
        return channel


@asynccontextmanager
async def in_flight(**more: Any) -> AsyncIterator[tuple[Server, Recorder, int]]:
    """A call whose request the server has: its channel and its id."""
    async with talking() as (peer, server), group() as tasks:
        channel = Calls(peer, tasks).start(call(**more))
        yield server, channel, (await server.expect("tools/call"))["id"]


async def asked(server: Server, asking: Awaitable[object]) -> JsonObject:
    """The request as it was sent; it is answered with nothing in particular."""
    seen: list[JsonObject] = []

    async def script() -> None:
        seen.append(await server.answer("tools/call", {}))

    await together(script(), asking)
    return seen[0]


async def test_a_call_carries_its_params_and_meta_and_brings_back_the_result() -> None:
    async with talking() as (peer, server):
        made = call(meta={"x.y/z": 1})
        payload = '{"content":[ ],"n":1.10}'
        done = await together(server.reply("tools/call", f'"result":{payload}'), peer.call(made, Recorder()))
        assert bytes(done.result) == payload.encode() and done.era is Era.HANDSHAKE
        request = await asked(server, peer.call(made, Recorder()))
        assert request["params"] == {"name": "x", "arguments": {"a": 1}, "_meta": {"x.y/z": 1}}


async def test_a_progress_token_is_the_hubs_own_and_only_there_when_wanted() -> None:
    async with talking() as (peer, server):
        request = await asked(server, peer.call(call(wants_progress=True, meta={"k": 1}), Recorder()))
        assert request["params"]["_meta"] == {"k": 1, "progressToken": request["id"]}


@pytest.mark.parametrize("era", Era)
async def test_a_modern_server_gets_the_envelope_the_callers_capabilities_and_the_hubs_own_extensions(era: Era) -> None:
    async with talking(Era.MODERN) as (peer, server):
        made = call(era=era, log_level="info", meta={"k": 1})
        meta = (await asked(server, peer.call(made, Recorder())))["params"]["_meta"]
        assert meta.pop(META + "clientInfo")["name"] == "mcp-hub"
        assert meta == {
            "k": 1,
            META + "protocolVersion": "2026-07-28",
            META + "clientCapabilities": {"roots": {}, **EXTENSIONS},
            META + "logLevel": "info",
        }


async def test_an_error_comes_back_byte_for_byte() -> None:
    raw = '{"code":-32099,"message":"no","data":{"x":1.10},"extra":1}'
    async with talking() as (peer, server):
        with pytest.raises(RpcError) as caught:
            await together(server.reply("tools/call", f'"error":{raw}'), peer.call(call(), Recorder()))
        assert (caught.value.code, bytes(caught.value.encoded())) == (-32099, raw.encode())


@pytest.mark.parametrize(
    "answer", ['"result":null', '"result":42', '"result":"x"', '"result":[]', '"extra":1', '"result":{"x":NaN}']
)
async def test_an_answer_that_is_none_is_a_typed_error_that_names_the_server(answer: str) -> None:
    async with talking() as (peer, server):
        with pytest.raises(UpstreamLost, match='server "git"') as caught:
            await together(server.reply("tools/call", answer), peer.call(call(), Recorder()))
        assert caught.value.data == {"upstream": {"server": "git", "code": "unreadable_answer"}, "outcome": "unknown"}


async def test_a_cancelled_call_is_cancelled_at_the_server_under_the_hubs_id() -> None:
    async with talking() as (peer, server), anyio.create_task_group() as tasks:
        calls = Calls(peer, tasks)
        calls.start(call())
        request = await server.expect("tools/call")
        calls.scopes[0].cancel()
        cancelled = await server.expect("notifications/cancelled")
        assert cancelled["params"] == {"requestId": request["id"]}
        await server.send(id=request["id"], result={})
        await server.flush()
        assert isinstance(peer.wire, Pipe) and peer.wire.counts["late"] == 1


@pytest.mark.parametrize("is_in_place", [True, False])
async def test_reason_of_the_client_for_a_cancellation_reaches_the_server(is_in_place: bool) -> None:
    async with talking() as (peer, server), anyio.create_task_group() as tasks:
        channel = Recorder()
        channel.stopping = Cancelled(cancelled_by_client('the user pressed "stop"'))
        scope = anyio.CancelScope()

        async def run() -> None:
            with scope:
                await peer.call(call(), channel)

        if is_in_place:
            pending = peer.begin(call(), channel)
        else:
            tasks.start_soon(run)
        request = await server.expect("tools/call")
        if is_in_place:
            peer.abandon(call(), pending)
        else:
            scope.cancel()
        cancelled = await server.expect("notifications/cancelled")
        assert cancelled["params"] == {"requestId": request["id"], "reason": 'the user pressed "stop"'}


async def test_a_server_that_goes_fails_its_calls_at_once_with_the_reason() -> None:
    async def script(server: Server) -> None:
        await server.expect("tools/call")
        server.close()

    async with talking() as (peer, server):
        with pytest.raises(UpstreamLost, match='server "git" .*the peer closed') as caught:
            await together(script(server), peer.call(call(), Recorder()))
        assert caught.value.data == {"upstream": {"server": "git", "code": "closed_output"}, "outcome": "unknown"}
        assert peer.ending.closed.is_set() and peer.messages.list_changes._news.is_set()
        with pytest.raises(WireClosed):  # nothing was sent, so somebody may try again
            await peer.call(call(), Recorder())
        with pytest.raises(UpstreamLost):
            peer.send("tools/list")


async def test_the_reason_that_becomes_known_a_moment_later_is_the_one_that_is_reported() -> None:
    async with talking() as (peer, server):
        peer.ending.explained = anyio.Event()

        async def script() -> None:
            await server.expect("tools/call")
            server.close()
            await within(peer.ending.closed.wait())
            peer.ending.explain(Cause("crashed", "exit code 3"))

        with pytest.raises(UpstreamLost, match="exit code 3"):
            await together(script(), peer.call(call(), Recorder()))
        with pytest.raises(UpstreamLost, match="exit code 3"):
            peer.send("tools/list")


async def test_a_server_that_does_not_read_gets_no_more_calls() -> None:
    async with talking() as (peer, _):
        peer.wire.send(b"x" * (8 << 20) + b"\n")
        assert isinstance(peer.wire, Pipe)
        peer.wire.flush()
        with pytest.raises(Busy, match="does not read its input"):
            await peer.call(call(), Recorder())


async def test_progress_reaches_the_call_that_its_token_names() -> None:
    async with talking() as (peer, server), group() as tasks:
        calls = Calls(peer, tasks)
        one, two = (calls.start(call(wants_progress=True)) for _ in range(2))
        first, second = await server.expect("tools/call"), await server.expect("tools/call")
        progress = {"progress": 1, "total": 2.5, "message": "m", "x": {"y": 1}}
        await server.send(method="notifications/progress", params={"progressToken": second["id"], **progress})
        absent = {"progressToken": str(first["id"]), "progress": 7, "message": None, "_meta": None, "y": None}
        await server.send(method="notifications/progress", params=absent)
        await server.flush()
        assert one.sent == [Progressed(7, None, raws({"y": None}))]
        assert two.sent == [Progressed(1, 2.5, raws({"message": "m", "x": {"y": 1}}))]


@pytest.mark.parametrize(
    ("method", "params", "is_passed_on"),
    [
        *(("progress", f'{{"progressToken":{id_},"progress":1}}', True) for id_ in ("ID.0", "IDe0", '"ID"', "ID.000")),
        ("progress", '{"progressToken":1.5,"progress":1}', False),
        ("progress", '{"progressToken":1e400,"progress":1}', False),
        ("progress", '{"progressToken":true,"progress":1}', False),
        ("progress", '{"progressToken":999,"progress":1}', False),
        ("progress", '{"progressToken":"abc","progress":1}', False),
        ("progress", '{"progressToken":null,"progress":1}', False),
        ("progress", '{"progressToken":1}', False),
        ("progress", '{"progress":1}', False),
        ("progress", "[]", False),
        ("progress", "null", False),
        ("message", "{}", False),
        ("message", "[]", False),
        ("message", "null", False),
    ],
)
async def test_progress_reaches_the_call_of_its_number_and_no_other(
    method: str, params: str, is_passed_on: bool
) -> None:
    async with in_flight(wants_progress=True) as (server, channel, id_):
        params = params.replace("ID", str(id_))
        await server.write(f'{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}\n'.encode())
        await server.flush()
        assert channel.sent == [Progressed(1)] * is_passed_on


@pytest.mark.parametrize("value", ['"12"', "null", "true", "[]", "1e400", "9" * 5000])
async def test_progress_that_is_no_number_is_left_to_the_guard(value: str) -> None:
    async with in_flight(wants_progress=True) as (server, channel, id_):
        params = f'{{"progressToken":{id_},"progress":{value},"total":{value}}}'
        await server.write(f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}\n'.encode())
        await server.flush()
        (event,) = channel.sent
        assert isinstance(event, Progressed)
        assert all(number != number for number in (event.progress, event.total))  # NaN, which is dropped there


async def test_all_progress_comes_before_the_result_and_none_after_it() -> None:
    async with in_flight(wants_progress=True) as (server, channel, id_):
        lines: list[JsonObject] = [
            {"method": "notifications/progress", "params": {"progressToken": id_, "progress": 1}},
            {"id": id_, "result": {}},
            {"method": "notifications/progress", "params": {"progressToken": id_, "progress": 2}},
        ]
        await server.write(b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in lines))
        await server.flush()
        assert channel.sent == [Progressed(1)]


MESSAGE = {"level": "warning", "logger": "l", "data": {"x": [1]}}


@pytest.mark.parametrize(
    ("sessions", "receivers"),
    [("a", [0]), ("aa", [1]), ("ab", []), ("aab", []), ("", [])],
    ids=["one call", "calls of one session", "two sessions", "two of three", "no call"],
)
async def test_a_log_message_goes_to_whom_it_must_belong_or_to_nobody(sessions: str, receivers: list[int]) -> None:
    async with talking() as (peer, server), group() as tasks:
        calls = Calls(peer, tasks)
        channels = []
        for session in sessions:
            channels.append(calls.start(call(session)))
            await server.expect("tools/call")
        own = peer.send("tools/list")  # the hub's own request is nobody's call
        await server.expect("tools/list")
        await server.send(method="notifications/message", params={**MESSAGE, "_meta": None})
        await server.flush()
        assert own.id in peer.wire.requests.pending
        assert [place for place, channel in enumerate(channels) if channel.sent] == receivers
        for place in receivers:
            (event,) = channels[place].sent
            assert isinstance(event, Log) and event.level == "warning"
            assert json.loads(bytes(event.params)) == MESSAGE


async def test_what_a_call_that_was_given_up_still_says_reaches_nobody_else() -> None:
    async with talking() as (peer, server), group() as tasks:
        calls = Calls(peer, tasks)
        one, two = calls.start(call("a")), calls.start(call("b"))
        first = await server.expect("tools/call")
        await server.expect("tools/call")
        calls.scopes[0].cancel()
        await server.expect("notifications/cancelled")
        await server.send(method="notifications/message", params=MESSAGE)
        await server.flush()
        assert one.sent == two.sent == []
        await server.send(id=first["id"], result={})
        await server.send(method="notifications/message", params=MESSAGE)
        await server.flush()
        assert one.sent == [] and len(two.sent) == 1


async def test_a_ping_is_answered_and_any_other_request_refused_under_its_own_id() -> None:
    async with talking() as (_, server):
        await server.send(id="p", method="ping")
        assert await server.line() == {"jsonrpc": "2.0", "id": "p", "result": {}}
        for method, code in (("sampling/createMessage", -32600), ("no/such", -32601)):
            await server.send(id=7, method=method, params={})
            refusal = await server.line()
            assert (refusal["id"], refusal["error"]["code"]) == (7, code)
            assert method in refusal["error"]["message"]
        await server.send(id=1.5, method="ping")
        refusal = await server.line()
        assert (refusal["id"], refusal["error"]["code"]) == (None, -32600), "what has no usable id cannot be named"


async def test_a_changed_list_is_noted_by_kind_and_wakes_the_owner() -> None:
    async with talking() as (peer, server):
        for kind in ("tools", "resources"):
            await server.send(method=f"notifications/{kind}/list_changed")
        await within(peer.messages.list_changes.wait())
        await server.flush()
        assert peer.messages.list_changes.take() == {Kind.TOOL, Kind.RESOURCE, Kind.TEMPLATE, Kind.SKILL}
        assert not peer.ending.closed.is_set()


async def test_unknown_notifications_are_nothing() -> None:
    async with talking() as (peer, server):
        await server.send(method="notifications/elsewhere", params=[1])
        await server.send(method="", params=None)
        await server.flush()
        assert not peer.messages.list_changes._news.is_set() and not peer.callers.strays.lines


async def test_the_last_lines_of_stray_text_are_kept_and_no_more() -> None:
    async with talking() as (peer, server):
        await server.write(b"".join(b"noise %d\n" % number for number in range(1000)) + b"y" * 5000 + b"\n")
        await server.flush()
        assert len(peer.callers.strays.lines) == 20
        assert peer.callers.strays.lines[-2:] == ["stdout: noise 999", "stdout: " + "y" * 200]


@pytest.mark.parametrize("members", [b'"jsonrpc":"2.0","id":1,"result":', b'"result":', b'"jsonrpc":"2.0","error":'])
async def test_an_answer_that_cannot_be_decoded_does_not_reach_other_callers(members: bytes) -> None:
    async with talking() as (peer, server):
        await server.write(b"{" + members + b'{"text":"for one caller only"\n')
        await server.flush()
        assert len(peer.callers.strays.lines) == 1 and peer.callers.strays.lines[0].startswith(
            "stdout: a message (malformed JSON: "
        )
        assert "caller" not in peer.callers.strays.lines[0]
