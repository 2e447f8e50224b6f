"""Connections to a rule's hosts: judged, resolved once, made to the checked address.

Where the hub's environment names a proxy, they go through it by CONNECT and name.
"""

import os
import socket
import struct
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Final
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread
import h11
import msgspec
from anyio.abc import SocketAttribute, SocketStream

from mcp_hub.addresses import Address, HostRule, address_of, authority_of, special_kind
from mcp_hub.protocol.rest.servers import TrafficInfo
from mcp_hub.sandbox.network.interface import RefusedKind

Resolve = Callable[[str], Awaitable[Sequence[Address]]]
"""A name's addresses, in order. Raises `OSError` without any."""
Via = Callable[[str], str | None]
"""The hub's own proxy for a URL; None: direct."""

_ADDRESSES: Final = 6
"""Addresses tried per name."""
_NEXT: Final = 2.0
"""Seconds per address before the next: networks may drop IPv6."""
_PARENT_LOOKUP: Final = 2.0
"""Seconds for a name that a proxy resolves anyway."""
_THREADS: Final = 16
"""Look-ups of all servers at a time."""
_READ: Final = 1 << 16
_PARENT: Final = "The proxy of the hub's environment"
_NOT_OPEN: Final = (OSError, AttributeError, ValueError)
"""Errors of a reset socket, by event loop."""
_BROKEN: Final = (OSError, anyio.EndOfStream, anyio.BrokenResourceError, h11.RemoteProtocolError)


