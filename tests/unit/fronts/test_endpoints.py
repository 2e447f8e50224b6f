"""Which front a path belongs to, and whom its URL makes of a caller: endpoints without a hub behind them."""

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mcp_hub.errors import RpcError
from mcp_hub.fronts.http.admission import accepts
from mcp_hub.fronts.http.auth import HttpAuth, Refusal
from mcp_hub.fronts.http.endpoints import Endpoints
from mcp_hub.fronts.http.response import HttpExchange, Scope, respond
from mcp_hub.sessions.session import Caller
from tests.unit.fronts.rest_peer import exchange

TOKENS = {"free": Caller("free"), "bound": Caller("bound", "small")}


async def serve(http: HttpExchange) -> None:
    answer = [http.scope["path"], http.caller.principal, http.caller.profile]
    await respond(http.send, 200, json.dumps(answer).encode())


class Api:
    """A mount that says who came, or why not."""

    prefix = "/v1"

    async def serve(self, http: HttpExchange) -> None:
        await serve(http)

    def missing(self, scope: Scope) -> Refusal | None:
        return None

    def refused(self, refusal: Refusal) -> Response:
        return JSONResponse(refusal.reason, refusal.status)

    def failed(self, error: RpcError) -> Response:
        return JSONResponse(str(error), 503)


GUARD = HttpAuth(TOKENS, profiles=["small", "a b/p/c"])
FREE = [(b"host", b"localhost"), (b"authorization", b"Bearer free")]


async def published(request: Request) -> Response:
    return JSONResponse("for everybody")


def endpoints(guard: HttpAuth = GUARD) -> Endpoints:
    return Endpoints(guard, {"/mcp": serve, "/sse": serve}, Api(), {"/.well-known/x": Route("/x", published)})


async def asked(target: str, token: str = "free") -> tuple[int, Any]:
    return await sent_to(endpoints(), target, [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())])


async def sent_to(
    front: Endpoints, target: str, headers: list[tuple[bytes, bytes]], method: str = "GET"
) -> tuple[int, Any]:
    response = await exchange(front, target, headers, method)
    return response.status, json.loads(response.body or b"null")


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
        assert (status, reason) == (404, f'There is no profile "{name}" for you.')


@pytest.mark.parametrize("target", ["/mcp/p/small", "/mcp/p/none", "/v1/tools?profile=small", "/v1/tools?profile=none"])
async def test_nobody_learns_of_profiles_without_a_token(target: str) -> None:
    assert (await asked(target, "wrong"))[0] == 401


