"""Plays the suite's scenarios of authorization: a hub whose one upstream is the suite's server, and its user.

The user runs `mcp-hub login` when, and only when, the hub says so, and follows the link over plain HTTP.
"""

import json
import tempfile
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
import msgspec

from mcp_hub.app.build import App, open_app
from mcp_hub.app.logins import client_of, grant_store
from mcp_hub.call import Call, Upstream
from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.errors import RpcError
from mcp_hub.types import CallId, Era, UpstreamState
from mcp_hub.upstreams.auth.grants import LoginFailed
from mcp_hub.upstreams.auth.login import log_in
from tests.unit.upstreams.function_calls import Recorder

ADVICE = 'run "mcp-hub login suite"'
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
"""The one that the suite wants to see where the scenario is about it."""
WAIT = 15.0
MOST_LOGINS = 6
"""More than any scenario allows: what stops earlier has to be the hub."""


@dataclass(frozen=True)
class Given:
    """What the suite tells its client."""

    url: str
    scenario: str
    protocol_version: str
    context: dict[str, Any]

    @classmethod
    def read(cls, line: bytes) -> "Given":
        told = json.loads(line)
        return cls(**{**told, "context": json.loads(told["context"] or "{}")})


async def settings_of(given: Given) -> dict[str, Any]:
    """What somebody who was given this client would write under `oauth`."""
    context = given.context
    if given.scenario == "auth/basic-cimd":
        return {"client_metadata_url": CLIENT_METADATA}
    if given.scenario == "auth/pre-registration":
        return {key: context[key] for key in ("client_id", "client_secret", "issuer")}
    if "client-credentials" in given.scenario:
        async with httpx2.AsyncClient(verify=False) as http:  # who has a client there knows the authorization server
            place = given.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
            issuer = (await http.get(place)).json()["authorization_servers"][0]
        known = {"grant": "client_credentials", "client_id": context["client_id"], "issuer": issuer}
        if "private_key_pem" in context:
            return {**known, "private_key": context["private_key_pem"], "algorithm": context["signing_algorithm"]}
        return {**known, "client_secret": context["client_secret"]}
    return {}


async def browse(page: str, issuer: str) -> None:
    """What a browser does whose user agrees at once."""
    async with httpx2.AsyncClient(verify=False) as http:
        sent_back = await http.get(page)
        await http.get(sent_back.headers["location"])


class User:
    """Somebody with a hub."""

    def __init__(self, app: App, loaded: Loaded, state: Path) -> None:
        self.app = app
        self.loaded = loaded
        self.store = grant_store(state)
        self.logins = 0

    async def obey(self, said: str) -> bool:
        """Logs in if that is what the hub wants."""
        if ADVICE not in said or self.logins == MOST_LOGINS:
            return False
        self.logins += 1
        server = self.loaded.settings.servers["suite"]
        client = client_of(server)
        assert server.url is not None and client is not None
        await log_in(server.url, client, self.store, browse, WAIT)
        return True

    @property
    def upstream(self) -> Upstream:
        return self.app.upstreams["suite"]

    async def settled(self, was: str | None = None) -> UpstreamState:
        """The state, as soon as it is a lasting one, with another reason than before."""
        while True:
            version = self.app.changes.version
            status = self.upstream.status()
            is_lasting = status.state in (UpstreamState.READY, UpstreamState.FAILED, UpstreamState.BACKING_OFF)
            if is_lasting and (was is None or status.reason != was or status.state is UpstreamState.READY):
                return status.state
            with anyio.move_on_after(0.2):
                await self.app.changes.wait(version)

    async def become_ready(self, note: Callable[[str], None]) -> bool:
        state = await self.settled()
        while state is not UpstreamState.READY:
            reason = self.upstream.status().reason or ""
            note(f"{state.value}: {reason}")
            restarts = self.upstream.status().restarts
            if not await self.obey(reason):
                return False
            while self.upstream.status().restarts == restarts:  # noqa: ASYNC110 - until the hub has noticed
                await anyio.sleep(0.01)
            state = await self.settled()
        return True

    async def call(self, note: Callable[[str], None]) -> None:
        """Calls the tool until it answers or the hub has no more advice."""
        for _ in range(MOST_LOGINS):
            try:
                await self.upstream.call(a_call(), Recorder())
                return
            except RpcError as refused:
                note(f"call: {refused}")
                if not await self.obey(str(refused)) and not await self.become_ready(note):
                    return


def a_call() -> Call:
    params = {"name": msgspec.Raw(b'"test-tool"'), "arguments": msgspec.Raw(b"{}")}
    return Call(CallId("st_1"), "suite", "tools/call", params, {}, "s", "p", Era.MODERN, {})


async def play(given: Given, note: Callable[[str], None]) -> int:
    """The exit code of the client: 1 where the hub had to give up."""
    with tempfile.TemporaryDirectory() as folder:
        server = {"url": given.url, "oauth": await settings_of(given)}
        text = json.dumps({"hub": {"store": {"type": "memory"}}, "servers": {"suite": server}})
        loaded = parse(text, "servers.json", {}, Path(folder))
        async with open_app(loaded, {"MCP_HUB_STATE_DIR": folder}) as app:
            user = User(app, loaded, Path(folder))
            try:
                if not await user.become_ready(note):
                    return 1
                await user.call(note)
                await user.call(note)
            except LoginFailed as failed:
                note(f"login: {failed}")
                return 1
    return 0


@asynccontextmanager
async def forwarded(folder: Path) -> AsyncIterator[str]:
    """Plays what `forward.py` brings, all at once; the path of the socket for it."""
    path = str(folder / "forward.sock")
    listener = await anyio.create_unix_listener(path)

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            line = b""
            while not line.endswith(b"\n"):
                line += await stream.receive()
            notes: list[str] = []
            code = 2
            try:
                with anyio.fail_after(WAIT + 3):
                    given = Given.read(line)
                    code = await play(given, notes.append) if given.scenario.startswith("auth/") else 0
            except Exception:
                notes.append(traceback.format_exc())
            with anyio.CancelScope(shield=True):
                await stream.send(json.dumps({"code": code, "noise": "\n".join(notes) + "\n"}).encode() + b"\n")

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield path
        tasks.cancel_scope.cancel()
