"""The hub's hold of a login: renewed in time and once, whoever shares it, and kept whatever happens."""

import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcp_hub import masking
from mcp_hub.upstreams.auth import access as access_module
from mcp_hub.upstreams.auth.access import Access, Denial, authorized
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, GrantStore
from tests.unit.upstreams.authorization import Authorization, a_grant
from tests.unit.wire.http_server import HttpServer, Reply, Request, serving
from tests.unit.wire.raw_lines import group
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio

NOW = 1_000_000.0
ENDING: dict[str, Any] = {"obtained_at": NOW - 3600, "expires_at": NOW + 30}
"""Of a token that is about to end."""


@dataclass
class Held:
    """A login to a server as it was stored before."""

    guard: Authorization
    server: HttpServer
    store: GrantStore
    access: Access

    @property
    def stored(self) -> Grant:
        grant = self.store.load(self.access.key)
        assert grant is not None
        return grant

    async def denied(self, status: int = 401, header: str = "Bearer") -> Denial:
        denial = await self.access.denied(status, header)
        assert denial is not None
        return denial

    async def lacks(self, scope: str | None) -> Denial:
        named = f', scope="{scope}"' if scope is not None else ""
        return await self.denied(403, f'Bearer realm="x", error="insufficient_scope"{named}')

    async def post(self) -> int:
        """The status of a request that carries the token."""
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
        return await self.send("POST", content=body, headers={"accept": "*/*"})

    async def send(self, method: str, **options: Any) -> int:
        async with httpx2.AsyncClient(verify=False) as http:
            async with authorized(http, self.access).stream(method, self.server.url, **options) as response:
                return response.status_code


@asynccontextmanager
async def held(
    folder: Path, guard: Authorization | None = None, now: float = NOW, **fields: Any
) -> AsyncIterator[Held]:
    """The refresh token `r-1` is good."""
    guard = guard or Authorization()
    guard.refreshing.add("r-1")
    guard.valid["a-1"] = ""
    guard.count = 1
    async with serving(guard) as server:
        store = GrantStore(folder)
        access = Access("far", server.url, ClientRegistration(), store, lambda: now)
        store.save(access.key, a_grant(server.url.removesuffix("/mcp"), **fields))
        await access.reread()
        with anyio.fail_after(WAIT):
            yield Held(guard, server, store, access)


@pytest.mark.parametrize(
    ("life", "left", "is_renewed"), [(3600, 61, False), (3600, 60, True), (100, 11, False), (100, 10, True)]
)
async def test_token_is_renewed_before_its_end(tmp_path: Path, life: float, left: float, is_renewed: bool) -> None:
    async with held(tmp_path, obtained_at=NOW + left - life, expires_at=NOW + left) as it:
        assert await it.access.token() == ("a-2" if is_renewed else "a-1")
    assert it.guard.refreshes == (["r-1"] if is_renewed else [])


async def test_a_token_without_an_end_is_kept_until_it_is_refused(tmp_path: Path) -> None:
    async with held(tmp_path) as it:
        assert await it.access.token() == "a-1"
        assert await it.access.replacement("a-1") == "a-2"
        assert await it.access.replacement("a-1") == "a-2"  # which the one before has brought
    assert it.guard.refreshes == ["r-1"]


async def test_the_next_refresh_token_is_kept_or_the_old_one_where_there_is_none(tmp_path: Path) -> None:
    async with held(tmp_path, Authorization(expires_in="7200"), **ENDING) as it:
        await it.access.token()
        assert (it.stored.refresh_token, it.stored.expires_at, it.stored.obtained_at) == ("r-2", NOW + 7200, NOW)
        it.guard.refreshable, it.guard.expires_in = False, None
        await it.access.replacement("a-2")
        assert (it.stored.access_token, it.stored.refresh_token, it.stored.expires_at) == ("a-3", "r-2", None)


async def test_a_renewal_is_for_the_same_server_and_says_who_asks(tmp_path: Path) -> None:
    async with held(tmp_path, **ENDING, client_secret="s3cr3t", token_auth="post") as it:
        await it.access.token()
    (form,) = it.guard.asked["/token"]
    assert form["resource"] == f"{it.guard.base}/mcp"
    assert (form["client_id"], form["client_secret"]) == ("registered", "s3cr3t")


