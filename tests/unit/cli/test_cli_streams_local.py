"""Following a stream in the store of another process, event by event."""

from pathlib import Path

import anyio
import pytest
from msgspec import UNSET

from mcp_hub.call import StreamInfo
from mcp_hub.cli.access.local_streams import LocalStreams
from mcp_hub.clock import SystemClock
from mcp_hub.errors import StoreError
from mcp_hub.events import CallEvent, Cancelled, Progressed, Started
from mcp_hub.protocol.shape.stream_events import encoded
from mcp_hub.stores.base import Change, Chunk, EventStore, StoreLimits
from mcp_hub.stores.recovery.failsafe import failsafe_on_file
from mcp_hub.types import CallId, Status

pytestmark = pytest.mark.anyio

ID = CallId("st_" + "0" * 26)
SECONDS = 240


async def opened(folder: Path) -> EventStore:
    store = failsafe_on_file(folder, StoreLimits(), SystemClock())
    await store.open()
    assert store.log.is_durable
    return store


class Owner:
    """Writes one stream, each event when it is told to."""

    def __init__(self, store: EventStore, continuation: bytes | None = None) -> None:
        self._store = store
        self._continuation = continuation
        self._last = 0

    async def write(self, event: CallEvent, status: Status = "working", kind: str | None = None) -> None:
        """`kind` stands for the event's own type."""
        seq = self._last = self._last + 1
        line = encoded(ID, seq, "2026-11-20T11:02:03.412Z", event)
        if kind is not None:
            line = line.replace(b'"type":"end"', b'"type":"%b"' % kind.encode())
        written, errors = anyio.Event(), list[StoreError | None]()

        def done(error: StoreError | None) -> None:
            errors.append(error)
            written.set()

        if seq == 1:
            owner, point = self._store.log.instance, self._continuation
            row = StreamInfo(ID, "local", owner, "jobs", "tools/call", "job", 1.0, 1.0, last=1, continuation=point)
            self._store.log.create(row, Chunk(1, (line,)), done)
        else:
            self._store.log.append(ID, 1, Chunk(seq, (line,)), Change(2.0, status), done)
        await written.wait()
        assert errors == [None]


@pytest.mark.parametrize("kind", [None, "finish"], ids=["known", "unknown"])
async def test_follower_sees_what_another_process_writes_and_its_end(kind: str | None, tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS):
        here, there = await opened(tmp_path), await opened(tmp_path)
        owner, access = Owner(there), LocalStreams(here)
        await owner.write(Started())
        seen: list[tuple[int, CallEvent]] = []
        async with access.resume(ID) as stream:
            async for event in stream:
                seen.append((stream.cursor, event))
                if isinstance(event, Started):
                    await owner.write(Progressed(1))
                elif isinstance(event, Progressed):
                    await owner.write(Cancelled(None), "cancelled", kind)
            assert stream.cursor == 3
        ending = [] if kind else [(3, Cancelled(None))]
        assert seen == [(1, Started()), (2, Progressed(1)), *ending]
        [status] = await access.streams(9)
        assert (status.status, status.last) == ("cancelled", 3)
        for store in (here, there):
            await store.close()


async def test_cancel_is_a_message_to_the_owner(tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS):
        here, there = await opened(tmp_path), await opened(tmp_path)
        await Owner(there).write(Started())
        assert (await LocalStreams(here).cancel(ID)).status == "working"
        [message] = await there.inbox.take()
        assert (message.stream, message.kind) == (ID, "cancel")
        for store in (here, there):
            await store.close()


@pytest.mark.parametrize(("continuation", "status", "says"), [
    (None, "failed", "Its hub has ended. The outcome of the call is unknown."),
    (b"{}", "working", "Its hub has ended. The next one continues the call."),
])  # fmt: skip
async def test_call_of_a_hub_that_is_gone_does_not_seem_to_run(
    continuation: bytes | None, status: Status, says: str, tmp_path: Path
) -> None:
    with anyio.fail_after(SECONDS):
        here, there = await opened(tmp_path), await opened(tmp_path)
        await Owner(there, continuation).write(Started())
        access = LocalStreams(here)
        [runs] = await access.streams(9)
        assert (runs.status, runs.message) == ("working", UNSET) and await access.status(ID) == runs
        await there.close()
        [orphan] = await access.streams(9)
        assert (orphan.status, orphan.message) == (status, says) and await access.status(ID) == orphan
        row = await here.log.find(ID)
        assert row is not None and not row.has_ended, "a look changes nothing"
        await here.close()
