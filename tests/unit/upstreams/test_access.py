"""The hub's hold of a login: renewed in time and once, whoever shares it, and kept whatever happens."""

import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcp_hub import masking
from mcp_hub.upstreams.auth import access as access_module
from mcp_hub.upstreams.auth.access import Access, AuthorizedClient
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, LoginFailed
from mcp_hub.upstreams.auth.store import GrantStore
from tests.unit.upstreams.authorization import Authorization, a_grant, key_of
from tests.unit.wire.http_server import HttpServer, Reply, Request, serving
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio

NOW = 1_000_000.0
ENDING: dict[str, Any] = {"obtained_at": NOW - 3600, "expires_at": NOW + 30}
"""Of a token that is about to end."""


@asynccontextmanager
async def held(
    guard: Authorization, folder: Path, now: float = NOW, **fields: Any
) -> AsyncIterator[tuple[HttpServer, Access]]:
    """A server, and a login to it as it was stored before; the refresh token `r-1` is good."""
    guard.refreshing.add("r-1")
    guard.valid["a-1"] = ""
    guard.count = 1
    async with serving(guard) as server:
        store = GrantStore(folder)
        store.save(key_of(server.url), a_grant(server.url.removesuffix("/mcp"), **fields))
        access = Access("far", server.url, ClientRegistration(), store, now=lambda: now)
        access.reread()
        with anyio.fail_after(WAIT):
            yield server, access


def stored(access: Access, folder: Path) -> Grant:
    grant = GrantStore(folder).load(access.key)
    assert grant is not None
    return grant


# -- in time


@pytest.mark.parametrize(
    ("life", "left", "is_renewed"), [(3600, 61, False), (3600, 60, True), (100, 11, False), (100, 10, True)]
)
async def test_a_token_is_renewed_a_minute_or_a_tenth_of_its_life_before_its_end(
    tmp_path: Path, life: float, left: float, is_renewed: bool
) -> None:
    guard = Authorization()
    times = {"obtained_at": NOW + left - life, "expires_at": NOW + left}
    async with held(guard, tmp_path, **times) as (_, access):
        assert await access.token() == ("a-2" if is_renewed else "a-1")
    assert guard.refreshes == (["r-1"] if is_renewed else [])


async def test_a_token_without_an_end_is_kept_until_it_is_refused(tmp_path: Path) -> None:
    guard = Authorization()
    async with held(guard, tmp_path) as (_, access):
        assert await access.token() == "a-1"
        assert await access.replacement("a-1") == "a-2"
        assert await access.replacement("a-1") == "a-2"  # which the one before has brought
    assert guard.refreshes == ["r-1"]


async def test_the_next_refresh_token_is_kept_or_the_old_one_where_there_is_none(tmp_path: Path) -> None:
    guard = Authorization(expires_in="7200")
    async with held(guard, tmp_path, **ENDING) as (_, access):
        await access.token()
        grant = stored(access, tmp_path)
        assert (grant.refresh_token, grant.expires_at, grant.obtained_at) == ("r-2", NOW + 7200, NOW)
        guard.refreshable, guard.expires_in = False, None
        await access.replacement("a-2")
        grant = stored(access, tmp_path)
        assert (grant.access_token, grant.refresh_token, grant.expires_at) == ("a-3", "r-2", None)


async def test_a_renewal_is_for_the_same_server_and_says_who_asks(tmp_path: Path) -> None:
    guard = Authorization()
    fields = {**ENDING, "client_secret": "s3cr3t", "token_auth": "post"}
    async with held(guard, tmp_path, **fields) as (_, access):
        await access.token()
        (form,) = guard.asked["/token"]
        assert form["resource"] == f"{guard.base}/mcp"
        assert (form["client_id"], form["client_secret"]) == ("registered", "s3cr3t")


# -- once


@pytest.mark.processes
async def test_three_processes_renew_once(tmp_path: Path) -> None:
    guard = Authorization()
    async with held(guard, tmp_path, obtained_at=0.0, expires_at=1.0) as (server, access):
        argv = [sys.executable, "-m", "tests.unit.upstreams.renewing", str(tmp_path), server.url]
        said: list[bytes] = []
        async with anyio.create_task_group() as tasks:
            ready = [anyio.Event() for _ in range(3)]
            go = anyio.Event()

            async def one(number: int) -> None:
                async with await anyio.open_process(argv, cwd=Path(__file__).parents[3]) as process:
                    assert process.stdout is not None and process.stdin is not None
                    out = b""
                    while out != b"ready\n":
                        out += await process.stdout.receive()
                    ready[number].set()
                    await go.wait()
                    await process.stdin.send(b"go\n")
                    said.append(b"".join([chunk async for chunk in process.stdout]))

            for number in range(3):
                tasks.start_soon(one, number)
            for event in ready:
                await event.wait()
            go.set()
        assert said == [b"a-2\n"] * 3
        assert stored(access, tmp_path).refresh_token == "r-2"
    assert guard.refreshes == ["r-1"]


