"""One replica is cut from the server while it makes a stream; the other one may claim it before the next try."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast, get_args

import anyio
import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.calls.reading.stored import fetched
from mcp_hub.clock import SystemClock
from mcp_hub.errors import Fenced, StoreError
from mcp_hub.stores.base import Change, Message, StoreLimits
from mcp_hub.stores.recovery.failsafe import FailsafeStore
from mcp_hub.stores.recovery.writes import ServerWrites
from mcp_hub.stores.replicated import redis_store
from rigs.chaos.lines import Cut, Line, lines
from tests.redis_server import RedisServer
from tests.unit.stores.away import Answers, is_away, is_back, new_store
from tests.unit.stores.event_stores import append, events, found, new_row, numbered, opened, replayed

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]


@asynccontextmanager
async def _pair(server: RedisServer) -> AsyncIterator[tuple[Line, FailsafeStore, FailsafeStore]]:
    """Two replicas, the first one behind a line that can be cut."""
    async with lines(1, server.port) as [line]:
        cuttable = redis_store(line.url, "test:", 1.0, "local", StoreLimits(), SystemClock())
        async with opened(cuttable), opened(two := new_store(server)):
            yield line, cuttable, two


def _begun(store: FailsafeStore, row: StreamInfo) -> Answers:
    """What the beginning of a stream is answered, once it is."""
    answers: Answers = []
    store.log.create(row, events(1, row.last), answers.append)
    return answers


async def _reached(store: FailsafeStore, row: StreamInfo) -> None:
    """Returns when the server has the stream."""
    while await cast(Any, store.backing.store).log.find(row.id) is None:
        await store.inbox.wait(0.01)


async def _claimed(store: FailsafeStore, row: StreamInfo) -> None:
    """Returns when this replica has ended the stream of the silent one."""
    while row.id not in {left.id for left in await store.leases.orphans()}:
        await store.inbox.wait(0.05)
    ending = Change(5.0, status="failed")
    assert await store.leases.claim(await found(store, row), numbered(row.last + 1, row.last + 1), ending) is not None


async def _settled(store: FailsafeStore, answers: Answers) -> list[type[StoreError] | None]:
    """The answers, once all are there, by their types."""
    while not answers:
        await store.inbox.has_news()
        await store.inbox.wait(0.02)
    return [None if answer is None else type(answer) for answer in answers]


@pytest.mark.parametrize("is_given_up", [False, True])
@pytest.mark.parametrize("cut", get_args(Cut))
async def test_a_beginning_that_is_cut_anywhere_is_made_once(
    cut: Cut, is_given_up: bool, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_given_up:  # before the line is whole, so that the next try has another connection and another tag
        monkeypatch.setattr("mcp_hub.stores.redis.link.ANSWER", 0.2)
    async with _pair(server) as (line, one, two):
        line.cut(cut)
        answers = _begun(one, row := new_row(one, last=2))
        if cut == "no answers":
            await _reached(two, row)
        while is_given_up and one.log.is_durable:
            await one.inbox.wait(0.02)
        line.mend()
        assert await _settled(one, answers) == [None]
        await is_back(one)
        await append(one, row, 3, status="completed")
        assert await replayed(two, row) == numbered(1, 3)


@pytest.mark.parametrize("is_given_up", [False, True])
async def test_a_beginning_whose_answer_was_lost_is_fenced_if_the_stream_was_claimed_before_the_next_try(
    is_given_up: bool, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_given_up:
        monkeypatch.setattr("mcp_hub.stores.redis.link.ANSWER", 0.2)
    async with _pair(server) as (line, one, two):
        line.cut("no answers")
        answers = _begun(one, row := new_row(one, last=2))
        await _reached(two, row)
        await _claimed(two, row)
        line.mend()
        assert await _settled(one, answers) == [Fenced]
        await is_back(one)
        assert await replayed(one, row) == await replayed(two, row) == numbered(1, 3)
        assert (await found(one, row)).status == "failed"


async def test_a_stream_that_another_replica_has_claimed_is_read_from_the_server_as_soon_as_that_is_known(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _pair(server) as (line, one, two):
        assert await _settled(one, _begun(one, row := new_row(one, last=2))) == [None]
        line.cut("closed")
        answers: Answers = []
        one.log.append(row.id, row.epoch, events(3, 3), Change(3.0, status="working"), answers.append)
        while one.log.is_durable:
            await one.inbox.wait(0.02)
        await _claimed(two, row)
        monkeypatch.setattr(ServerWrites, "returnable", [])  # nobody has asked yet what memory has
        line.mend()
        lost: list[str] = []
        while row.id not in lost:
            await one.inbox.has_news()
            lost += [message.stream for message in await one.inbox.take() if message.kind == "lost"]
            await one.inbox.wait(0.02)
        assert await replayed(one, row) == await replayed(two, row) == numbered(1, 3)
        assert (await found(one, row)).status == "failed"


async def test_the_ending_by_another_replica_is_read_before_it_is_known_that_the_stream_is_lost(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tasks/get` reads the last event of the row that the server has."""
    async with _pair(server) as (line, one, two):
        assert await _settled(one, _begun(one, row := new_row(one, last=2))) == [None]
        line.cut("closed")
        answers: Answers = []
        one.log.append(row.id, row.epoch, events(3, 3), Change(3.0, status="working"), answers.append)
        await is_away(one)
        await _claimed(two, row)
        monkeypatch.setattr(ServerWrites, "returnable", [])  # nobody has asked yet what memory has
        line.mend()
        await is_back(one)
        assert (await found(one, row)).last == 3
        assert await fetched(one.log, row.id, 2) == tuple(numbered(3, 3))


