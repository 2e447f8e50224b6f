"""Whether the hub lives and can answer: `/livez`, `/healthz`, `/readyz`, and with `?verbose` all that is known of it.

Probes have no token, so a bare answer is for everybody and says one word. Servers, reasons and the last reload are for
whoever could list the tools: with tokens configured that takes one, and who is bound to a profile sees its servers
only. Source: reliability.md §3, "Health is told truthfully".
"""

from collections.abc import Collection, Mapping
from typing import Final, Literal, Protocol

import msgspec

from mcp_hub.fronts.endpoints import Headers, Visit, Who
from mcp_hub.fronts.exchange import Scope, Send
from mcp_hub.fronts.guard import Refusal
from mcp_hub.fronts.http_request import json_error
from mcp_hub.fronts.rest_bodies import LastReload, ServerInfo
from mcp_hub.fronts.rest_http import respond
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST
from mcp_hub.types import UpstreamState

__all__ = ["Health", "Reason", "StoreState", "Watched", "unready"]

StoreState = Literal["durable", "memory", "out_of_use"]
"""Where streams go: to a file, to memory because that is configured, or to memory because the file cannot be used."""

_GIVEN_UP: Final = (UpstreamState.FAILED, UpstreamState.INCOMPATIBLE)
_HEADERS: Final = ((b"cache-control", b"no-store"),)


class Reason(msgspec.Struct, frozen=True):
    """Why the hub is not ready: a word for programs and a sentence, without names."""

    code: str
    detail: str


class Watched(Protocol):
    """The hub that is asked about."""

    @property
    def is_settled(self) -> bool:
        """Whether a list can be answered without waiting for servers that start for the first time."""
        ...

    @property
    def store(self) -> StoreState: ...

    def states(self) -> Mapping[str, UpstreamState]:
        """Of the servers that are enabled."""
        ...

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        """Everything about the servers of a profile, None for all."""
        ...

    def last_reload(self, profile: str | None) -> LastReload | None:
        """What came of the last reload; its findings are not for who is bound to a profile."""
        ...


class Report(msgspec.Struct, omit_defaults=True):
    """The details of `?verbose`."""

    status: str
    version: str
    store: StoreState
    servers: list[ServerInfo]
    reasons: list[Reason] = []
    reload: LastReload | None = None


def unready(
    *, is_stopping: bool, is_settled: bool, store: StoreState, states: Collection[UpstreamState]
) -> list[Reason]:
    """Why clients should not be sent here; nothing if they should.

    One server does not count: a hub is there to answer without it. It is not ready only if there is none that works or
    may yet, of those that are enabled; a hub without any can still serve tools that clients execute.
    """
    reasons = []
    if is_stopping:
        reasons.append(Reason("stopping", "the hub is stopping"))
    if not is_settled:
        reasons.append(Reason("starting", "servers are starting that have never been listed (hub.first_list_wait)"))
    if store == "out_of_use":
        reasons.append(Reason("store_out_of_use", "the file of streams cannot be used: they are in memory only"))
    if states and all(state in _GIVEN_UP for state in states):
        reasons.append(Reason("no_server", f"all {len(states)} enabled servers have failed"))
    return reasons


class Health:
    """The routes. `close` when the hub begins to stop: from then on it is not ready."""

    def __init__(self, watched: Watched, version: str) -> None:
        self._watched = watched
        self._version = version
        self._is_stopping = False

    def close(self) -> None:
        self._is_stopping = True

    @property
    def routes(self) -> Mapping[str, Visit]:
        return {"/livez": self._livez, "/healthz": self._healthz, "/readyz": self._readyz}

    def reasons(self) -> list[Reason]:
        """Why the hub is not ready; nothing if it is."""
        own = self._watched
        return unready(
            is_stopping=self._is_stopping,
            is_settled=own.is_settled,
            store=own.store,
            states=own.states().values(),
        )

    async def _livez(self, scope: Scope, send: Send, headers: Headers, who: Who) -> None:
        """That this is answered is the answer: the event loop turns."""
        await self._answer(scope, send, headers, who, "alive", [])

    async def _healthz(self, scope: Scope, send: Send, headers: Headers, who: Who) -> None:
        reasons = [reason for reason in self.reasons() if reason.code == "store_out_of_use"]
        await self._answer(scope, send, headers, who, "unhealthy" if reasons else "healthy", reasons)

    async def _readyz(self, scope: Scope, send: Send, headers: Headers, who: Who) -> None:
        reasons = self.reasons()
        await self._answer(scope, send, headers, who, "not ready" if reasons else "ready", reasons)

    async def _answer(
        self, scope: Scope, send: Send, headers: Headers, who: Who, status: str, reasons: list[Reason]
    ) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, headers=((b"allow", b"GET, HEAD"),))
            return
        code, is_json = 503 if reasons else 200, b"application/json" in headers.get(b"accept", b"")
        body = msgspec.json.encode({"status": status}) if is_json else f"{status}\n".encode()
        if _is_verbose(scope["query_string"]):
            caller = await who()
            if isinstance(caller, Refusal):
                refusal = json_error(None, INVALID_REQUEST, f"{caller.reason} for details")
                await respond(send, caller.status, refusal, caller.headers)
                return
            body, is_json = msgspec.json.encode(await self._report(status, reasons, caller.profile)), True
        media = b"application/json" if is_json else b"text/plain; charset=utf-8"
        await respond(_bodiless(send) if scope["method"] == "HEAD" else send, code, body, _HEADERS, media)

    async def _report(self, status: str, reasons: list[Reason], profile: str | None) -> Report:
        own = self._watched
        return Report(
            status, self._version, own.store, await own.servers(profile), reasons, own.last_reload(profile)
        )  # fmt: skip


def _is_verbose(query: bytes) -> bool:
    return any(part.partition(b"=")[0] == b"verbose" for part in query.split(b"&"))


def _bodiless(send: Send) -> Send:
    """As HEAD wants it: the head of the whole response and nothing else."""

    async def without(message: dict[str, object]) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return without  # type: ignore[return-value]  # messages are dicts here, see `respond`