async def test_a_hundred_requests_renew_once(tmp_path: Path) -> None:
    guard = Authorization()
    found = []
    async with held(guard, tmp_path, **ENDING) as (_, access), anyio.create_task_group() as tasks:

        async def one() -> None:
            found.append(await access.token())

        for _ in range(100):
            tasks.start_soon(one)
    assert found == ["a-2"] * 100 and guard.refreshes == ["r-1"]


async def test_a_failure_is_everybodys_who_waits(tmp_path: Path) -> None:
    guard = Authorization(refresh_answer=(503, {}))
    async with held(guard, tmp_path, **ENDING) as (_, access), anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(access.token)
    assert guard.refreshes == ["r-1"]


async def test_what_somebody_else_renewed_is_taken_without_asking(tmp_path: Path) -> None:
    guard = Authorization()
    async with held(guard, tmp_path, **ENDING) as (server, access):
        theirs = a_grant(guard.base, "a-9", "r-9", expires_at=NOW + 3600, obtained_at=NOW)
        GrantStore(tmp_path).save(key_of(server.url), theirs)
        assert await access.token() == "a-9"
    assert not guard.refreshes


async def test_who_gives_up_does_not_lose_the_next_refresh_token(tmp_path: Path) -> None:
    """The call that the renewal was for is cancelled while the authorization server still thinks."""
    asked, goes_on = anyio.Event(), anyio.Event()
    guard = Authorization()

    async def slow(request: Request, reply: Reply) -> None:
        asked.set()
        await goes_on.wait()
        await guard(request, reply)

    async with held(guard, tmp_path, **ENDING) as (server, access):
        server.script = slow
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(access.token)
            await asked.wait()
            tasks.cancel_scope.cancel()
            goes_on.set()
        assert stored(access, tmp_path).refresh_token == "r-2"


async def test_a_renewal_that_hangs_does_not_hold_up_who_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "_GRACE", 0.05)
    asked = anyio.Event()

    async def silent(request: Request, reply: Reply) -> None:
        asked.set()
        await reply.gone()

    async with held(Authorization(), tmp_path, **ENDING) as (server, access):
        server.script = silent
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(access.token)
                await asked.wait()
                tasks.cancel_scope.cancel()


# -- what goes wrong


async def test_a_refusal_that_lasts_is_not_asked_for_again(tmp_path: Path) -> None:
    guard = Authorization(refresh_answer=(400, {"error": "invalid_grant", "error_description": "expired"}))
    async with held(guard, tmp_path, **ENDING) as (server, access):
        assert await access.token() == "a-1"  # it has not ended yet
        assert await access.replacement("a-1") is None
        again = Access("far", server.url, ClientRegistration(), GrantStore(tmp_path), now=lambda: NOW)
        again.reread()
        assert await again.token() == "a-1"
        denial = await access.denied(401, "Bearer")
    assert denial is not None and denial.ends and not denial.can_retry
    assert denial.code == "login_needed"
    assert all(own in denial.reason for own in (guard.base, "invalid_grant (expired)", "mcp-hub login far"))
    assert len(guard.refreshes) == 1


@pytest.mark.parametrize("answer", [(503, {}), (429, {}), (200, {"access_token": ""}), (200, []), (400, "what")])
async def test_a_failure_that_may_pass_leaves_the_login_and_waits_before_the_next_try(
    tmp_path: Path, answer: tuple[int, Any]
) -> None:
    guard = Authorization(refresh_answer=answer)
    async with held(guard, tmp_path, **ENDING) as (_, access):
        assert await access.token() == "a-1"
        assert await access.token() == "a-1"
        denial = await access.denied(401, "Bearer")
        assert denial is not None and denial.can_retry and denial.code == "login_failed"
        assert stored(access, tmp_path).refresh_token == "r-1"
        guard.refresh_answer = None
        await access.prepare()  # as the next start does
        assert await access.token() == "a-2"
    assert guard.refreshes == ["r-1", "r-1"]


async def test_a_damaged_file_is_no_login_and_the_reason_names_it(tmp_path: Path) -> None:
    async with held(Authorization(), tmp_path) as (_, access):
        path = GrantStore(tmp_path).path(access.key)
        for content in (b"", b"{", b'{"access_token": 1}', b"[]", b"\xff", b"x" * (300 << 10)):
            path.write_bytes(content)
            assert access.reread() and not access.is_granted
            denial = await access.denied(401, "Bearer")
            assert denial is not None
            assert denial.code == "login_needed" and str(path) in denial.reason and "mcp-hub login far" in denial.reason


async def test_nothing_is_asked_for_that_could_not_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    guard = Authorization()
    async with held(guard, tmp_path, **ENDING) as (_, access):
        monkeypatch.setattr(os, "fsync", full)
        assert await access.token() == "a-1"
        denial = await access.denied(401, "Bearer")
        assert denial is not None and "No space left on device" in denial.reason and denial.can_retry
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]
    assert not guard.refreshes


