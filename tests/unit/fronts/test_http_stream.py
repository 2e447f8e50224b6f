"""An SSE response that is fed by pulling: pace, silence, and every way to end it."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.fronts.http import response as module
from mcp_hub.fronts.http.response import stream
from tests.unit.wire.raw_lines import WAIT

pytestmark = pytest.mark.anyio


class Client:
    """Both sides of one ASGI exchange. `takes`: bodies that the client reads before it stops reading."""

    def __init__(self, takes: int = 1000) -> None:
        self.messages: list[dict[str, Any]] = []
        self.scope = anyio.CancelScope()
        self.gone = anyio.Event()
        self._takes = takes

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def is_complete(self) -> bool:
        return "body" in self.messages[-1] and not self.messages[-1].get("more_body")

    async def send(self, message: Any) -> None:
        if len(self.messages) > self._takes:
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        self.messages.append(message)

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


class Numbers:
    """A source that always has something, and then nothing any more."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pulled = 0
        self.told_of = 0

    async def next(self) -> list[bytes]:
        if self.pulled == self.count:
            await anyio.sleep_forever()
        self.pulled += 1
        return [b'{"n":%d}\n' % self.pulled]

    def told(self) -> None:
        self.told_of += 1


async def run(client: Client, source: Numbers, last: bytes = b"") -> None:
    with anyio.fail_after(WAIT):
        await stream(source, client.receive, client.send, client.scope, last)


async def test_everything_is_sent_in_order_and_the_last_word_ends_the_response() -> None:
    client, source = Client(), Numbers(3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, client, source, b'{"id":1}\n')
        await anyio.wait_all_tasks_blocked()
        assert not client.is_complete and source.told_of == 3
        client.scope.cancel()
    assert client.messages[0]["status"] == 200
    assert (b"content-type", b"text/event-stream") in client.messages[0]["headers"]
    events = [b'event: message\ndata: {"n":%d}\n\n' % number for number in (1, 2, 3)]
    assert client.body == b"".join(events) + b'event: message\ndata: {"id":1}\n\n'
    assert client.is_complete


async def test_silence_is_broken_by_comments_which_are_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.001)
    client, source = Client(takes=5), Numbers(0)
    with anyio.move_on_after(0.5):
        await run(client, source)
    assert client.body.startswith(b": keep-alive\n\n" * 4)
    assert source.told_of == 0


async def test_a_client_that_goes_ends_it() -> None:
    client = Client()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, client, Numbers(1))
        await anyio.wait_all_tasks_blocked()
        client.gone.set()


async def test_nothing_more_is_pulled_for_a_client_that_does_not_read_and_in_the_end_it_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_STALLED", 0.02)
    monkeypatch.setattr(module, "LAST", 0.01)
    client, source = Client(takes=2), Numbers(1000)
    await run(client, source, b'{"id":1}\n')
    assert (source.pulled, source.told_of) == (3, 2)
    assert not client.is_complete
