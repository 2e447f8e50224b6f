"""Streams of the handshake era that break off and go on, and the one that belongs to no request."""

from typing import Any

import anyio
import pytest

from mcp_hub.errors import UpstreamLost
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.types import Era
from mcp_hub.wire import http
from tests.unit.wire.http_server import Reply, Request, Stream, serving
from tests.unit.wire.http_wires import bare_not_found, says, wired, with_session
from tests.unit.wire.raw_lines import WAIT, within
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

SOON = 50
"""Milliseconds, as short as the wire lets a pause be."""


class Parts:
    """Answers a request in parts: a stream a connection, each but the last cut or ended."""

    def __init__(self, parts: int, *, cut: bool = False, retry: int | None = SOON) -> None:
        self.parts = parts
        self.cut = cut
        self.retry: dict[str, Any] = {} if retry is None else {"retry": retry}
        self.id = 0
        self.places: list[str | None] = []

    async def __call__(self, request: Request, reply: Reply) -> None:
        self.id = request.message["id"] if request.body else self.id
        part = len(self.places)
        self.places.append(request.headers.get("last-event-id"))
        stream = await reply.stream()
        await stream.event(id=f"{part}.0", **self.retry)
        await stream.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}, id=f"{part}.1")
        if part == self.parts - 1:
            await stream.event({"jsonrpc": "2.0", "id": self.id, "result": {}}, id=f"{part}.2")
        await stream.leave(self.cut)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [True, False])
async def test_a_stream_with_ids_is_followed_from_where_it_broke_off_until_the_answer(cut: bool) -> None:
    parts = Parts(8, cut=cut)
    async with wired(parts) as talk:
        pending = talk.wire.request("tools/call", b"{}")
        assert bytes((await within(talk.answer(pending))).result) == b"{}"
        assert parts.places == [None, *(f"{part}.1" for part in range(7))]
        assert talk.told.sources == [pending] * 8
        assert [request.method for request in talk.server.seen] == ["POST", *["GET"] * 7]


@pytest.mark.slow
async def test_the_servers_pause_is_kept() -> None:
    pause = 300
    times: list[float] = []

    async def script(request: Request, reply: Reply) -> None:
        times.append(anyio.current_time())
        stream = await reply.stream()
        if request.body:
            await stream.event(id="p", retry=pause)
            await stream.end()
        else:
            await stream.answer(1, {})

    async with wired(script) as talk:
        await talk.ask()
        assert pause / 1000 - 0.02 <= times[1] - times[0] < pause / 1000 + WAIT / 2


async def test_a_stream_that_brings_nothing_new_is_given_up_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_SHORTEST", 0.001)

    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        await stream.event(id="always", retry=1)
        await stream.end()

    async with wired(script) as talk:
        with pytest.raises(UpstreamLost, match="ended its answer without a result") as caught:
            await talk.ask()
        assert (caught.value.data or {})["outcome"] == "unknown"
        assert len(talk.server.of("GET")) == 5


class Resumed:
    """The stream of a POST has an id and ends; each GET gets the next of these: a status, the answer, or nothing."""

    def __init__(self, *gets: int | str) -> None:
        self.steps = ["begins", *gets]

    async def __call__(self, request: Request, reply: Reply) -> None:
        step = self.steps.pop(0)
        if isinstance(step, int):
            return await reply.status(step)
        stream = await reply.stream()
        if step == "begins":
            await stream.event(id="here", retry=SOON)
        elif step == "answer":
            await stream.answer(1, {})
        await stream.end()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["nothing", 429, 502, 503, 504])
async def test_stream_is_asked_for_again_at_its_place_after_nothing_or_a_restart(first: int | str) -> None:
    async with wired(Resumed(first, "answer")) as talk:
        assert (await talk.ask()).kind == "result"
        assert [request.headers.get("last-event-id") for request in talk.server.seen] == [None, "here", "here"]


@pytest.mark.parametrize("status", [405, 404, 400])
async def test_a_server_that_does_not_resume_says_so_and_the_request_is_lost(status: int) -> None:
    async with wired(with_session(Resumed(status))) as talk:
        await talk.begin()
        with pytest.raises(UpstreamLost, match=f"did not resume it: HTTP {status}") as caught:
            await talk.ask()
        assert (caught.value.data or {})["outcome"] == "unknown"
        assert talk.wire.session.is_forgotten is (status == 404)


async def test_a_modern_stream_is_never_resumed() -> None:
    async with wired(Parts(2), Era.MODERN) as talk:
        with pytest.raises(UpstreamLost):
            await talk.ask()
        assert [request.method for request in talk.server.seen] == ["POST"]


