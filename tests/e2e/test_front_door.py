"""Who comes in at the HTTP front of a running hub: every route, every method, tokens of its own and of issuers."""

import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from mcp_hub.app.http import is_authenticated
from mcp_hub.config.schema.settings import Settings
from mcp_hub.fronts.http.oauth.tokens import WELL_KNOWN
from mcp_hub.fronts.http.streamable import StreamableHttp
from mcp_hub.fronts.legacy_sse import LegacySse
from tests.e2e.bad_input import ALICE, TOKENS
from tests.e2e.client import HttpClient, Hub, Silent, threaded
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.unit.fronts.oauth_tokens import jwk, rsa_key, token
from tests.upstreams.launch import argv, servers_yaml

pytestmark = pytest.mark.anyio

RESOURCE = "https://hub.example.com/mcp"
TLS = httpx2.create_ssl_context()  # one for all: nothing here is encrypted
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class FakeIssuer:
    """Key sets at `/<name>/keys`, one for each issuer `url/<name>`, and their tokens; `broken` ones answer with 500."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        self.url = url
        # made now: threads that each made a key of the same name would have two
        self._keys = {name: rsa_key(name) for name in names}
        self.broken: set[str] = set()
        self.reads: list[str] = []

    def name(self, who: str = "one") -> str:
        return f"{self.url}/{who}"

    def keys(self, who: str) -> bytes:
        return json.dumps({"keys": [jwk(self._keys[who], "key")]}).encode()

    def settings(self, who: str = "one", **more: Any) -> dict[str, Any]:
        return {"issuer": self.name(who), "jwks_url": f"{self.name(who)}/keys", **more}

    def token(self, resource: str, who: str = "one", **changed: Any) -> str:
        """A good token for ten minutes, but for what is `changed`."""
        said = {"iss": self.name(who), "aud": resource, "sub": "alice", "exp": time.time() + 600, "scope": "mcp"}
        return token({**said, **changed}, self._keys[who], kid="key").decode()


@contextmanager
def running_issuer(*names: str) -> Iterator[FakeIssuer]:
    """Serves the keys of these issuers on a free port of 127.0.0.1."""
    found: list[FakeIssuer] = []

    class Handler(Silent):
        def do_GET(self) -> None:
            issuer, who = found[0], self.path.split("/")[1]
            issuer.reads.append(who)
            self.answer(*((500,) if who in issuer.broken else (200, issuer.keys(who))))

    with threaded(Handler) as url:
        found.append(FakeIssuer(url, names))
        yield found[0]


@pytest.fixture(scope="module")
def issuer() -> Iterator[FakeIssuer]:
    with running_issuer("one", "two", "down") as found:
        found.broken.add("down")
        yield found


@pytest.fixture(scope="module")
async def door(issuer: FakeIssuer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    """A hub that takes its own tokens and those of three issuers, one of which is out of reach."""
    issuers = [
        issuer.settings("one"),
        issuer.settings("two", scope_profiles={"small": "small"}, profile="large"),
        issuer.settings("down"),
    ]
    http = {"oauth": {"resource": RESOURCE, "scopes": ["mcp"], "issuers": issuers}}
    profiles = {"small": {"tools": {"allow": ["*echo"]}}, "large": {}}
    text = servers_yaml({"a": argv(name="a")}, hub={"tokens": TOKENS, "http": http}, profiles=profiles)
    async with http_hub(text, tmp_path_factory.mktemp("door")) as running:
        yield running


PAGES = ("/", "/v1", "/v1/docs")
HEALTH = ("/livez", "/healthz", "/readyz")
LITTLE = len("not ready\n")
"""Bytes: what probes ask without a token says no more than that."""


def origin(hub: Hub) -> str:
    parts = urlsplit(hub.url)
    return f"{parts.scheme}://{parts.netloc}"


def paths(document: Any) -> list[str]:
    """Every route of a running hub, those in the OpenAPI document filled in, and some that there are not."""
    rest = [re.sub(r"\{[^}]*\}", "x", path) for path in document["paths"]]
    fronts = [*_routes(StreamableHttp), *_routes(LegacySse)]
    assert len(rest) > 8 and len(fronts) >= 3
    below = [f"{path}/p/small" for path in fronts]
    known = [WELL_KNOWN, f"{WELL_KNOWN}/mcp", f"{WELL_KNOWN}/sse"]
    future = ["/metrics", "/healthz", "/readyz", "/livez", "/ui", "/static/app.js", "/favicon.ico", "/v1/nothing"]
    return [*rest, *fronts, *below, *known, *PAGES, *future]


def _routes(front: Any) -> list[str]:
    """The paths of a front, of which only the names are needed."""
    return list(front.routes.fget(front.__new__(front)))


async def send(hub: Hub, method: str, path: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=240, verify=TLS) as http:
        return await http.request(method, origin(hub) + path, headers=headers)


async def raw(hub: Hub, request: bytes) -> bytes:
    """The answer to bytes that no client library would send; the status line and what follows."""
    parts = urlsplit(hub.url)
    async with await anyio.connect_tcp(str(parts.hostname), int(parts.port or 0)) as stream:
        await stream.send(request)
        answer = b""
        with anyio.fail_after(240):
            while b"\r\n\r\n" not in answer:
                answer += await stream.receive()
    return answer


async def test_every_route_refuses_a_rebound_host_and_a_foreign_page(door: Hub) -> None:
    document = (await send(door, "GET", "/v1/openapi.json", authorization=f"Bearer {ALICE}")).json()
    async with httpx2.AsyncClient(timeout=240, verify=TLS) as http:
        for path in paths(document):
            for method in METHODS:
                url, who = origin(door) + path, {"authorization": f"Bearer {ALICE}"}
                answer = await http.request(method, url, headers={**who, "host": "evil.example"})
                assert answer.status_code == 421, (method, path, answer.status_code)
                answer = await http.request(method, url, headers={**who, "origin": "https://evil.example"})
                assert answer.status_code == 403, (method, path, answer.status_code)


async def test_every_route_but_the_published_ones_wants_a_token(door: Hub) -> None:
    document = (await send(door, "GET", "/v1/openapi.json", authorization=f"Bearer {ALICE}")).json()
    async with httpx2.AsyncClient(timeout=240, verify=TLS) as http:
        for path in paths(document):
            for method in METHODS:
                answer = await http.request(method, origin(door) + path)
                is_open = path in HEALTH or path in PAGES or path.startswith(WELL_KNOWN)
                assert answer.status_code in ((200, 405) if is_open else (401, 404)), (method, path, answer.status_code)
                assert path not in HEALTH or answer.status_code == 405 or len(answer.content) <= LITTLE, answer.text
                assert answer.status_code != 401 or "resource_metadata=" in answer.headers["www-authenticate"]


@pytest.mark.parametrize("path", [WELL_KNOWN, f"{WELL_KNOWN}/mcp"])
async def test_metadata_says_who_gives_tokens(door: Hub, issuer: FakeIssuer, path: str) -> None:
    answer = await send(door, "GET", path)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "resource": RESOURCE,
        "authorization_servers": [issuer.name("one"), issuer.name("two"), issuer.name("down")],
        "bearer_methods_supported": ["header"],
        "resource_name": "mcp-hub",
        "scopes_supported": ["mcp"],
    }


async def test_the_host_of_the_resource_is_served(door: Hub) -> None:
    assert (await send(door, "GET", WELL_KNOWN, host="hub.example.com")).status_code == 200


async def test_an_access_token_opens_every_front(door: Hub, issuer: FakeIssuer) -> None:
    shown = issuer.token(RESOURCE)
    async with HttpClient(door.url, shown) as client, RestClient(door, shown) as rest:
        assert (await client.initialize()).status == 200
        assert (await client.request("tools/list")).last["result"]["tools"]
        assert (await rest.ask("GET", "/tools")).status_code == 200
    assert issuer.reads.count("one") == 1, "read once, at the start"


async def test_tokens_of_the_configuration_still_hold(door: Hub) -> None:
    async with HttpClient(door.url, ALICE) as client:
        assert (await client.initialize()).status == 200


@pytest.mark.parametrize(
    ("changed", "status", "code"),
    [
        ({"aud": "https://other.example.com"}, 401, "invalid_token"),
        ({"exp": 1_000_000_000}, 401, "invalid_token"),
        ({"nbf": 4_000_000_000}, 401, "invalid_token"),
        ({"iss": "https://auth.example.com"}, 401, "invalid_token"),
        ({"scope": "other"}, 403, "insufficient_scope"),
    ],
)
async def test_a_token_that_does_not_do_is_refused_alike_by_all_fronts(
    door: Hub, issuer: FakeIssuer, changed: Any, status: int, code: str
) -> None:
    who = {"authorization": f"Bearer {issuer.token(RESOURCE, **changed)}"}
    for method, path in (
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("GET", "/sse"),
        ("POST", "/messages"),
        ("GET", "/v1/tools"),
    ):
        answer = await send(door, method, path, **who)
        challenge = answer.headers["www-authenticate"]
        assert answer.status_code == status and f'error="{code}"' in challenge, (method, path, answer.text)
        assert 'scope="mcp"' in challenge
        assert path != "/v1/tools" or answer.json()["code"] == code


async def test_unreachable_keys_are_reported_and_stop_nobody_else(door: Hub, issuer: FakeIssuer) -> None:
    for path in ("/mcp", "/v1/tools"):
        answer = await send(door, "GET", path, authorization=f"Bearer {issuer.token(RESOURCE, 'down')}")
        assert answer.status_code == 503 and "HTTP 500" in answer.text and answer.headers["retry-after"]
    assert (await send(door, "GET", "/v1/tools", authorization=f"Bearer {ALICE}")).status_code == 200


async def test_a_scope_gives_a_profile(door: Hub, issuer: FakeIssuer) -> None:
    for scope, names in (("mcp small", ["a_echo"]), ("mcp", None)):
        async with HttpClient(door.url, issuer.token(RESOURCE, "two", scope=scope)) as client:
            assert (await client.initialize()).status == 200
            tools = (await client.request("tools/list")).last["result"]["tools"]
            assert names is None or [tool["name"] for tool in tools] == names
            assert len(tools) == 1 or names is None


async def test_the_same_name_at_two_issuers_is_two_people(door: Hub, issuer: FakeIssuer) -> None:
    mine, theirs = issuer.token(RESOURCE, "one"), issuer.token(RESOURCE, "two")
    async with HttpClient(door.url, mine) as client, HttpClient(door.url, theirs) as thief:
        assert (await client.initialize()).status == 200
        thief.session = client.session
        assert (await thief.request("tools/list")).status == 404
        assert (await client.request("tools/list")).status == 200
    async with RestClient(door, mine) as rest, RestClient(door, theirs) as other:
        stream = await rest.started("a_echo", {"text": "x"})
        assert (await rest.ask("GET", f"/streams/{stream}")).status_code == 200
        assert (await other.ask("GET", f"/streams/{stream}")).status_code == 404


async def test_another_token_of_the_same_person_continues_with_the_session(door: Hub, issuer: FakeIssuer) -> None:
    async with (
        HttpClient(door.url, issuer.token(RESOURCE)) as client,
        HttpClient(door.url, issuer.token(RESOURCE, jti="refreshed")) as later,
    ):
        assert (await client.initialize()).status == 200
        later.session, later.version = client.session, client.version
        assert (await later.request("tools/list")).status == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /v1/tools HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\nAuthorization: %s", 400),
        (b"GET /v1/tools HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\nAuthorization: %s", 400),
        (b"GET /v1/tools HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nOrigin: http://localhost", 400),
        (b"GET http://evil.example/v1/tools HTTP/1.1\r\nHost: evil.example\r\nAuthorization: %s", 421),
        (b"GET /v1/tools HTTP/1.1\r\nX: y\r\nAuthorization: %s", 421),
        (b"GET /v1/tools HTTP/1.0\r\nAuthorization: %s", 421),
        (b"GET /v1/tools HTTP/1.1\r\nHost: localhost\x00.evil.example\r\nAuthorization: %s", 400),
        (b"GET /mcp/p/..%%2f..%%2fv1/tools HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s", 404),
        (b"GET /mcp/p/../../v1/tools HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s", 404),
        (b"GET /mcp/%%2e%%2e/v1/tools HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s", 404),
        (b"GET //v1/tools HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s", 404),
        (b"GET /v1/..%%2ftools HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s", 404),
        (b"GET /v1/tools?access_token=x HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s", 400),
        (b"GET /v1/tools HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s", 200),
    ],
)
async def test_bytes_on_the_wire_get_nobody_past_the_guard(door: Hub, head: bytes, status: int) -> None:
    bearer = b"Bearer " + ALICE.encode()
    request = (head % bearer if b"%s" in head else head) + b"\r\nConnection: close\r\n\r\n"
    answer = await raw(door, request)
    assert int(answer.split(b" ")[1]) == status, answer


async def test_what_a_request_says_is_in_no_header_of_the_answer(door: Hub) -> None:
    for name, value in (("host", "evil.example%0d%0aset-cookie:x"), ("origin", 'https://evil"x')):
        answer = await send(door, "GET", "/mcp", **{name: value})
        assert "evil" not in json.dumps(dict(answer.headers)) and "set-cookie" not in answer.headers


def test_an_issuer_counts_as_authentication() -> None:
    issuers = [{"issuer": "https://a.example", "jwks_url": "https://a.example/k"}]
    oauth = {"resource": RESOURCE, "issuers": issuers}
    assert is_authenticated(Settings.model_validate({"hub": {"http": {"oauth": oauth}}}))
    assert is_authenticated(Settings.model_validate({"hub": {"tokens": TOKENS}}))
    assert not is_authenticated(Settings())