class Denied(Exception):
    """A request does not reach its host; `status` and `error` as in RFC 9209 §2.3.

    `kind` None: a failure. `entry` of `net` would allow it.
    """

    def __init__(
        self, status: int, error: str, reason: str, *, kind: RefusedKind | None = None, target: str = "",
        entry: str = "",
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason
        self.kind = kind
        self.target = target
        self.entry = entry


class HostPort(msgspec.Struct, frozen=True):
    """A request's target; `scheme` is `https` for a tunnel."""

    scheme: str
    host: str
    port: int

    @property
    def text(self) -> str:
        return authority_of(self.host, self.port)

    @property
    def entry(self) -> str:
        """Its entry of `net`."""
        return authority_of(self.host, None if self.port in HostRule(self.host).ports else self.port)


Observe = Callable[[HostPort, str | None], None]
"""Hears of each allowed host before the connection, with an address that the rule also needs."""


class End:
    """One end of a connection; `moved` counts its bytes.

    `is_proxy`: plain requests go to a proxy, with `authorization`.
    """

    def __init__(
        self, stream: SocketStream, traffic: TrafficInfo | None = None, *, pending: bytes = b"", is_proxy: bool = False,
        authorization: bytes | None = None,
    ) -> None:  # fmt: skip
        self._stream = stream
        self._traffic = TrafficInfo(0, 0, 0, 0) if traffic is None else traffic
        self._pending = pending
        self.moved = 0
        self.is_proxy = is_proxy
        self.authorization = authorization

    async def send(self, data: bytes) -> None:
        """Returns when the system has taken all."""
        await self._stream.send(data)
        self.moved += len(data)
        self._traffic.count(sent=len(data))

    async def receive(self) -> bytes:
        """At most 64 KiB; empty at the end."""
        data, self._pending = self._pending, b""
        if not data:
            try:
                data = await self._stream.receive(_READ)
            except anyio.EndOfStream:
                return b""
        self.moved += len(data)
        self._traffic.count(received=len(data))
        return data

    def is_closed(self) -> bool:
        """Whether the peer has closed, unless unread data hides it."""
        try:
            with socket.socket(fileno=os.dup(self._stream.extra(SocketAttribute.raw_socket).fileno())) as end:
                return not end.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except _NOT_OPEN:
            return True

    async def send_eof(self) -> None:
        """Closes one direction. Raises as `send` if both are closed."""
        try:
            await self._stream.send_eof()
        except RuntimeError:  # uvloop's, after a reset
            raise anyio.BrokenResourceError from None

    async def aclose(self, *, is_whole: bool = True) -> None:
        """Closes both directions, by a reset if not everything was sent."""
        if not is_whole:
            with suppress(*_NOT_OPEN):
                end = self._stream.extra(SocketAttribute.raw_socket)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await anyio.aclose_forcefully(self._stream)


class _Parent(msgspec.Struct, frozen=True):
    host: str
    port: int
    authorization: bytes | None


class Dialer:
    """Connects to hosts, `lookup` and `connect` seconds at most; `head` in bytes. `observe` is a learning run's."""

    def __init__(
        self, resolve: Resolve, via: Via, observe: Observe | None = None, *, lookup: float, connect: float, head: int
    ) -> None:
        self._resolve = resolve
        self._via = via
        self._lookup = lookup
        self._connect = connect
        self._head = head
        self._observe = observe

    async def open(
        self, target: HostPort, rules: Sequence[HostRule], traffic: TrafficInfo, lookups: anyio.CapacityLimiter
    ) -> End:
        """A connection to an allowed target. Raises `Denied`."""
        judge(target, rules)
        parent = _parent(self._via(f"{target.scheme}://{target.text}/"))
        if parent is None:
            addresses = await self._checked(target, rules, lookups)
            if self._observe is not None:
                self._observe(target, _address_to_name(target, addresses))
            return End(await self._first(target, addresses, rules), traffic)
        await self._check_before(target, rules, lookups)
        if self._observe is not None:
            self._observe(target, None)
        stream = await self._to_parent(parent, target)
        if target.scheme == "http":
            return End(stream, traffic, is_proxy=True, authorization=parent.authorization)
        try:
            with anyio.fail_after(self._connect):
                return End(stream, traffic, pending=await _tunnel(stream, parent, target, self._head))
        except BaseException as exc:
            await anyio.aclose_forcefully(stream)
            if isinstance(exc, TimeoutError):
                raise Denied(504, "connection_timeout", f"{_PARENT} did not answer in time.") from None
            if isinstance(exc, _BROKEN):
                raise Denied(502, "http_protocol_error", f"{_PARENT} gave no valid answer.") from None
            raise

    async def _checked(
        self, target: HostPort, rules: Sequence[HostRule], lookups: anyio.CapacityLimiter
    ) -> Sequence[Address]:
        if (address := address_of(target.host)) is not None:
            return [address]  # its own rule names it
        try:
            with anyio.fail_after(self._lookup):
                async with lookups:
                    addresses = await self._resolve(target.host)
        except TimeoutError:
            raise Denied(504, "dns_timeout", f"The name {target.host} was not resolved in time.") from None
        except (OSError, UnicodeError):
            raise Denied(502, "dns_error", f"The name {target.host} does not resolve.") from None
        return checked(target, addresses, rules)

    async def _check_before(self, target: HostPort, rules: Sequence[HostRule], lookups: anyio.CapacityLimiter) -> None:
        try:
            with anyio.fail_after(_PARENT_LOOKUP):
                await self._checked(target, rules, lookups)
        except TimeoutError:
            return
        except Denied as denied:
            if denied.kind is not None:
                raise

    async def _first(self, target: HostPort, addresses: Sequence[Address], rules: Sequence[HostRule]) -> SocketStream:
        """The first address that accepts. Raises `Denied`."""
        is_late = True
        with anyio.move_on_after(self._connect) as total:
            for number, address in enumerate(addresses, 1):
                with anyio.move_on_after(_NEXT if number < len(addresses) else None) as scope:
                    try:
                        stream = await anyio.connect_tcp(str(address), target.port)
                        near = str(stream.extra(SocketAttribute.local_address)[0])
                    except _NOT_OPEN:
                        is_late = False
                        continue
                    try:
                        judge_path(near, address, target, rules)
                    except Denied:
                        await anyio.aclose_forcefully(stream)
                        raise
                    return stream
                is_late = scope.cancelled_caught
        if is_late or total.cancelled_caught:
            raise Denied(504, "connection_timeout", f"{target.text} did not take the connection in time.")
        raise Denied(502, "connection_refused", f"No connection to {target.text}.")

    async def _to_parent(self, parent: _Parent, target: HostPort) -> SocketStream:
        try:
            with anyio.fail_after(self._connect):
                return await anyio.connect_tcp(parent.host, parent.port)
        except (TimeoutError, OSError):
            raise Denied(502, "destination_unavailable", f"{_PARENT} cannot be reached.") from None


def system_resolver() -> Resolve:
    """The system's look-up, in its own threads."""
    limiter = anyio.CapacityLimiter(_THREADS)

    async def resolve(host: str) -> list[Address]:
        texts = await anyio.to_thread.run_sync(_look_up, host, abandon_on_cancel=True, limiter=limiter)
        return [address for text in texts if (address := address_of(text)) is not None]

    return resolve


def judge(target: HostPort, rules: Sequence[HostRule]) -> None:
    """Raises `Denied` unless a rule allows host and port."""
    if any(rule.matches(target.host, target.port) for rule in rules):
        return
    ports = sorted({port for rule in rules if rule.matches(target.host, rule.ports[0]) for port in rule.ports})
    reason = f"port {target.port} is not in its rule" if ports else "the host is not in its rule"
    raise Denied(403, "http_request_denied", reason, kind="host", target=target.text, entry=target.entry)


def checked(target: HostPort, addresses: Sequence[Address], rules: Sequence[HostRule]) -> list[Address]:
    """Allowed addresses, IPv6 and IPv4 by turns. Raises `Denied` without any."""
    allowed = [address for address in addresses if _is_allowed(address, target, rules)]
    if not allowed:
        if not addresses:
            raise Denied(502, "dns_error", f"The name {target.host} does not resolve.")
        raise _prohibited(target, addresses[0])
    first = allowed[0].version
    queues = [[each for each in allowed if each.version == version] for version in (first, 10 - first)]
    turns = [each for pair in zip_longest(*queues) for each in pair if each is not None]
    return turns[:_ADDRESSES]


def judge_path(near: str, address: Address, target: HostPort, rules: Sequence[HostRule]) -> None:
    """Raises `Denied` if a connection to a public address stayed on this machine, past its firewall, and no rule names
    it.
    """
    if address_of(near) == address and not _is_named(address, target, rules):
        raise _prohibited(target, address, "an address of this machine")


def _is_allowed(address: Address, target: HostPort, rules: Sequence[HostRule]) -> bool:
    return special_kind(address) is None or _is_named(address, target, rules)


def _is_named(address: Address, target: HostPort, rules: Sequence[HostRule]) -> bool:
    """Whether a rule names the address, or any for the host."""
    if f".{target.host}".endswith(".localhost"):
        return address.is_loopback
    return any(
        rule.matches(str(address), target.port) or (rule.is_private and rule.matches(target.host, target.port))
        for rule in rules
    )


def _address_to_name(target: HostPort, addresses: Sequence[Address]) -> str | None:
    """The entry needed besides the host."""
    is_local = f".{target.host}".endswith(".localhost") or address_of(target.host) is not None
    if is_local or any(special_kind(address) is None for address in addresses):
        return None
    return HostPort(target.scheme, str(addresses[0]), target.port).entry


def _prohibited(target: HostPort, address: Address, kind: str | None = None) -> Denied:
    reason = f"the name leads to {address}, {kind or special_kind(address)}"
    entry = HostPort(target.scheme, str(address), target.port).entry
    return Denied(403, "destination_ip_prohibited", reason, kind="address", target=target.text, entry=entry)


def _parent(url: str | None) -> _Parent | None:
    """The proxy of a URL, a secret. Raises `Denied`."""
    if url is None:
        return None
    reason = f"{_PARENT} cannot be used by the sandbox. Name one by http://HOST:PORT."
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        raise Denied(502, "proxy_configuration_error", reason) from None
    if parts.scheme != "http" or not host:
        raise Denied(502, "proxy_configuration_error", reason)
    if parts.username is None:
        return _Parent(host, port, None)
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return _Parent(host, port, b"Basic " + b64encode(login.encode()))


async def _tunnel(stream: SocketStream, parent: _Parent, target: HostPort, head: int) -> bytes:
    headers = [(b"Host", target.text.encode())]
    if parent.authorization is not None:
        headers.append((b"Proxy-Authorization", parent.authorization))
    protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=head)
    request = h11.Request(method=b"CONNECT", target=target.text.encode(), headers=headers)
    await stream.send(protocol.send(request) or b"")
    protocol.send(h11.EndOfMessage())
    while True:
        match protocol.next_event():
            case h11.NEED_DATA:
                protocol.receive_data(await stream.receive(_READ))
            case h11.Response(status_code=status) if 200 <= status < 300:
                return bytes(protocol.trailing_data[0])
            case h11.Response(status_code=status):
                raise Denied(502, "http_request_error", f"{_PARENT} refused {target.text} ({status}).")
            case h11.InformationalResponse():
                continue
            case _:
                raise h11.RemoteProtocolError("no answer")


def _look_up(host: str) -> list[str]:
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
