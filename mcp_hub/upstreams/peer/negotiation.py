"""Settles the era of a server: probe, fall back, remember.

A modern server answers `server/discover` or refuses the version by name; anything else means the handshake era
(2026-07-28, transports/stdio "Backward Compatibility"). The probe is given up without a cancellation, which must not
precede `initialize`.
"""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import msgspec

from mcp_hub.errors import HttpRefused, RpcError, StartFailed, UpstreamLost
from mcp_hub.masking import hide_head
from mcp_hub.protocol import eras
from mcp_hub.protocol.jsonrpc import rpc_errors
from mcp_hub.protocol.jsonrpc.envelope import Envelope, notification_frame, object_bytes, read_as
from mcp_hub.types import Era, JsonObject, RawJson
from mcp_hub.upstreams.peer.era_cache import KnownEras
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import CLIENT_INFO, CONNECTION_LOST, PeerInfo
from mcp_hub.wire.base import Pending

PROBE_SECONDS: Final = 3.0
"""Seconds that a server may take to answer the probe, once it runs; after that it is initialised."""
_LONGEST_SAID: Final = 100
"""Characters that an error shows of a bad version."""
_MODERN_CODES: Final = frozenset(
    {rpc_errors.HEADER_MISMATCH, rpc_errors.MISSING_CAPABILITY, rpc_errors.UNSUPPORTED_VERSION}
)
_VERSION: Final = re.compile(r"[!-~]{1,64}")
"""A version: over HTTP it goes into a header of every request."""
_REFUSALS: Final = (400, 404, 405)
"""Statuses by which servers refuse an unknown request without a message."""
_CLIENT_FAULTS: Final = frozenset({rpc_errors.INVALID_REQUEST, rpc_errors.METHOD_NOT_FOUND, rpc_errors.INVALID_PARAMS})
"""Codes by which servers refuse a request that their era does not have; other errors may pass."""


class Incompatible(StartFailed):
    """The server lacks the wanted version or era."""


class _InitializeRefused(StartFailed):
    """The answer to `initialize` was an error or not MCP."""


class AnotherProcess(StartFailed):
    """Only another process can take another first request.

    `is_spent`: it may take `initialize`, but not after `server/discover`, at which it may have ended.
    """

    def __init__(self, code: str, message: str, *, is_spent: bool = False) -> None:
        super().__init__(code, message)
        self.is_spent = is_spent


async def _modern() -> Era:
    return Era.MODERN


def _forgotten(era: Era, speaks: bool) -> None:
    """Learns nothing."""


def _unnoticed(info: PeerInfo) -> None:
    """Notes nothing."""


async def _at_once() -> None:
    """Remote servers run already."""


class Terms(msgspec.Struct, frozen=True):
    """The way to settle the era: `only` this one, else by `eras`, else by probing.

    `prefer` decides between two; `learn` receives findings, `probed` the probe's. `probe`: its seconds from when
    `alive` returns.
    """

    only: Era | None = None
    eras: KnownEras = KnownEras()
    prefer: Callable[[], Awaitable[Era]] = _modern
    learn: Callable[[Era, bool], object] = _forgotten
    probe: float = PROBE_SECONDS
    alive: Callable[[], Awaitable[object]] = _at_once
    probed: Callable[[PeerInfo], object] = _unnoticed


async def negotiate(peer: Peer, terms: Terms) -> PeerInfo:
    """Settles era and version. Raises `StartFailed`, also `AnotherProcess`."""
    if terms.only is not None:
        return await _only(peer, terms.only, terms)
    if terms.eras.are_both:
        return await _preferred(peer, terms)
    if Era.HANDSHAKE in terms.eras.speaks:
        try:
            return await _ask(peer, Era.HANDSHAKE, terms)
        except _IsModern:
            return await _ask(peer, Era.MODERN, terms)
    return await _found_out(peer, terms)


async def _ask(peer: Peer, era: Era, terms: Terms, *, is_locked: bool = False) -> PeerInfo:
    """With `is_locked` a refusal proves nothing: an earlier request may have fixed the era."""
    try:
        info = await (_discover(peer) if era is Era.MODERN else _initialize(peer))
    except StartFailed as exc:
        if not is_locked and _is_refused(exc):
            terms.learn(era, False)
        raise
    terms.learn(era, True)
    return info


async def _only(peer: Peer, era: Era, terms: Terms) -> PeerInfo:
    try:
        return await _ask(peer, era, terms)
    except _OtherEra as exc:
        raise (Incompatible if exc.is_certain else StartFailed)(*exc.cause) from None


async def _preferred(peer: Peer, terms: Terms) -> PeerInfo:
    """Raises `AnotherProcess` over a pipe: servers of the official SDK stay in the first request's era."""
    era = await terms.prefer()
    try:
        return await _ask(peer, era, terms)
    except StartFailed as exc:
        if not _is_refused(exc):
            raise
        if peer.wire.is_pipe:
            raise AnotherProcess(*exc.cause) from None
    return await _ask(peer, _opposite(era), terms)