async def test_an_answer_that_comes_while_others_are_dropped_stays_though_that_is_sent_twice(
    server: RedisServer,
) -> None:
    async with _pair(server) as (line, one, two):
        assert await _settled(one, _begun(one, row := new_row(one, last=2))) == [None]
        assert await two.inbox.post(Message(row.id, "touch", b""))
        writer = cast(Any, one.backing.store).links.writer
        submitted: list[Any] = []
        submit = writer.submit

        def noted(commands: Any, *more: Any, **options: Any) -> None:
            submitted.extend(commands)
            submit(commands, *more, **options)

        writer.submit = noted
        kinds: list[str] = []
        while not kinds:
            await one.inbox.wait(0.02)
            kinds += [message.kind for message in await one.inbox.take()]
        await writer.ask(("PING",))
        assert await two.inbox.post(Message(row.id, "input", b"1"))
        await writer.ask(*[command for command in submitted if command[0] in ("LTRIM", "LREM")])
        with anyio.move_on_after(5):
            while "input" not in kinds:
                await one.inbox.wait(0.02)
                kinds += [message.kind for message in await one.inbox.take()]
        assert kinds == ["touch", "input"]


async def test_a_beginning_that_was_given_up_and_arrives_behind_the_look_for_it_is_made_once(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _pair(server) as (line, one, two):
        log = cast(Any, one.backing.store).log
        fetch = log.fetch
        looks: list[Any] = []

        def fetch_too_soon(stream: Any, after: int, limit: int, callback: Any) -> None:
            def fetched(page: Any) -> None:
                if not looks:
                    log.create(row, events(1, 2), lambda _: None)  # is sent before what follows from the look
                looks.append(page)
                callback(page)

            fetch(stream, after, limit, fetched)

        line.cut("closed")
        answers = _begun(one, row := new_row(one, last=2))
        while one.log.is_durable:
            await one.inbox.wait(0.02)
        monkeypatch.setattr(log, "fetch", fetch_too_soon)
        line.mend()
        assert await _settled(one, answers) == [None]
        assert looks[0] is None and looks[1] is not None
        await append(one, row, 3, status="completed")
        assert await replayed(two, row) == numbered(1, 3)