@pytest.mark.parametrize("target", ["/", "/p/small", "/mcp/small", "/mcp/p", "/other/p/small", "/mcp/x/p/small"])
async def test_other_paths_are_nothing(target: str) -> None:
    status, said = await asked(target)
    assert (status, said["error"]["message"]) == (404, "There is nothing at this path. The MCP endpoint is /mcp.")


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
TARGETS = [
    *("/mcp", "/mcp/", "/sse", "/.well-known/x", "/v1", "/mcp/p/small", "/v1/tools", "/v1/", "/", "", "*", "/nothing"),
    *("/mcp/../v1/tools", "/v1?a=b"),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("target", TARGETS)
async def test_host_and_origin_go_before_everything_on_every_path(target: str, method: str) -> None:
    evil_host = [(b"host", b"evil.example"), FREE[1]]
    assert (await sent_to(endpoints(), target, evil_host, method))[0] == 421
    assert (await sent_to(endpoints(), target, [*FREE, (b"origin", b"https://evil.example")], method))[0] == 403
    assert (await sent_to(endpoints(), target, [FREE[1]], method))[0] == 421, "no Host at all"


@pytest.mark.parametrize("target", TARGETS)
async def test_a_header_given_twice_is_refused_on_every_path(target: str) -> None:
    for name in (b"host", b"authorization"):
        assert (await sent_to(endpoints(), target, [*FREE, (name, dict(FREE)[name])]))[0] == 400
    twice = [*FREE, (b"origin", b"http://localhost"), (b"origin", b"https://evil.example")]
    assert (await sent_to(endpoints(), target, twice))[0] == 400


@pytest.mark.parametrize("target", ["/mcp", "/mcp/p/small", "/v1/tools", "/.well-known/x", "/nothing"])
@pytest.mark.parametrize(
    "query", ["access_token=free", "a=b&access_token=free", "access%5Ftoken=free", "access_token="]
)
async def test_a_token_in_the_url_is_refused_even_beside_a_good_one(target: str, query: str) -> None:
    status, said = await sent_to(endpoints(), f"{target}?{query}", FREE)
    assert status == 400 and "Authorization: Bearer" in json.dumps(said) and "free" not in json.dumps(said)
    assert (await sent_to(endpoints(), f"{target}?{query}", FREE[:1]))[0] == 400


@pytest.mark.parametrize(
    "target",
    [
        *("/mcp/p/../../v1/tools", "/mcp/p/..", "/mcp/p/small/..", "/mcp/p/small/../large", "/mcp/p/./small"),
        *("/mcp/p/small\0", "/mcp/p/small\n", "/mcp/p/%2e%2e", "/mcp/p//small", "/mcp/p/small//"),
    ],
)
async def test_no_path_climbs_out_of_its_route(target: str) -> None:
    """uvicorn has decoded it: `..%2f` comes as `../`. A name is compared, never walked."""
    for token in ("free", "bound"):
        assert (await asked(target, token))[0] == 404


async def test_what_is_published_needs_no_token_and_is_at_its_whole_path_only() -> None:
    assert await sent_to(endpoints(), "/.well-known/x", FREE[:1]) == (200, "for everybody")
    for target in ("/.well-known/x/", "/.well-known", "/.well-known/x/p/small", "/.well-known/x/../../v1/tools"):
        assert (await sent_to(endpoints(), target, FREE[:1]))[0] in (401, 404)


async def test_another_guard_holds_from_the_next_request_on() -> None:
    front = endpoints()
    assert (await sent_to(front, "/mcp", FREE))[0] == 200
    front.use(HttpAuth({"new": Caller("new")}), {})
    assert (await sent_to(front, "/mcp", FREE))[0] == 401
    assert (await sent_to(front, "/mcp", [FREE[0], (b"authorization", b"Bearer new")]))[0] == 200


class Checking:
    """A verifier that knows nobody yet, and lets in whose token says so."""

    def can_verify(self, token: bytes) -> bool:
        return token.count(b".") == 2

    def find(self, digest: bytes) -> Caller | None:
        return None

    def challenge(self, *, has_token: bool) -> bytes:
        return b"Bearer"

    async def verify(self, token: bytes, digest: bytes) -> Caller | Refusal:
        return Caller("issuer#carol") if token == b"good.one.x" else Refusal(403, "insufficient_scope", "lacks a scope")


@pytest.mark.parametrize("target", ["/mcp", "/v1/tools"])
async def test_a_token_that_has_to_be_checked_is(target: str) -> None:
    front = endpoints(HttpAuth({}, verifier=Checking()))
    good, bad = ([FREE[0], (b"authorization", b"Bearer " + token)] for token in (b"good.one.x", b"bad.one.x"))
    assert await sent_to(front, target, good) == (200, [target, "issuer#carol", None])
    assert (await sent_to(front, target, bad))[0] == 403


PAGE, LOCAL_PAGE = "https://app.example", "http://localhost:3000"
SHARED = HttpAuth(TOKENS, cors=[PAGE])
PREFLIGHT = [
    (b"host", b"localhost"),
    (b"access-control-request-method", b"POST"),
    (b"access-control-request-headers", b"authorization,mcp-param-city"),
]


async def headers_for(
    origin: str, path: str, headers: list[tuple[bytes, bytes]], method: str
) -> tuple[int, dict[str, str]]:
    """The status, and the headers of a response that concern pages."""
    response = await exchange(endpoints(SHARED), path, [*headers, (b"origin", origin.encode())], method)
    concerned = [name for name in response.headers if name.startswith("access-control") or name == "vary"]
    return response.status, {name: response.headers[name] for name in concerned}


@pytest.mark.parametrize("path", ["/mcp", "/v1/tools", "/nothing", "/.well-known/x"])
async def test_a_page_of_cors_is_answered_before_it_sends_a_token(path: str) -> None:
    status, shown = await headers_for(PAGE, path, PREFLIGHT, "OPTIONS")
    assert status == 204 and shown["access-control-allow-origin"] == PAGE and shown["vary"] == "Origin"
    assert shown["access-control-allow-headers"] == "authorization,mcp-param-city"
    assert "DELETE" in shown["access-control-allow-methods"] and "access-control-allow-credentials" not in shown
    status, shown = await headers_for(LOCAL_PAGE, path, PREFLIGHT, "OPTIONS")
    assert shown == {} and status in (200, 401, 404, 405)
    assert await headers_for("https://evil.example", path, PREFLIGHT, "OPTIONS") == (403, {})


@pytest.mark.parametrize(("path", "headers", "status"), [("/mcp", FREE, 200), ("/v1/x", FREE[:1], 401)])
async def test_only_a_page_of_cors_may_read_answers(path: str, headers: list[tuple[bytes, bytes]], status: int) -> None:
    found, shown = await headers_for(PAGE, path, headers, "POST")
    assert found == status and shown["access-control-allow-origin"] == PAGE
    assert "Mcp-Session-Id" in shown["access-control-expose-headers"]
    assert await headers_for(LOCAL_PAGE, path, headers, "POST") == (status, {})


@pytest.mark.parametrize(
    ("accept", "taken"),
    [
        (None, (True, True)),
        (b"", (True, True)),
        (b"*/*", (True, True)),
        (b"*", (True, True)),
        (b"text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", (True, True)),
        (b"Application/JSON ;charset=utf-8,\tTEXT/event-stream, ", (True, True)),
        (b"application/*, text/*", (True, True)),
        (b"application/json;q=0, text/event-stream", (False, True)),
        (b"application/json, text/event-stream; q = 0.0", (True, False)),
        (b"*/*, text/event-stream;q=0", (True, False)),
        (b"text/*;q=0, */*;q=0.1", (True, False)),
        (b"text/event-stream", (False, True)),
        (b"application/json", (True, False)),
        (b"text/html, application/jsonx" + b", image/png" * 100, (False, False)),
    ],
)
def test_accept_names_kinds_of_answers_by_its_closest_ranges(accept: bytes | None, taken: tuple[bool, bool]) -> None:
    assert accepts({} if accept is None else {b"accept": accept}) == taken