async def _found_out(peer: Peer, terms: Terms) -> PeerInfo:
    """Raises `AnotherProcess` if a slow server then refuses to initialize."""
    is_locked = False
    try:
        info = await (_discover(peer) if Era.MODERN in terms.eras.speaks else _probed(peer, terms))
        is_locked = info is None and peer.wire.is_pipe
    except _NotModern as exc:
        info = None
        if exc.is_certain:
            terms.learn(Era.MODERN, False)
    except StartFailed:
        _blame_probe(peer, terms)
        raise
    if info is not None:
        terms.learn(Era.MODERN, True)
        terms.probed(info)
        if Era.HANDSHAKE in terms.eras.refuses or await terms.prefer() is Era.MODERN:
            return info
        return await _turned(peer, info, terms)
    try:
        return await _ask(peer, Era.HANDSHAKE, terms, is_locked=is_locked)
    except _IsModern as exc:  # it was only slow to answer the probe
        if is_locked and await terms.prefer() is Era.HANDSHAKE:
            terms.learn(Era.MODERN, True)
            raise AnotherProcess(*exc.cause, is_spent=True) from None
        return await _ask(peer, Era.MODERN, terms)
    except StartFailed:
        _blame_probe(peer, terms)
        raise


async def _turned(peer: Peer, discovered: PeerInfo, terms: Terms) -> PeerInfo:
    """Tries `initialize` on the probed connection.

    Raises `AnotherProcess` over a pipe: servers of the official SDK stay in the first request's era.
    """
    try:
        with anyio.move_on_after(terms.probe):
            info = await _initialize(peer)
            terms.learn(Era.HANDSHAKE, True)
            return info
    except StartFailed as exc:
        if not peer.wire.is_pipe and peer.ending.closed.is_set():
            raise
        if not peer.wire.is_pipe and _is_refused(exc):
            terms.learn(Era.HANDSHAKE, False)
    if peer.wire.is_pipe:
        raise AnotherProcess("handshake_failed", "it does not take initialize after server/discover", is_spent=True)
    return peer.settle(discovered)


def is_initialize_refused(exc: StartFailed) -> bool:
    """Whether the server answered `initialize` with an error."""
    return isinstance(exc, _InitializeRefused)


def _is_refused(exc: StartFailed) -> bool:
    if isinstance(exc, _OtherEra):
        return exc.is_certain
    return isinstance(exc, _InitializeRefused | Incompatible) and exc.code in ("not_mcp", "era_mismatch")


def _opposite(era: Era) -> Era:
    return Era.HANDSHAKE if era is Era.MODERN else Era.MODERN


async def _probed(peer: Peer, terms: Terms) -> PeerInfo | None:
    sent: list[Pending] = []
    results: list[PeerInfo | StartFailed] = []
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            try:
                results.append(await _discover(peer, sent.append))
            except StartFailed as exc:
                results.append(exc)
            tasks.cancel_scope.cancel()

        tasks.start_soon(ask)
        await terms.alive()
        await anyio.sleep(terms.probe)
        tasks.cancel_scope.cancel()
    if not results:
        peer.wire.requests.when_late(sent[-1], partial(_learn_late, terms))
        return None
    if isinstance(results[0], StartFailed):
        raise results[0]
    return results[0]


def _learn_late(terms: Terms, answer: Envelope) -> None:
    if answer.kind == "result" and (result := read_as(answer.result, _Discovery)) is not None:
        if set(result.supportedVersions) & set(eras.MODERN_VERSIONS):
            terms.learn(Era.MODERN, True)


class _Discovery(msgspec.Struct):
    supportedVersions: list[str]


async def is_still_modern(peer: Peer, probe: float = PROBE_SECONDS) -> bool:
    """False if the server refuses `server/discover` as only older ones do."""
    with anyio.move_on_after(probe):
        try:
            await peer.answer(peer.send("server/discover"))
        except HttpRefused as exc:
            return exc.status not in _REFUSALS
        except RpcError as exc:
            return exc.raw is None or exc.code in _MODERN_CODES
    return True


def _blame_probe(peer: Peer, terms: Terms) -> None:
    if peer.ending.closed.is_set() and Era.MODERN not in terms.eras.speaks:
        code, reason = peer.ending.cause or CONNECTION_LOST
        raise AnotherProcess(code, f"it ended when it got server/discover: {reason}", is_spent=True) from None


class _OtherEra(StartFailed):
    """`is_certain`: the server says so."""

    def __init__(self, code: str, message: str, *, is_certain: bool = True) -> None:
        super().__init__(code, message)
        self.is_certain = is_certain


class _NotModern(_OtherEra): ...


class _IsModern(_OtherEra): ...


def _ignored(pending: Pending) -> None:
    """Nobody else needs the request."""