async def test_a_lock_that_is_kept_by_another_process_is_waited_for_no_longer_than_this(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "_LOCK", 0.1)
    guard = Authorization()
    async with held(guard, tmp_path, **ENDING) as (_, access):
        async with GrantStore(tmp_path).locked(access.key, 1):
            assert await access.token() == "a-1"
        denial = await access.denied(401, "Bearer")
        assert denial is not None and "another process keeps the lock" in denial.reason
    assert not guard.refreshes


async def test_what_a_killed_process_left_half_written_is_no_login_and_goes(tmp_path: Path) -> None:
    store = GrantStore(tmp_path)
    (tmp_path / ".k.0123.new").write_bytes(b" " * 100)
    assert store.load("k") is None
    store.save("k", a_grant("https://auth.example"))
    assert os.listdir(tmp_path) == ["k.json"]


# -- scopes


async def test_a_scope_that_is_missing_is_kept_for_the_next_login(tmp_path: Path) -> None:
    header = 'Bearer realm="x", error="insufficient_scope", scope="write"'
    async with held(Authorization(), tmp_path, scope="read", asked="read") as (_, access):
        denial = await access.denied(403, header)
        assert denial is not None and not denial.ends
        assert denial.code == "rights_missing" and "'write'" in denial.reason and "mcp-hub login far" in denial.reason
        assert stored(access, tmp_path).wanted == "write"
        GrantStore(tmp_path).save(access.key, replace(stored(access, tmp_path), asked="read write"))
        access.reread()
        denial = await access.denied(403, header)
        assert denial is not None and denial.code == "rights_missing"
        assert await access.denied(403, "") is None


# -- requests


@asynccontextmanager
async def client(access: Access) -> AsyncIterator[AuthorizedClient]:
    async with httpx2.AsyncClient() as http:
        yield AuthorizedClient(http, access)


async def post(http: AuthorizedClient, server: HttpServer) -> int:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
    async with http.stream("POST", server.url, content=body, headers={"accept": "*/*"}) as response:
        return response.status_code


async def test_a_refused_request_is_sent_once_more_with_another_token(tmp_path: Path) -> None:
    guard = Authorization()
    async with held(guard, tmp_path) as (server, access), client(access) as http:
        del guard.valid["a-1"]
        assert await post(http, server) == 200
        sent = [request.headers["authorization"] for request in server.seen if request.path == "/mcp"]
        assert sent == ["Bearer a-1", "Bearer a-2"]
        guard.valid.clear()
        guard.refreshing.clear()
        assert await post(http, server) == 401
        assert len([request for request in server.seen if request.path == "/mcp"]) == 3


async def test_a_goodbye_renews_nothing(tmp_path: Path) -> None:
    guard = Authorization()
    async with held(guard, tmp_path, **ENDING) as (server, access), client(access) as http:
        del guard.valid["a-1"]
        async with http.stream("DELETE", server.url) as response:
            assert response.status_code == 401
    assert not guard.refreshes


async def test_no_token_is_in_what_is_logged_shown_or_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    masking.forget()
    secret = "t0p-s3cr3t-token"
    guard = Authorization(refresh_answer=(400, {"error": "invalid_grant", "error_description": f"{secret}-r"}))
    fields = {**ENDING, "access": f"{secret}-a", "refresh": f"{secret}-r", "client_secret": f"{secret}-c"}
    async with held(guard, tmp_path, **fields) as (server, access), client(access) as http:
        assert await post(http, server) == 401
        denial = await access.denied(401, "Bearer")
        shown = [
            repr(access),
            repr(denial),
            repr(stored(access, tmp_path)),
            repr(ClientRegistration(client_secret=f"{secret}-c")),
        ]
        assert masking.hide(str(denial)).count(masking.MASK) == 1
    captured = capfd.readouterr()
    everything = "\n".join([*shown[:1], *shown[2:], caplog.text, masking.hide(captured.out + captured.err)])
    assert secret not in everything


async def test_a_login_without_a_person_is_made_when_it_is_needed(tmp_path: Path) -> None:
    made = []

    async def login(url: str, client: ClientRegistration, old: Grant | None, addresses: Addresses) -> Grant:
        made.append(old)
        if len(made) == 3:
            raise LoginFailed("invalid_client")
        return a_grant("https://auth.example", f"m-{len(made)}", None, obtained_at=NOW, expires_at=NOW + 5)

    robot = ClientRegistration(client_id="robot", client_secret="s", is_machine=True)
    access = Access("far", "https://far.example/mcp", robot, GrantStore(tmp_path), login=login, now=lambda: NOW)
    await access.prepare()
    assert await access.token() == "m-1"
    assert await access.replacement("m-1") == "m-2"
    assert await access.replacement("m-2") is None
    denial = await access.denied(401, "Bearer")
    assert denial is not None and denial.code == "login_failed" and "invalid_client" in denial.reason
