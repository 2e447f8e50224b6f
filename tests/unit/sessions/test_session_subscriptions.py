"""What sessions are subscribed to, each with one reference at its upstream."""

from collections import Counter

import anyio
import pytest

from mcp_hub.call import Call
from mcp_hub.errors import Busy, RpcError
from mcp_hub.notices import Notices
from mcp_hub.sessions.session import LOCAL, MOST_SUBSCRIPTIONS, Session, SessionSubscriptions
from mcp_hub.types import Era
from tests.unit.fakes import IdleUpstream

A = ("git", "x:a")


class Source(IdleUpstream):
    """As much of an upstream as is needed: counts references, answers when it is told to."""

    def __init__(self) -> None:
        super().__init__("git")
        self.references: Counter[str] = Counter()
        self.answered = anyio.Event()
        self.error: RpcError | None = None

    async def subscribe(self, uri: str, call: Call) -> None:
        self.references[uri] += 1
        with anyio.fail_after(240):
            await self.answered.wait()
        if self.error is not None:
            raise self.error

    def unsubscribe(self, uri: str, call: Call) -> None:
        self.references[uri] -= 1
        assert self.references[uri] >= 0


def session() -> Session:
    return Session("s", LOCAL, Era.HANDSHAKE, "2025-11-25")


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def of(source: Source) -> SessionSubscriptions:
    return SessionSubscriptions({"git": source}, Notices())


async def test_one_session_has_one_reference_however_often_it_asks(of: SessionSubscriptions, source: Source) -> None:
    source.answered.set()
    own = session()
    await of.add(own, A, "exported:a")
    await of.add(own, A, "exported:a")
    assert own.subscriptions == {A: "exported:a"} and source.references["x:a"] == 1
    of.remove(own, A)
    of.remove(own, A)
    assert own.subscriptions == {} and source.references["x:a"] == 0


async def test_both_of_two_requests_at_once_wait_for_the_answer(of: SessionSubscriptions, source: Source) -> None:
    own = session()
    done: list[int] = []

    async def add() -> None:
        await of.add(own, A, "x:a")
        done.append(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(add)
        tasks.start_soon(add)
        await anyio.wait_all_tasks_blocked()
        assert not done and source.references["x:a"] == 2
        source.answered.set()
    assert len(done) == 2 and source.references["x:a"] == 1


async def test_a_refusal_leaves_nothing(of: SessionSubscriptions, source: Source) -> None:
    source.answered.set()
    source.error = RpcError("no")
    own = session()
    with pytest.raises(RpcError, match="no"):
        await of.add(own, A, "x:a")
    assert own.subscriptions == {} and source.references["x:a"] == 0


async def test_a_request_that_fails_leaves_the_subscription_that_was_made_after_it_was_ended(
    of: SessionSubscriptions, source: Source
) -> None:
    own = session()
    first = anyio.CancelScope()

    async def add(scope: anyio.CancelScope) -> None:
        with scope:
            await of.add(own, A, "".join(("x:", "a")))  # a text of its own, as every request has

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(add, first)
        await anyio.wait_all_tasks_blocked()
        of.remove(own, A)
        tasks.start_soon(add, anyio.CancelScope())
        await anyio.wait_all_tasks_blocked()
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        source.answered.set()
    assert own.subscriptions == {A: "x:a"} and source.references["x:a"] == 1


async def test_a_session_has_a_limit_that_the_error_names(of: SessionSubscriptions, source: Source) -> None:
    source.answered.set()
    own = session()
    for number in range(MOST_SUBSCRIPTIONS):
        await of.add(own, ("git", f"x:{number}"), "")
    with pytest.raises(Busy, match="1000 subscriptions"):
        await of.add(own, A, "x:a")
    await of.add(own, ("git", "x:0"), "")
    of.remove(own, ("git", "x:0"))
    await of.add(own, A, "x:a")
    of.clear(own)
    assert not own.subscriptions and not source.references.total()


async def test_a_session_that_is_over_subscribes_to_nothing(of: SessionSubscriptions, source: Source) -> None:
    own = session()
    of.clear(own)
    with pytest.raises(RpcError, match="over"):
        await of.add(own, A, "x:a")
    assert not source.references.total()
