"""Errors over a pipe that name no request: whose answer each is, and when nobody can say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from anyio.abc import TaskGroup

from mcp_hub.call import Call
from mcp_hub.errors import RpcError, UpstreamLost
from mcp_hub.types import CallId, Era
from mcp_hub.upstreams.peer.peer import Peer
from tests.unit.upstreams.function_calls import Doubting
from tests.unit.upstreams.scripted import Server, talking
from tests.unit.wire.raw_lines import group
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

CALL = Call(
    CallId("st_1"),
    "git",
    "tools/call",
    {"name": msgspec.Raw(b'"x"')},
    {},
    "s",
    "p",
    Era.HANDSHAKE,
    {},
    wants_progress=True,
)
UNNAMED = b'{"jsonrpc":"2.0",%b"error":{"code":%d,"message":"cannot read that","data":{"at":3}}}\n'


class Asked:
    """Calls under way, and what each comes to."""

    def __init__(self, peer: Peer, server: Server, tasks: TaskGroup) -> None:
        self.peer, self.server, self.tasks = peer, server, tasks
        self.outcomes: dict[int, object] = {}
        self.scopes: dict[int, anyio.CancelScope] = {}
        self.channels: list[Doubting] = []

    async def begin(self) -> int:
        """The id of another call."""
        self.channels.append(channel := Doubting())
        scope = anyio.CancelScope()
        self.tasks.start_soon(self._ask, scope, channel)
        id_: int = (await self.server.expect("tools/call"))["id"]
        self.scopes[id_] = scope
        return id_

    async def _ask(self, scope: anyio.CancelScope, channel: Doubting) -> None:
        with scope:
            pending = self.peer.begin(CALL, channel)
            try:
                self.outcomes[pending.id] = await self.peer.finish(CALL, channel, pending)
            except RpcError as error:
                self.outcomes[pending.id] = error


@asynccontextmanager
async def asking() -> AsyncIterator[Asked]:
    async with talking() as (peer, server), group() as tasks:
        yield Asked(peer, server, tasks)


def was_refused(outcome: object) -> bool:
    return isinstance(outcome, RpcError) and "cannot read that (the server's error named no request" in str(outcome)


@pytest.mark.parametrize(
    ("id_", "code"),
    [(b'"id":null,', -32700), (b"", -32600), (b'"id":"",', -32603), (b'"id":0,', -1), (b'"id":"unknown",', -32602)],
)
async def test_an_error_without_an_id_is_the_answer_of_the_only_call(id_: bytes, code: int) -> None:
    async with asking() as asked:
        only = await asked.begin()
        await asked.server.write(UNNAMED % (id_, code))
        await until(lambda: only in asked.outcomes)
        error = asked.outcomes[only]
        assert was_refused(error) and isinstance(error, RpcError) and not isinstance(error, UpstreamLost)
        assert error.code == code and msgspec.json.decode(error.encoded())["data"] == {"at": 3}
        assert asked.channels[0].times.doubts == 0 and asked.peer.callers.strays.count == 1
        await asked.server.send(id=only, result={})  # too late, and no stray
        await asked.server.flush()
        assert asked.peer.callers.strays.count == 1


async def test_of_several_calls_the_last_without_an_answer_gets_an_error_without_an_id() -> None:
    async with asking() as asked:
        first, second = await asked.begin(), await asked.begin()
        await asked.server.write(UNNAMED % (b'"id":null,', -32700))
        await asked.server.flush()
        later = await asked.begin()
        assert not asked.outcomes and [channel.times.doubts for channel in asked.channels] == [0, 0, 0]
        await asked.server.send(id=first, result={"content": []})
        await until(lambda: second in asked.outcomes)
        assert was_refused(asked.outcomes[second]) and later not in asked.outcomes
        assert not isinstance(asked.outcomes[first], RpcError)


async def test_as_many_errors_without_an_id_as_calls_are_their_answers() -> None:
    async with asking() as asked:
        ids = {await asked.begin(), await asked.begin()}
        await asked.server.write(UNNAMED % (b"", -32700) * 2)
        await until(lambda: asked.outcomes.keys() == ids)
        assert all(map(was_refused, asked.outcomes.values()))


async def test_a_cancelled_call_may_be_the_one_that_an_error_without_an_id_meant() -> None:
    async with asking() as asked:
        cancelled, other = await asked.begin(), await asked.begin()
        await asked.server.write(UNNAMED % (b"", -32600))
        await asked.server.flush()
        asked.scopes[cancelled].cancel()
        await asked.server.expect("notifications/cancelled")
        ping = await asked.server.expect("ping")
        await asked.server.send(id=ping["id"], result={})
        await asked.server.flush()
        assert asked.peer.wire.requests.pending[other].doubtful is None
        await asked.server.send(id=cancelled, result={"content": []})
        await until(lambda: other in asked.outcomes)
        assert was_refused(asked.outcomes[other])


@pytest.mark.parametrize("is_progress", [False, True])
async def test_a_sign_of_the_call_shows_that_an_error_without_an_id_was_not_its_answer(is_progress: bool) -> None:
    async with asking() as asked:
        only = await asked.begin()
        await asked.server.write(UNNAMED % (b"", -32600))
        if is_progress:
            await asked.server.send(method="notifications/progress", params={"progressToken": only, "progress": 1})
            await asked.server.flush()
            assert asked.peer.wire.requests.pending[only].doubtful is None
        await asked.server.send(id=only, result={"content": []})
        await until(lambda: only in asked.outcomes)
        assert not isinstance(asked.outcomes[only], RpcError)
