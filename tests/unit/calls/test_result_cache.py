"""Kept results: of which calls, for whom, and until when. A server counts the calls that reach it."""

from typing import Any, cast

import msgspec
import pytest

from mcp_hub.call import Call, CallChannel, CallerConnection
from mcp_hub.calls.gates import cache as cache_module
from mcp_hub.calls.gates.cache import CACHE, ResultCache
from mcp_hub.calls.gates.steps import Gates
from mcp_hub.errors import InvalidParams
from mcp_hub.events import Completed
from mcp_hub.ids import new_call_id
from mcp_hub.types import Era, JsonObject, Snapshot, UpstreamState, UpstreamStatus
from tests.unit.fakes import Channel, HandClock, IdleUpstream

pytestmark = pytest.mark.anyio


class Counting(IdleUpstream):
    """A server that counts its calls."""

    def __init__(self) -> None:
        super().__init__("s")
        self.calls = 0
        self.pid: int | None = 1
        self.restarts = 0
        self.lists = Snapshot("s", Era.HANDSHAKE, {})
        self.sessions: set[str] = set()
        self.has_accounts = False

    def status(self) -> UpstreamStatus:
        return UpstreamStatus("s", UpstreamState.READY, pid=self.pid, restarts=self.restarts)

    def snapshot(self) -> Snapshot | None:
        return self.lists

    def apart(self, call: Call) -> CallerConnection | None:
        if self.has_accounts:
            return CallerConnection(f"s:{call.principal}")
        return CallerConnection(f"s:{call.session}") if call.session in self.sessions else None


class Hub:
    """A hub's cache before the server."""

    def __init__(self, room: int = 1 << 20) -> None:
        self.server, self.clock, self.gates = Counting(), HandClock(), Gates()
        self.reads = True
        self.result: bytes = b'{"content":[{"type":"text","text":"%d"}]}'
        self.questions = 0
        self.cache = ResultCache(
            lambda server, tool: 600.0 if tool != "other" else 0.0, {"s": self.server}, lambda call: self.reads,
            self.clock, gates=self.gates, room=room,
        )  # fmt: skip

    async def handler(self, call: Call, channel: CallChannel) -> Completed:
        self.server.calls += 1
        self.sent = call
        cast("Any", channel.questions).count += self.questions
        return Completed(self.result.replace(b"%d", b"%d" % self.server.calls))

    async def __call__(self, arguments: bytes = b"{}", meta: JsonObject | None = None, **members: Any) -> JsonObject:
        params = {"name": msgspec.Raw(b'"t"'), "arguments": msgspec.Raw(arguments)}
        raw = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in (meta or {}).items()}
        call = Call(new_call_id(), "s", "tools/call", params, raw, "session", "p", Era.HANDSHAKE, {})
        step, channel = self.cache("s", "t", None), Channel()
        assert step is not None
        channel.questions = cast("Any", msgspec.defstruct("Questions", [("count", int, 0)])())
        completed = await step(msgspec.structs.replace(call, **members), cast("Any", channel), self.handler)
        result = msgspec.json.decode(completed.result)
        assert isinstance(result, dict)
        return result

    async def number(self, arguments: bytes = b"{}", **members: Any) -> int:
        """The number of the call whose result this is."""
        return int((await self(arguments, **members))["content"][0]["text"])


async def test_second_equal_call_is_answered_with_the_kept_result_and_its_age() -> None:
    hub = Hub()
    assert "_meta" not in await hub()
    hub.clock.time += 12.7
    result = await hub()
    assert result == {"_meta": {CACHE: {"cached": True, "age": 12}}, "content": [{"type": "text", "text": "1"}]}
    assert hub.server.calls == 1


async def test_meta_of_the_server_stays() -> None:
    hub = Hub()
    hub.result = b'{"_meta":{"x":[1],"dev.mcp-hub/cache":9},"content":[],"structuredContent":{"a":"\\u00e9"}}'
    await hub()
    expected = {"_meta": {CACHE: {"cached": True, "age": 0}, "x": [1]}, "content": [], "structuredContent": {"a": "é"}}
    assert await hub() == expected


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (b'{"a":1,"b":[{"c":2,"d":3}]}', b'{ "b" : [{"d":3,"c":2}], "a": 1 }', True),
        (b'{"a":"\\u00e9"}', '{"a":"é"}'.encode(), True),
        (b'{"a":1}', b'{"a":2}', False),
        (b'{"a":1}', b'{"a":"1"}', False),
        (b'{"a":1}', b'{"a":1.0}', False),
        (b'{"a":1}', b'{"a":true}', False),
        (b'{"a":null}', b"{}", False),
        (b'{"a":[1,2]}', b'{"a":[2,1]}', False),
        (b'{"a":{"b":1}}', b'{"a":[["b",1]]}', False),
        (b'{"a":[]}', b'{"a":{}}', False),
        (b'{"a":100000000000000000000000001}', b'{"a":100000000000000000000000002}', False),
        (b'{"a":0.1000000000000000000001}', b'{"a":0.1}', False),
        (b'{"a":1.5}', b'{"a":"Decimal(\'1.5\')"}', False),
    ],
)
async def test_arguments_are_compared_by_their_meaning(first: bytes, second: bytes, is_same: bool) -> None:
    hub = Hub()
    assert [await hub.number(first), await hub.number(second)] == ([1, 1] if is_same else [1, 2])