async def _discover(peer: Peer, sent: Callable[[Pending], object] = _ignored) -> PeerInfo:
    peer.settle(PeerInfo(Era.MODERN, eras.LATEST_MODERN))
    try:
        raw = await _asked_twice(peer, sent)
    except UpstreamLost as exc:
        failure = f"server/discover failed: {exc}"
        if peer.ending.closed.is_set():
            raise StartFailed(_code(exc, "handshake_failed"), failure) from None
        raise _NotModern(_code(exc, "era_mismatch"), failure, is_certain=False) from None
    except RpcError as exc:
        if exc.code in _MODERN_CODES and not _offered(exc) & set(eras.HANDSHAKE_VERSIONS):
            raise Incompatible("era_mismatch", f"no common protocol version: {exc} ({_encoded(exc)})") from None
        is_certain = exc.raw is not None and exc.code in _CLIENT_FAULTS | _MODERN_CODES
        raise _NotModern("era_mismatch", f"server/discover failed: {exc}", is_certain=is_certain) from None
    result = _decoded(raw, "server/discover")
    versions = result.get("supportedVersions")
    common = [v for v in eras.MODERN_VERSIONS if isinstance(versions, list) and v in versions]
    if not common:
        raise _NotModern(
            "era_mismatch", f"server/discover names no version that this hub speaks: {hide_head(ascii(versions), 300)}"
        )
    meta = result.get("_meta")
    info = meta.get("io.modelcontextprotocol/serverInfo") if isinstance(meta, dict) else None
    return peer.settle(_info(Era.MODERN, common[-1], result, info))


async def _asked_twice(peer: Peer, sent: Callable[[Pending], object]) -> RawJson:
    """Repeats a refused version that was offered."""

    async def ask() -> RawJson:
        pending = peer.send("server/discover")
        sent(pending)
        return await peer.answer(pending, may_cancel=False)

    try:
        return await ask()
    except RpcError as exc:
        if exc.code != rpc_errors.UNSUPPORTED_VERSION or peer.info.version not in _offered(exc):
            raise
    return await ask()


def _offered(exc: RpcError) -> set[str]:
    """Versions in a refusal (2026-07-28, basic/versioning "Protocol Version Negotiation")."""
    error = read_as(exc.encoded(), _Refusal)
    return set(error.data.supported) if error is not None else set()


class _Supported(msgspec.Struct, frozen=True):
    supported: list[str] = []


class _Refusal(msgspec.Struct):
    data: _Supported = _Supported()


async def _initialize(peer: Peer) -> PeerInfo:
    peer.settle(PeerInfo(Era.HANDSHAKE, eras.LATEST_HANDSHAKE))
    declared = peer.info.declares[Era.HANDSHAKE]
    hello: JsonObject = {"protocolVersion": eras.LATEST_HANDSHAKE, "capabilities": declared, "clientInfo": CLIENT_INFO}
    params = {key: msgspec.Raw(object_bytes(value)) for key, value in hello.items()}
    try:
        raw = await peer.answer(peer.send("initialize", params), may_cancel=False)
    except RpcError as exc:
        if exc.code in _MODERN_CODES:
            raise _IsModern("era_mismatch", f"initialize failed: {exc}") from None
        raise _InitializeRefused(_refusal_code(exc), f"initialize failed: {exc}") from None
    result = _decoded(raw, "initialize")
    version = result.get("protocolVersion")
    if not isinstance(version, str) or version in eras.MODERN_VERSIONS or not _VERSION.fullmatch(version):
        quoted_version = hide_head(ascii(version), _LONGEST_SAID)
        raise Incompatible("era_mismatch", f"initialize settled on no handshake version: {quoted_version}")
    peer.settle(_info(Era.HANDSHAKE, version, result, result.get("serverInfo")))
    if peer.wire.can_send:
        peer.wire.send(notification_frame("notifications/initialized"))
    return peer.info


def _info(era: Era, version: str, result: JsonObject, server_info: object) -> PeerInfo:
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    return PeerInfo(
        era=era,
        version=version,
        server_info=server_info if isinstance(server_info, dict) else {},
        capabilities=capabilities if isinstance(capabilities, dict) else {},
        instructions=instructions if isinstance(instructions, str) else None,
    )


def _decoded(raw: RawJson, method: str) -> JsonObject:
    try:
        return msgspec.json.decode(raw, type=JsonObject)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise StartFailed("not_mcp", f"{method} answered with something that cannot be read: {exc}") from None


def _code(exc: RpcError, otherwise: str) -> str:
    code = str(exc.about_upstream.get("code", otherwise))
    return "not_mcp" if code == "unreadable_answer" else code


def _refusal_code(exc: RpcError) -> str:
    """A program that echoes requests sends the hub's own refusal back."""
    if exc.raw is not None and exc.code == rpc_errors.METHOD_NOT_FOUND:
        return "not_mcp"
    return "era_mismatch" if _offered(exc) else _code(exc, "handshake_failed")


def _encoded(exc: RpcError) -> str:
    return hide_head(bytes(exc.encoded()), 300)
