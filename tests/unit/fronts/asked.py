"""One request to a hub in this process, from its session to its answer, without a transport."""

import json
from collections.abc import Coroutine
from typing import Any

import anyio
import msgspec

from mcp_hub.app.build import App
from mcp_hub.errors import RpcError
from mcp_hub.fronts.mcp.responder import CallResponder
from mcp_hub.protocol.jsonrpc.envelope import whole
from mcp_hub.protocol.meta import take_params
from mcp_hub.protocol.notifications import ListenFilter
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import Era
from tests.upstreams.child import WAIT

VERSIONS = {Era.MODERN: "2026-07-28", Era.HANDSHAKE: "2025-11-25"}


async def ask(
    app: App, method: str, params: dict[str, Any] | None = None, *, era: Era = Era.MODERN, profile: str | None = None
) -> Any:
    """The result, or the error as it is sent."""
    session = Session("s", Caller(profile=profile), era, VERSIONS[era])
    try:
        with anyio.fail_after(WAIT):
            return json.loads(await _answer(app, session, method, params or {}))
    except RpcError as error:
        return json.loads(error.encoded())


async def _answer(app: App, session: Session, method: str, params: dict[str, Any]) -> bytes:
    raw, meta = take_params(msgspec.json.encode(params))
    reply = app.binding.handle(session, method, raw, meta)
    found = await reply if isinstance(reply, Coroutine) else reply
    assert not isinstance(found, ListenFilter) and not callable(found)
    if isinstance(found, bytes):
        return found
    news = anyio.Event()
    responder = CallResponder(app.hub, b"1", session, found, None, lambda: news.set())
    while not responder.ended:
        responder.take()
        if not responder.ended:
            await news.wait()
            news = anyio.Event()
    responder.close()
    answer = json.loads(whole(responder.answer or b""))
    return json.dumps(answer.get("result", answer.get("error"))).encode()
