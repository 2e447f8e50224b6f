"""A whole hub with a remote server that wants a login: what it says, and that it goes on once there is one."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest

from mcp_hub.app import logins
from mcp_hub.app.build import App, open_app
from mcp_hub.app.logins import client_of, grant_store
from mcp_hub.call import Upstream
from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.plan import plan
from mcp_hub.errors import HttpRefused, UpstreamUnavailable
from mcp_hub.types import Era, UpstreamState
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant
from mcp_hub.upstreams.auth.login import log_in, log_out
from mcp_hub.upstreams.supervision import lifecycle
from tests.unit.upstreams.authorization import Authorization, a_grant, browse, key_of
from tests.unit.upstreams.function_calls import Recorder
from tests.unit.upstreams.remote import Remote, answering
from tests.unit.upstreams.test_http_connection import OldMcp
from tests.unit.upstreams.test_http_supervision import call
from tests.unit.wire.http_server import HttpServer, Reply, Request, serving
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio

ADVICE = 'run "mcp-hub login far"'


@pytest.fixture(autouse=True)
def hubs_look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "_LOOK", 0.02)
    monkeypatch.setattr(lifecycle, "_BASE", 0.05)


@dataclass
class Hub:
    """A running hub with the one server `far`, and its user."""

    app: App
    server: HttpServer
    state: Path
    loaded: Loaded

    @property
    def sent(self) -> set[str | None]:
        """The credentials that the server was sent."""
        return {request.headers.get("authorization") for request in self.server.seen}

    @property
    def far(self) -> Upstream:
        return self.app.upstreams["far"]

    async def until(self, state: UpstreamState, old: Upstream | None = None) -> str:
        """Waits for the state, of another than the `old` one if that is given; its reason."""
        with anyio.fail_after(WAIT):
            while (status := self.far.status()).state is not state or self.far is old:
                await self.app.changes.wait(self.app.changes.version)
        return str(status.reason)

    async def log_in(self) -> None:
        client = client_of(self.loaded.settings.servers["far"])
        assert client is not None
        await log_in(self.server.url, client, grant_store(self.state), browse, WAIT)

    async def call(self) -> None:
        with anyio.fail_after(WAIT):
            await self.far.call(msgspec.structs.replace(call(), era=Era.HANDSHAKE), Recorder())


@asynccontextmanager
async def hub(script: Any, state: Path, prior: Callable[[str], Grant] | None = None, **far: Any) -> AsyncIterator[Hub]:
    """`prior` makes the login that is stored already, `far` has more settings of the server."""
    async with serving(script) as server:
        base = server.url.removesuffix("/mcp")
        if prior is not None:
            grant_store(state).save(key_of(server.url), prior(base))
        if "oauth" in far:
            far["oauth"] = {"issuer": base, **far["oauth"]}
        document = {"hub": {"store": {"type": "memory"}}, "servers": {"far": {"url": server.url, **far}}}
        loaded = parse(json.dumps(document), "servers.json", {}, state)
        async with open_app(loaded, {"MCP_HUB_STATE_DIR": str(state)}) as app:
            yield Hub(app, server, state, loaded)


@asynccontextmanager
async def logged_in(guard: Authorization, state: Path) -> AsyncIterator[Hub]:
    """A hub whose user has logged in to `far`."""
    async with hub(guard, state) as it:
        await it.until(UpstreamState.FAILED)
        await it.log_in()
        await it.until(UpstreamState.READY)
        yield it


ROBOT: Final = {"grant": "client_credentials", "client_id": "robot", "client_secret": "s3cr3t-robot"}
"""Logs in by itself."""


@pytest.mark.parametrize("remote", [Remote(modern=True), Remote()], ids=["modern", "handshake"])
async def test_a_server_that_wants_a_login_says_so_and_comes_up_when_there_is_one(
    tmp_path: Path, remote: Remote
) -> None:
    guard = Authorization(remote)
    async with hub(guard, tmp_path) as it:
        assert await it.until(UpstreamState.FAILED) == f"{guard.base} requires a login: {ADVICE} (HTTP 401)"
        with pytest.raises(UpstreamUnavailable, match=ADVICE):
            await it.call()
        await it.log_in()
        await it.until(UpstreamState.READY)
        await it.call()
    calls = [request for request in it.server.seen if request.path == "/mcp" and request.rpc == "tools/call"]
    assert [request.headers["authorization"] for request in calls] == ["Bearer a-1"]


async def test_stored_login_is_there_at_the_next_start_and_stays_when_limits_change(tmp_path: Path) -> None:
    async with hub(Authorization(valid={"a-1": ""}), tmp_path, a_grant, auth="oauth") as it:
        await it.until(UpstreamState.READY)
    assert it.sent == {"Bearer a-1"}
    async with hub(Authorization(valid={"a-1": ""}), tmp_path, a_grant, auth="oauth") as it:
        await it.until(UpstreamState.READY)
        far, access, settings = it.far, it.app.logins._access_of["far"], it.loaded.settings
        server = settings.servers["far"].model_copy(update={"start_timeout": 5.0})
        changed = settings.model_copy(update={"servers": {"far": server}})
        change = plan(settings, changed)
        it.app.operations.applier.apply(changed, change, ())
        assert change.adjusted == ("far",) and it.far is far and it.app.logins._access_of["far"] is access


async def test_a_login_that_has_ended_ends_the_connection_with_its_reason(tmp_path: Path) -> None:
    guard = Authorization()
    async with logged_in(guard, tmp_path) as it:
        guard.valid.clear()
        guard.refresh_answer = 400, {"error": "invalid_grant"}
        with pytest.raises(HttpRefused, match=f"no longer accepts the login, and .* invalid_grant: {ADVICE}"):
            await it.call()
        assert (await it.until(UpstreamState.FAILED)).endswith(f"{ADVICE} (HTTP 401)")
        guard.refresh_answer = None
        await it.log_in()
        await it.until(UpstreamState.READY)
        await it.call()


@pytest.mark.slow
@pytest.mark.proof
async def test_an_authorization_server_that_is_down_is_tried_again(tmp_path: Path) -> None:
    guard = Authorization()
    async with logged_in(guard, tmp_path) as it:
        guard.valid.clear()
        guard.refresh_answer = 503, {}
        with pytest.raises(HttpRefused, match="did not renew the login: HTTP 503"):
            await it.call()
        assert "HTTP 503" in await it.until(UpstreamState.BACKING_OFF)
        guard.refresh_answer = None
        await it.until(UpstreamState.READY)
        await it.call()


async def test_more_rights_are_asked_for_at_the_next_login_without_losing_those_there_are(tmp_path: Path) -> None:
    guard = Authorization(scope="read", needs="write")
    async with logged_in(guard, tmp_path) as it:
        with pytest.raises(HttpRefused, match=f"requires more rights than the login has .*write.*: {ADVICE}"):
            await it.call()
        assert it.far.status().state is UpstreamState.READY
        await it.log_in()
        await it.call()
        assert it.far.status().restarts == 1  # the first login's
    assert [asked["scope"] for asked in guard.asked["/authorize"]] == ["read", "read write"]


async def test_one_tool_that_wants_a_login_takes_no_other_away(tmp_path: Path) -> None:
    """A server that is open to everybody but for one tool."""
    guard = Authorization()
    guard.valid[""] = ""

    async def script(request: Request, reply: Reply) -> None:
        is_guarded = request.path == "/mcp" and request.rpc == "tools/call"
        if is_guarded and request.headers.get("authorization") not in ("Bearer a-1", "Bearer a-2"):
            return await reply.status(401, www_authenticate="Bearer")
        await guard(request, reply)

    async with hub(script, tmp_path) as it:
        await it.until(UpstreamState.READY)
        with pytest.raises(HttpRefused, match=f"requires a login: {ADVICE}"):
            await it.call()
        assert it.far.status().state is UpstreamState.READY
        before = it.far
        await it.log_in()
        await it.until(UpstreamState.READY, before)
        await it.call()


async def test_who_logs_out_is_logged_out(tmp_path: Path) -> None:
    async with logged_in(Authorization(), tmp_path) as it:
        await log_out(it.server.url, ClientRegistration(), grant_store(tmp_path))
        assert ADVICE in await it.until(UpstreamState.FAILED)


@pytest.mark.parametrize(("does", "is_modern"), [("log in", True), ("log out", False)])
async def test_a_call_under_way_ends_as_it_would_when_somebody_logs_in_or_out(
    tmp_path: Path, does: str, is_modern: bool
) -> None:
    guard, ended = Authorization(Remote(modern=is_modern)), []
    came, may_end = anyio.Event(), anyio.Event()
    if does == "log in":
        guard.valid[""] = ""  # it is open to everybody

    async def answer(request: Request, reply: Reply) -> None:
        came.set()
        with anyio.fail_after(WAIT):
            await may_end.wait()
        await reply.result(request, {"content": []})

    guard.remote.does["tools/call"] = answer
    begun = logged_in if does == "log out" else hub
    async with begun(guard, tmp_path) as it, anyio.create_task_group() as tasks:
        await it.until(UpstreamState.READY)
        old = it.far

        async def call_it() -> None:
            with anyio.fail_after(WAIT):
                ended.append(await old.call(call(), Recorder()))

        tasks.start_soon(call_it)
        with anyio.fail_after(WAIT):
            await came.wait()
        if does == "log in":
            await it.log_in()
            await it.until(UpstreamState.READY, old)
        else:
            await log_out(it.server.url, ClientRegistration(), grant_store(tmp_path))
            await it.until(UpstreamState.FAILED, old)
        assert not ended and old.status().state is UpstreamState.DRAINING
        may_end.set()
    assert len(ended) == 1


async def test_the_hub_logs_in_by_itself_where_it_was_given_what_it_takes(tmp_path: Path) -> None:
    guard = Authorization(refreshable=False, expires_in=1)
    async with hub(guard, tmp_path, oauth=ROBOT, era="handshake") as it:
        assert "s3cr3t-robot" in it.loaded.secrets
        await it.until(UpstreamState.READY)
        await it.call()
        guard.valid.clear()
        await it.call()
        guard.valid.clear()
        guard.token_answer = 401, {"error": "invalid_client"}
        with pytest.raises(HttpRefused, match='does not accept the login of "oauth"'):
            await it.call()
        await it.until(UpstreamState.FAILED)
    written = "".join(path.read_text() for path in (tmp_path / "oauth").glob("*.json"))
    assert "s3cr3t-robot" not in written
    assert not [form for form in guard.asked["/token"] if form["grant_type"] != "client_credentials"]


@pytest.mark.slow
@pytest.mark.proof
async def test_a_hub_that_logs_in_by_itself_tries_again_where_the_authorization_server_is_busy(tmp_path: Path) -> None:
    guard, status = Authorization(token_answer=(408, {"error": "invalid_request"}), refreshable=False), 408
    async with hub(guard, tmp_path, oauth=ROBOT) as it:
        reason = await it.until(UpstreamState.BACKING_OFF)
        assert f"{guard.base} did not give a token: HTTP {status}" in reason
        guard.token_answer = None
        await it.until(UpstreamState.READY)
        guard.valid.clear()
        guard.token_answer = status, b"what"
        with pytest.raises(HttpRefused, match=f"did not give a token: HTTP {status}"):
            await it.call()
        await it.until(UpstreamState.BACKING_OFF)
        guard.token_answer = None
        await it.until(UpstreamState.READY)
        await it.call()


@pytest.mark.parametrize(
    ("place", "answer"), [("_metadata", (200, b"<html>down")), ("_metadata", (404, {})), ("_resource", (503, {}))]
)
async def test_metadata_that_cannot_be_had_now_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, answer: tuple[int, Any]
) -> None:
    guard = Authorization(refreshable=False)
    monkeypatch.setattr(guard, place, lambda: answer)
    async with hub(guard, tmp_path, oauth=ROBOT) as it:
        await it.until(UpstreamState.BACKING_OFF)
        monkeypatch.undo()
        await it.until(UpstreamState.READY)


async def test_a_refusal_that_would_come_again_is_final_for_who_logs_in_by_itself(tmp_path: Path) -> None:
    guard = Authorization(token_answer=(401, {"error": "invalid_client", "error_description": "who?"}))
    async with hub(guard, tmp_path, oauth=ROBOT) as it:
        assert (await it.until(UpstreamState.FAILED)).endswith(
            f": {guard.base} refused to give a token: invalid_client (who?)"
        )
    guard = Authorization(metadata={"issuer": "https://other.example"})
    async with hub(guard, tmp_path / "other", oauth=ROBOT) as it:
        assert "issuer mismatch" in await it.until(UpstreamState.FAILED)


async def test_credentials_of_the_configuration_are_sent_and_a_bare_refusal_names_both_ways_in(tmp_path: Path) -> None:
    async with hub(Authorization(), tmp_path, a_grant, bearer="wrong-token") as it:
        assert 'credentials of "bearer" or "headers"' in await it.until(UpstreamState.FAILED)
    assert it.sent == {"Bearer wrong-token"}
    async with hub(answering(403), tmp_path) as it:
        reason = await it.until(UpstreamState.FAILED)
    assert reason.endswith(f'wants credentials: {ADVICE}, or set "bearer" or "headers" (HTTP 403)')


class GuardedOld(OldMcp):
    """A server of the HTTP+SSE transport that wants the token `a-1`."""

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.headers.get("authorization") != "Bearer a-1":
            return await reply.status(401, www_authenticate="Bearer")
        await super().__call__(request, reply)
        if request.rpc == "tools/list":
            await self.say(id=request.message["id"], result={"tools": []})


async def test_deprecated_transport_takes_logins_and_is_tried_again_while_nobody_can_renew(tmp_path: Path) -> None:
    async with hub(GuardedOld(), tmp_path, type="sse") as it:
        assert ADVICE in await it.until(UpstreamState.FAILED)
        grant_store(tmp_path).save(key_of(it.server.url), a_grant("https://auth.example"))
        await it.until(UpstreamState.READY)

    def nowhere(base: str) -> Grant:
        return a_grant("http://127.0.0.1:1", "a-0", expires_at=1.0)

    async with hub(GuardedOld(), tmp_path, nowhere, type="sse") as it:
        assert "could not be asked" in await it.until(UpstreamState.BACKING_OFF)