@pytest.mark.processes
async def test_three_processes_renew_once(tmp_path: Path) -> None:
    async with held(tmp_path, obtained_at=0.0, expires_at=1.0) as it:
        argv = [sys.executable, "-m", "tests.unit.upstreams.renewing", str(tmp_path), it.server.url]
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
        assert said == [b"a-2\n"] * 3 and it.stored.refresh_token == "r-2"
    assert it.guard.refreshes == ["r-1"]


@pytest.mark.parametrize(("answer", "token"), [(None, "a-2"), ((503, {}), "a-1")], ids=["renewed", "busy"])
async def test_a_hundred_requests_ask_once_and_share_what_comes(tmp_path: Path, answer: Any, token: str) -> None:
    found = []
    async with held(tmp_path, Authorization(refresh_answer=answer), **ENDING) as it:
        async with anyio.create_task_group() as tasks:

            async def one() -> None:
                found.append(await it.access.token())

            for _ in range(100):
                tasks.start_soon(one)
    assert found == [token] * 100 and it.guard.refreshes == ["r-1"]


async def test_what_somebody_else_renewed_is_taken_without_asking(tmp_path: Path) -> None:
    async with held(tmp_path, **ENDING) as it:
        it.store.save(it.access.key, a_grant(it.guard.base, "a-9", "r-9", expires_at=NOW + 3600, obtained_at=NOW))
        assert await it.access.token() == "a-9"
    assert not it.guard.refreshes


async def test_who_gives_up_does_not_lose_the_next_refresh_token(tmp_path: Path) -> None:
    """The call that the renewal was for is cancelled while the authorization server still thinks."""
    asked, goes_on = anyio.Event(), anyio.Event()
    async with held(tmp_path, **ENDING) as it:

        async def slow(request: Request, reply: Reply) -> None:
            asked.set()
            await goes_on.wait()
            await it.guard(request, reply)

        it.server.script = slow
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.access.token)
            await asked.wait()
            tasks.cancel_scope.cancel()
            goes_on.set()
        assert it.stored.refresh_token == "r-2"


async def test_renewal_that_hangs_holds_nobody_up_who_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "_GRACE", 0.05)
    asked = anyio.Event()

    async def silent(request: Request, reply: Reply) -> None:
        asked.set()
        await reply.gone()

    async with held(tmp_path, **ENDING) as it:
        it.server.script = silent
        with anyio.fail_after(240):
            async with group() as tasks:
                tasks.start_soon(it.access.token)
                await asked.wait()


async def test_a_refusal_that_lasts_is_not_asked_for_again(tmp_path: Path) -> None:
    guard = Authorization(refresh_answer=(400, {"error": "invalid_grant", "error_description": "expired"}))
    async with held(tmp_path, guard, **ENDING) as it:
        assert await it.access.token() == "a-1"  # it has not ended yet
        assert await it.access.replacement("a-1") is None
        again = Access("far", it.server.url, ClientRegistration(), it.store, lambda: NOW)
        await again.reread()
        assert await again.token() == "a-1"
        denial = await it.denied()
    assert denial.ends and not denial.can_retry and denial.code == "login_needed"
    assert all(own in denial.reason for own in (guard.base, "invalid_grant (expired)", "mcp-hub login far"))
    assert len(guard.refreshes) == 1


@pytest.mark.parametrize("answer", [(503, {}), (429, {}), (200, {"access_token": ""}), (200, []), (400, "what")])
async def test_passing_failure_leaves_the_login_and_waits_before_a_try(tmp_path: Path, answer: tuple[int, Any]) -> None:
    async with held(tmp_path, Authorization(refresh_answer=answer), **ENDING) as it:
        assert [await it.access.token() for _ in range(2)] == ["a-1", "a-1"]
        denial = await it.denied()
        assert denial.can_retry and denial.code == "login_failed" and it.stored.refresh_token == "r-1"
        it.guard.refresh_answer = None
        await it.access.prepare()  # as the next start does
        assert await it.access.token() == "a-2"
    assert it.guard.refreshes == ["r-1", "r-1"]


async def test_a_damaged_file_is_no_login_and_the_reason_names_it(tmp_path: Path) -> None:
    async with held(tmp_path) as it:
        path = it.store.path(it.access.key)
        whole = path.read_bytes()
        for content in (b"", b"{", b'{"access_token": 1}', b"[]", b"\xff", b"x" * (300 << 10)):
            path.write_bytes(content)
            assert await it.access.reread() and not it.access.is_granted and not await it.access.reread()
            denial = await it.denied()
            assert denial.code == "login_needed" and str(path) in denial.reason and "mcp-hub login far" in denial.reason
            path.write_bytes(whole)
            assert await it.access.reread() and it.access.is_granted


