"""Which front a path belongs to, and whom its URL makes of a caller: endpoints without a hub behind them."""

import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from mcp_hub.fronts.endpoints import Endpoints, Headers
from mcp_hub.fronts.exchange import Receive, Scope, Send, respond
from mcp_hub.fronts.guard import Guard, Refusal
from mcp_hub.sessions.session import Caller

pytestmark = pytest.mark.anyio

TOKENS = {"free": Caller("free"), "bound": Caller("bound", "small")}


async def serve(scope: Scope, receive: Receive, send: Send, headers: Headers, caller: Caller) -> None:
    await respond(send, 200, json.dumps([scope["path"], caller.principal, caller.profile]).encode())


class Api:
    """A mount that says who came, or why not."""

    prefix = "/v1"

    async def serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers, caller: Caller) -> None:
        await serve(scope, receive, send, headers, caller)

    async def refuse(self, send: Send, refusal: Refusal) -> None:
        await respond(send, refusal.status, json.dumps(refusal.reason).encode())


async def asked(target: str, token: str = "free") -> tuple[int, Any]:
    path, _, query = target.partition("?")
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer " + token.encode())]
    endpoints = Endpoints(Guard(TOKENS, profiles=["small", "a b/p/c"]), {"/mcp": serve, "/sse": serve}, Api())
    await endpoints({"path": path, "query_string": query.encode(), "headers": headers}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"] or b"null")


@pytest.mark.parametrize(
    ("target", "token", "profile"),
    [
        ("/mcp", "free", None),
        ("/mcp/", "free", None),
        ("/mcp/p/small", "free", "small"),
        ("/mcp/p/small/", "free", "small"),
        ("/sse/p/small", "free", "small"),
        ("/mcp/p/a b/p/c", "free", "a b/p/c"),
        ("/mcp", "bound", "small"),
        ("/mcp/p/small", "bound", "small"),
        ("/v1/tools", "free", None),
        ("/v1/tools?format=mcp&profile=small", "free", "small"),
        ("/v1/tools?profile=a%20b/p/c", "free", "a b/p/c"),
        ("/v1/tools", "bound", "small"),
        ("/v1/tools?profile=small", "bound", "small"),
    ],
)
async def test_url_chooses_a_profile_for_who_is_bound_to_none(target: str, token: str, profile: str | None) -> None:
    assert await asked(target, token) == (200, [target.partition("?")[0], token, profile])


@pytest.mark.parametrize("target", ["/mcp/p/{}", "/sse/p/{}", "/v1/tools?profile={}"])
async def test_unknown_profile_and_that_of_others_are_not_found(target: str) -> None:
    for name, token in (("none", "free"), ("none", "bound"), ("", "free"), ("a b/p/c", "bound")):
        status, said = await asked(target.format(name), token)
        reason = said if isinstance(said, str) else said["error"]["message"]
        assert (status, reason) == (404, f'no profile "{name}" that you may use')


@pytest.mark.parametrize("target", ["/mcp/p/small", "/mcp/p/none", "/v1/tools?profile=small", "/v1/tools?profile=none"])
async def test_nobody_learns_of_profiles_without_a_token(target: str) -> None:
    assert (await asked(target, "wrong"))[0] == 401


@pytest.mark.parametrize("target", ["/", "/p/small", "/mcp/small", "/mcp/p", "/other/p/small", "/mcp/x/p/small"])
async def test_other_paths_are_nothing(target: str) -> None:
    status, said = await asked(target)
    assert (status, said["error"]["message"]) == (404, "nothing here; the MCP endpoint is /mcp")