async def test_a_request_that_is_given_up_is_no_longer_resumed() -> None:
    async def script(request: Request, reply: Reply) -> None:
        if request.rpc == "tools/call":
            stream = await reply.stream()
            await stream.event(id="1", retry=10_000)
            await stream.end()
        else:
            await reply.status(202)

    async with wired(script) as talk:
        with anyio.move_on_after(0.2):
            await talk.wire.answer(
                talk.wire.request("tools/call", b"{}"), lambda id_: envelope.notification_frame("gave-up")
            )
        await talk.server.until("gave-up")
        assert talk.server.of("GET") == []


async def changed(stream: Stream, **fields: object) -> None:
    await stream.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, **fields)


async def test_what_belongs_to_no_request_comes_without_one() -> None:
    async def script(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            stream = await reply.stream()
            await changed(stream)
            await stream.event({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            await stream.gone()
        else:
            await reply.status(202)

    async with wired(with_session(script)) as talk:
        await talk.begin()
        await talk.wire.listen()
        await talk.told.until("requests")
        assert talk.told.sources == [None]
        (listen,) = talk.server.of("GET")
        assert listen.headers["accept"] == "text/event-stream" and listen.headers["mcp-session-id"] == "s-1"


@pytest.mark.parametrize("status", [405, 404, 400, 500])
async def test_a_server_without_such_a_stream_is_asked_once(status: int) -> None:
    async with wired(with_session(says(status))) as talk:
        await talk.begin()
        await talk.wire.listen()
        await talk.server.until("GET")
        await until(lambda: not talk.wire._exchanges._scopes)
        assert talk.wire.can_send and not talk.wire.session.is_forgotten


@pytest.mark.slow
@pytest.mark.parametrize("cut", [True, False])
async def test_the_stream_is_opened_again_from_where_it_broke_off(cut: bool) -> None:
    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        number = len(talk.server.of("GET"))
        await changed(stream, id=f"e{number}", retry=SOON)
        await (stream.gone() if number == 4 else stream.leave(cut))

    async with wired(script) as talk:
        await talk.wire.listen()
        opened = await talk.server.until("GET", 4)
        assert [request.headers.get("last-event-id") for request in opened] == [None, "e1", "e2", "e3"]
        await talk.told.until("notifications", 4)


async def test_a_stream_that_is_open_again_may_have_missed_something() -> None:
    gaps: list[int] = []

    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        number = len(talk.server.of("GET"))
        gaps.append(-number)
        await changed(stream, retry=SOON)
        await (stream.gone() if number == 3 else stream.end())

    async with wired(script) as talk:
        talk.wire._streams._on_gap = lambda: gaps.append(len(talk.server.of("GET")))
        await talk.wire.listen()
        await talk.told.until("notifications", 3)
        assert gaps == [-1, -2, 2, -3, 3]


async def test_a_stream_that_is_unknown_after_it_was_there_is_a_lost_session() -> None:
    async with wired(with_session(Resumed(404))) as talk:  # its first stream is that of no request
        await talk.begin()
        await talk.wire.listen()
        assert await talk.told.until("reasons") == ["the server no longer knows the session"]
        assert talk.wire.session.is_forgotten


async def test_a_server_that_is_gone_is_noticed_by_the_stream() -> None:
    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        await stream.event(id="1", retry=SOON)
        async with serving(bare_not_found) as other:
            talk.wire._exchanges.server.url = other.url
        stream.cut()

    async with wired(script) as talk:
        await talk.wire.listen()
        (reason,) = await talk.told.until("reasons")
        assert reason.endswith("Connection refused") and not talk.wire.session.is_forgotten


async def test_the_stream_is_asked_for_ever_less_often_and_for_ever() -> None:
    given = [(1.0, 0), (1.0, 2), (1.0, 5), (0.05, 10**6), (40.0, 2000)]
    assert [http._longer(pause, silent) for pause, silent in given] == [1.0, 4.0, 30.0, 30.0, 40.0]


async def test_a_late_answer_on_the_stream_is_reported_as_one() -> None:
    async def script(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            stream = await reply.stream()
            for id_ in (1, 1, 99):
                await stream.answer(id_, {})
            await changed(stream)
            await stream.gone()
        elif request.rpc == "tools/call":
            await reply.gone()

    async with wired(script) as talk:
        await talk.give_up()
        await talk.wire.listen()
        await talk.told.until("notifications")
        assert talk.told.late == [1] and talk.wire.counts["stray"] == 2