async def test_nothing_is_asked_for_that_could_not_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    async with held(tmp_path, **ENDING) as it:
        monkeypatch.setattr(os, "fsync", full)
        assert await it.access.token() == "a-1"
        denial = await it.denied()
        assert "No space left on device" in denial.reason and denial.can_retry
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]
    assert not it.guard.refreshes


async def test_lock_of_another_process_is_waited_for_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "_LOCK", 0.1)
    async with held(tmp_path, **ENDING) as it:
        async with it.store.locked(it.access.key, 1):
            assert await it.access.token() == "a-1"
        assert "another process keeps the lock" in (await it.denied()).reason
    assert not it.guard.refreshes


async def test_what_a_killed_process_left_half_written_is_no_login_and_goes(tmp_path: Path) -> None:
    store = GrantStore(tmp_path)
    (tmp_path / ".k.0123.new").write_bytes(b" " * 100)
    assert store.load("k") is None
    store.save("k", a_grant("https://auth.example"))
    assert os.listdir(tmp_path) == ["k.json"]


async def test_a_scope_that_is_missing_is_kept_for_the_next_login(tmp_path: Path) -> None:
    async with held(tmp_path, scope="read", requested="read") as it:
        denial = await it.lacks("write")
        assert denial.code == "rights_missing" and not denial.ends and it.stored.missing == "write"
        assert "'write'" in denial.reason and "mcp-hub login far" in denial.reason
        it.store.save(it.access.key, replace(it.stored, requested="read write"))
        await it.access.reread()
        assert "may not have them" in (await it.lacks("write")).reason
        assert await it.access.denied(403, "") is None


async def test_scopes_that_calls_have_missed_one_after_the_other_are_all_kept_in_their_order(tmp_path: Path) -> None:
    async with held(tmp_path, scope="read", requested="read") as it:
        for scope in ("write", "admin write", None, "", "  ", "audit"):
            await it.lacks(scope)
        assert it.stored.missing == "write admin audit"


async def test_of_too_many_or_too_long_scopes_the_newest_are_kept(tmp_path: Path) -> None:
    async with held(tmp_path) as it:
        for number in range(35):
            await it.lacks(f"also r{number} s{number}")
        wanted = str(it.stored.missing).split()
        assert len(wanted) == 64 and wanted[-1] == "s34" and len(set(wanted)) == 64
        await it.lacks("x" * 5000 + " write")
        assert str(it.stored.missing).split() == [*wanted[1:], "write"]
        for letter in "abc":
            await it.lacks(letter * 2000)
        assert it.stored.missing == f"{'b' * 2000} {'c' * 2000}"


async def test_a_refused_request_is_sent_once_more_with_another_token(tmp_path: Path) -> None:
    async with held(tmp_path) as it:
        del it.guard.valid["a-1"]
        assert await it.post() == 200
        sent = [request.headers["authorization"] for request in it.server.seen if request.path == "/mcp"]
        assert sent == ["Bearer a-1", "Bearer a-2"]
        it.guard.valid.clear()
        it.guard.refreshing.clear()
        assert await it.post() == 401
        assert len([request for request in it.server.seen if request.path == "/mcp"]) == 3


async def test_a_goodbye_renews_nothing(tmp_path: Path) -> None:
    async with held(tmp_path, **ENDING) as it:
        del it.guard.valid["a-1"]
        assert await it.send("DELETE") == 401
    assert not it.guard.refreshes


async def test_no_token_is_in_what_is_logged_shown_or_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    masking.forget()
    secret = "t0p-s3cr3t-token"
    guard = Authorization(refresh_answer=(400, {"error": "invalid_grant", "error_description": f"{secret}-r"}))
    fields = {**ENDING, "access": f"{secret}-a", "refresh": f"{secret}-r", "client_secret": f"{secret}-c"}
    async with held(tmp_path, guard, **fields) as it:
        assert await it.post() == 401
        denial = await it.denied()
        shown = [repr(it.access), repr(it.stored), repr(ClientRegistration(client_secret=f"{secret}-c"))]
        assert masking.hide(str(denial)).count(masking.MASK) == 1
    captured = capfd.readouterr()
    everything = "\n".join([*shown, caplog.text, masking.hide(captured.out + captured.err)])
    assert secret not in everything