@pytest.mark.parametrize("arguments", [b'{"a":1,"a":2}', b'{"b":[{"a":1,"a":1}]}', b'{"a":NaN}', b"[" * 9000, b"x"])
async def test_arguments_that_can_be_read_in_two_ways_are_not_kept(arguments: bytes) -> None:
    hub = Hub()
    assert [await hub.number(arguments), await hub.number(arguments), await hub.number(b'{"a":2}')] == [1, 2, 3]
    assert len(hub.cache) == 1


@pytest.mark.parametrize(
    "result",
    [
        b'{"content":[{"type":"text","text":"%d"}],"isError":true}',
        b'{"content":[{"type":"text","text":"%d"}],"resultType":"input_required"}',
        b'{"content":[{"type":"text","text":"%d"}],"_meta":3}',
    ],
)
async def test_errors_and_parts_of_answers_are_not_kept(result: bytes) -> None:
    hub = Hub()
    hub.result = result
    assert [await hub.number(), await hub.number()] == [1, 2]


async def test_answer_that_somebody_was_asked_for_is_not_kept() -> None:
    hub = Hub()
    hub.questions = 1
    assert [await hub.number(), await hub.number()] == [1, 2]
    assert await hub.number(request_state="x") == 3
    assert await hub.number(input_responses={}) == 4


async def test_tool_that_does_more_than_read_is_never_kept() -> None:
    hub = Hub()
    hub.reads = False
    assert [await hub.number(), await hub.number()] == [1, 2]
    assert hub.cache("s", "other", None) is None


async def test_call_goes_around_the_cache_and_renews_it() -> None:
    hub = Hub()
    await hub()
    hub.clock.time += 30
    assert await hub.number(meta={CACHE: 60}) == 1
    assert await hub.number(meta={CACHE: 0, "x": 1}) == 2
    assert hub.sent.meta == {"x": msgspec.Raw(b"1")}  # it is the hub's word, not the server's
    assert await hub.number() == 2
    hub.clock.time += 30
    assert await hub.number(meta={CACHE: 20}) == 3
    with pytest.raises(InvalidParams, match="highest age in seconds"):
        await hub(meta={CACHE: "no"})


async def test_result_is_used_for_its_time_only() -> None:
    hub = Hub()
    await hub()
    hub.clock.time += 600
    assert await hub.number() == 1
    hub.clock.time += 0.1
    assert await hub.number() == 2


@pytest.mark.parametrize("change", ["restarts", "pid", "lists", "announced", "upstream", "login"])
async def test_change_of_the_server_drops_its_results(change: str) -> None:
    hub = Hub()
    await hub()
    match change:
        case "restarts":
            hub.server.restarts += 1
        case "pid":
            hub.server.pid = 2
        case "lists":
            hub.server.lists = msgspec.structs.replace(hub.server.lists, instructions="new")
        case "announced":
            hub.server.lists = msgspec.structs.replace(hub.server.lists, announced=1)
        case "upstream":
            cast("dict[str, Any]", hub.cache._upstreams)["s"] = Counting()
        case _:
            hub.cache.drop("s")
    assert await hub.number() == 2
    assert len(hub.cache) == 1


async def test_server_that_rests_and_lists_that_are_read_again_keep_results() -> None:
    hub = Hub()
    await hub()
    hub.server.pid = None
    hub.server.lists = msgspec.structs.replace(hub.server.lists)
    assert await hub.number() == 1
    hub.server.pid = 7
    assert await hub.number() == 2


async def test_result_of_a_server_that_changed_during_the_call_is_not_kept() -> None:
    hub = Hub()
    answer = hub.handler

    async def changing(call: Call, channel: CallChannel) -> Completed:
        completed = await answer(call, channel)
        hub.server.restarts += 1
        return completed

    hub.handler = changing  # type: ignore[method-assign]
    assert [await hub.number(), await hub.number()] == [1, 2]
    assert len(hub.cache) == 0


async def test_accounts_and_sessions_of_their_own_share_nothing() -> None:
    hub = Hub()
    hub.server.has_accounts = True
    assert [await hub.number(principal=name) for name in ("a", "b", "a")] == [1, 2, 1]
    hub.cache.drop("s", "s:a")
    assert [await hub.number(principal=name) for name in ("a", "b")] == [3, 2]
    hub.server.has_accounts, hub.server.sessions = False, {"x", "y"}
    assert [await hub.number(session=name) for name in ("x", "y", "x", "shared", "also shared")] == [4, 5, 4, 6, 6]
    assert await hub.number(era=Era.MODERN) == 7


async def test_room_is_bounded_and_the_result_used_longest_ago_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(room=16 * 600)
    hub.result = b'{"content":[{"type":"text","text":"%d"}],"x":"' + b"y" * 60 + b'"}'
    for n in range(30):
        await hub(b'{"n":%d}' % n)
        await hub(b'{"n":0}')
    assert hub.cache.size <= hub.cache.room
    assert 10 < len(hub.cache) < 20
    assert await hub.number(b'{"n":0}') == 1
    hub.result = b'{"content":[{"type":"text","text":"%d"}],"x":"' + b"y" * 9000 + b'"}'
    assert [await hub.number(b'{"n":99}'), await hub.number(b'{"n":99}')] == [31, 32]
    assert hub.cache.size == sum(map(cache_module._size, hub.cache._entries.values()))


async def test_kept_answer_is_noted_for_the_audit() -> None:
    hub = Hub()
    trail = cast("Any", msgspec.defstruct("Trail", [("decisions", dict[str, Any])]))({})
    hub.gates.trails.append(trail)
    await hub()
    assert not trail.decisions
    await hub()
    assert [decision[0] for decision in trail.decisions.values()] == ["cached"]
