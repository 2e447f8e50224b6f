"""Sessions of the handshake era: how they begin, are lost and are ended."""

from contextlib import nullcontext

import anyio
import pytest

from mcp_hub.errors import HttpRefused
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.types import Era
from mcp_hub.wire import remote
from mcp_hub.wire.base import NotSent
from mcp_hub.wire.http import HttpWire
from tests.unit.wire.http_server import Reply, Request, Script
from tests.unit.wire.http_wires import bare_not_found, refuses, wired, with_session
from tests.unit.wire.raw_lines import within

pytestmark = pytest.mark.anyio


not_found = refuses(-32600, "Gone", "server-error", 404)
bad_session = refuses(-32000, "Bad Request: No valid session ID provided")


@pytest.mark.parametrize("script", [not_found, bare_not_found, bad_session])
async def test_a_request_of_an_unknown_session_was_not_processed_and_ends_it(script: Script) -> None:
    async with wired(with_session(script)) as talk:
        await talk.begin()
        with pytest.raises(NotSent):
            await talk.ask()
        assert talk.wire.session.is_forgotten and not talk.wire.can_send
        assert talk.told.reasons == ["the server no longer knows the session"]


@pytest.mark.parametrize("script", [not_found, bad_session])
async def test_without_a_session_nothing_can_be_lost(script: Script) -> None:
    async with wired(script) as talk:
        assert (await talk.ask()).kind == "error"
        assert not talk.wire.session.is_forgotten


@pytest.mark.parametrize(("id_", "message"), [(None, "Bad Request: no such version"), (2, "no session for you")])
async def test_a_bad_request_of_another_kind_is_an_answer(id_: int | None, message: str) -> None:
    async with wired(with_session(refuses(-32000, message, id_))) as talk:
        await talk.begin()
        assert (await talk.ask()).kind == "error"
        assert not talk.wire.session.is_forgotten


async def test_requests_on_their_way_find_out_by_themselves_that_the_session_is_lost() -> None:
    waiting = anyio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if request.rpc == "slow":
            await waiting.wait()
        await reply.status(404)

    async with wired(with_session(script)) as talk:
        await talk.begin()
        slow = talk.wire.request("slow", b"{}")
        await talk.server.until("slow")
        with pytest.raises(NotSent):
            await talk.ask()
        assert not slow.future.done()
        waiting.set()
        await within(talk.wire.settled())
        with pytest.raises(NotSent):
            await talk.answer(slow)


async def test_a_notification_to_an_unknown_session_ends_it_too() -> None:
    async with wired(with_session(bare_not_found)) as talk:
        await talk.begin()
        talk.wire.send(envelope.notification_frame("n"))
        await talk.wire.drained()
        assert talk.wire.session.is_forgotten


@pytest.mark.parametrize(("method", "is_forgotten"), [("tools/call", True), ("server/discover", False)])
async def test_modern_server_that_drops_the_version_has_forgotten_the_hub_unless_probed(
    method: str, is_forgotten: bool
) -> None:
    async with wired(refuses(-32022, "no", 1), Era.MODERN) as talk:
        with pytest.raises(NotSent) if is_forgotten else nullcontext():
            assert (await talk.ask(method)).kind == "error"
        assert talk.wire.session.is_forgotten is is_forgotten


@pytest.mark.parametrize("is_modern", [True, False])
@pytest.mark.parametrize("answer", [bare_not_found, refuses(-32000, "no session")])
async def test_requests_leave_room_for_a_probe(
    monkeypatch: pytest.MonkeyPatch, is_modern: bool, answer: Script
) -> None:
    monkeypatch.setattr(remote, "AT_ONCE", 2)
    probes = []

    async def script(request: Request, reply: Reply) -> None:
        await (reply.result(request, {}) if request.rpc == "server/discover" else answer(request, reply))

    async def probe(wire: HttpWire) -> bool:
        probes.append(await wire.answer(wire.request("server/discover", b"{}"), None))
        return is_modern

    async with wired(script, Era.MODERN, still_modern=probe) as talk:
        sent = [talk.wire.request("tools/call", b'{"name":"x"}') for _ in range(4)]
        await within(talk.wire.settled())
        for request in sent:
            if is_modern and answer is not bare_not_found:
                assert (await talk.answer(request)).kind == "error"
            else:
                with pytest.raises(HttpRefused if is_modern else NotSent):
                    await talk.answer(request)
        assert len(probes) == 1 and talk.wire.session.is_forgotten is not is_modern


@pytest.mark.parametrize("lost", [True, False])
async def test_a_session_is_ended_unless_it_is_lost(lost: bool) -> None:
    async with wired(with_session(bare_not_found)) as talk:
        await talk.begin()
        if lost:
            with pytest.raises(NotSent):
                await talk.ask()
        await talk.wire.end()
        ended = [request.headers["mcp-session-id"] for request in talk.server.of("DELETE")]
        assert ended == ([] if lost else ["s-1"])


async def test_a_session_may_begin_on_a_stream() -> None:
    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream(Mcp_Session_Id="s-1")
        await stream.answer(request.message["id"], {})
        await stream.end()

    async with wired(script) as talk:
        await talk.begin()
        await talk.ask()
        assert talk.server.seen[1].headers["mcp-session-id"] == "s-1"
