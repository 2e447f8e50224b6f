"""Requests to a sandbox's proxy: strict heads, and plain HTTP relayed one by one.

h11 reads and rewrites messages; ambiguous forms are refused. Each plain request has its own connection.
"""

import re
from collections.abc import Sequence
from typing import Final

import anyio
import h11
import msgspec

from mcp_hub.addresses import authority_of, normal_host
from mcp_hub.sandbox.network.dial import Denied, End, HostPort

_END: Final = b"\r\n\r\n"
_TLS: Final = 0x16
"""The first byte of a TLS handshake."""
_HEADERS: Final = 128
_BARE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Bare line ends and control characters."""
_LINE: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+ [\x21-\x7e]+ HTTP/1\.[01]")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#]+)(?::([0-9]{1,5}))?")
_ABSOLUTE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)")
_HOP: Final = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"transfer-encoding", b"upgrade",
))  # fmt: skip
"""Hop-by-hop headers (RFC 9110 §7.6.1)."""
_BROKEN: Final = (h11.RemoteProtocolError, h11.LocalProtocolError, OSError, anyio.BrokenResourceError)


class ProxyRequest(msgspec.Struct, frozen=True):
    """A request's head and target. `path` is empty for a tunnel."""

    raw: bytes
    request: h11.Request
    target: HostPort
    path: str

    @property
    def is_tunnel(self) -> bool:
        return self.request.method == b"CONNECT"


async def read_head(near: End, buffer: bytearray, limit: int) -> bytes | None:
    """Takes the next head from `buffer`; None if closed. Raises `Denied`, also beyond `limit` bytes."""
    while True:
        while buffer.startswith(b"\r\n"):  # behind the body of some clients (RFC 9112 §2.2)
            del buffer[:2]
        if buffer[:1] == bytes([_TLS]):
            raise bad_request("a program of the server uses TLS without the proxy. It has to use HTTPS_PROXY")
        end = buffer.find(_END, 0, limit)
        if end >= 0:
            head = bytes(buffer[: end + len(_END)])
            del buffer[: len(head)]
            return head
        if len(buffer) >= limit:
            raise Denied(431, "http_request_error", f"the head of a request has more than {limit} bytes")
        data = await near.receive()
        if not data:
            if buffer:
                raise bad_request("the head of a request ends early")
            return None
        buffer += data


def parse_head(raw: bytes) -> ProxyRequest:
    """Raises `Denied` for ambiguous heads."""
    lines = raw[: -len(_END)].split(b"\r\n")
    if _BARE.search(raw) or not _LINE.fullmatch(lines[0]):
        raise bad_request("is not a request of HTTP/1.1")
    if any(line[:1] in (b" ", b"\t") for line in lines):
        raise bad_request("a header has a folded line")
    if len(lines) > _HEADERS:
        raise Denied(431, "http_request_error", f"a request has more than {_HEADERS - 1} headers")
    protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=len(raw) + 1)
    protocol.receive_data(raw)
    try:
        request = protocol.next_event()
    except h11.RemoteProtocolError as exc:
        raise bad_request(_cause(exc)) from None
    if not isinstance(request, h11.Request):
        raise bad_request("is not a request of HTTP/1.1")
    _check_length(lines, request)
    target, path = _target_of(request)
    _check_host(request, target)
    return ProxyRequest(raw, request, target, path)


def bad_request(reason: str, status: int = 400) -> Denied:
    return Denied(status, "http_request_error", reason, kind="host", target="(request)")


def _cause(exc: h11.RemoteProtocolError) -> str:
    """The message without its bytes, which may hold a credential."""
    return str(exc).partition(":")[0]


def _check_length(lines: Sequence[bytes], request: h11.Request) -> None:
    """Raises `Denied` for ambiguous lengths."""
    fields = [line.partition(b":") for line in lines[1:]]
    lengths = [value.strip(b" \t") for name, _, value in fields if name.lower() == b"content-length"]
    codings = [value.lstrip(b" \t") for name, _, value in fields if name.lower() == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise bad_request("a request has two lengths")
    if codings and request.http_version == b"1.0":
        raise bad_request("a request of HTTP/1.0 has a transfer coding")
    if any(coding.lower() != b"chunked" for coding in codings):
        raise bad_request("the transfer coding of a request is not exactly chunked")
    if any(not _LENGTH.fullmatch(length) for length in lengths):
        raise bad_request("the length of a request is not a number")
    if request.method == b"CONNECT" and (codings or any(map(int, lengths))):
        raise bad_request("CONNECT has a body")


def _target_of(request: h11.Request) -> tuple[HostPort, str]:
    text = request.target.decode("ascii")
    if request.method == b"CONNECT":
        return _authority(text, "https", None), ""
    parts = _ABSOLUTE.fullmatch(text)
    if parts is None:
        host = next((value for name, value in request.headers if name == b"host"), b"").decode("latin-1")
        reason = "a program of the server does not use the proxy. It has to use HTTP_PROXY and HTTPS_PROXY"
        raise Denied(400, "http_request_error", reason, kind="host", target=host or "(request)")
    scheme, authority, path = parts.groups()
    if scheme.lower() != "http":
        raise bad_request("the URL of a request is not http://. Use CONNECT for https://")
    if not path.startswith("/"):
        path = "*" if not path and request.method == b"OPTIONS" else f"/{path}"
    return _authority(authority, "http", 80), path


def _authority(text: str, scheme: str, usual: int | None) -> HostPort:
    """Raises `Denied` unless HOST:PORT without a user."""
    parts = _AUTHORITY.fullmatch(text)
    host = None if parts is None else normal_host(parts[1])
    port = usual if parts is None or parts[2] is None else int(parts[2])
    if host is None or port is None or not 0 < port <= 65535:
        raise Denied(400, "http_request_error", "is not HOST:PORT", kind="host", target=text)
    return HostPort(scheme, host, port)


def _check_host(request: h11.Request, target: HostPort) -> None:
    """Raises `Denied` if `Host` names another target (RFC 9112 §3.2)."""
    values = [value.decode("latin-1") for name, value in request.headers if name == b"host"]
    if len(values) > 1:
        raise bad_request("a request has two Host headers")
    for value in values if request.method != b"CONNECT" else ():
        parts = _AUTHORITY.fullmatch(value)
        is_same = parts is not None and normal_host(parts[1]) == target.host
        if parts is None or not is_same or (parts[2] is not None and int(parts[2]) != target.port):
            reason = f"a request for {target.text} has the Host of another"
            raise Denied(400, "http_request_error", reason, kind="host", target=value)


class PlainExchange:
    """Relays one plain request and its answer."""

    def __init__(self, near: End, head: ProxyRequest, pending: bytes, limit: int) -> None:
        """`pending` follows the head; `limit` bounds the host's heads in bytes."""
        self._near = near
        self._head = head
        self._server = h11.Connection(h11.SERVER, max_incomplete_event_size=limit)
        self._client = h11.Connection(h11.CLIENT, max_incomplete_event_size=limit)
        self._server.receive_data(head.raw + pending)
        self._server.next_event()
        self._failure: Exception | None = None
        self.is_answered = False

    @property
    def behind(self) -> bytes | None:
        """Bytes after the request; None: no other may follow."""
        if self._server.our_state is not h11.DONE or self._server.their_state is not h11.DONE:
            return None
        return bytes(self._server.trailing_data[0])

    async def relay(self, far: End) -> Exception | None:
        """Relays both; returns the error that cut one off, or None.

        `Denied`: a bad body or not HTTP. `ConnectionError`: the server has closed.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_request, far, tasks.cancel_scope)
            await self._send_answer(far)
            tasks.cancel_scope.cancel()
        return self._failure

    def _outgoing(self, far: End) -> h11.Request:
        request, target = self._head.request, self._head.target
        host = authority_of(target.host, None if target.port == 80 else target.port)
        headers = [(b"Host", host.encode()), *_end_to_end(request, but=b"host")]
        if any(name == b"transfer-encoding" for name, _ in request.headers):
            headers.append((b"Transfer-Encoding", b"chunked"))
        if far.authorization is not None:
            headers.append((b"Proxy-Authorization", far.authorization))
        headers.append((b"Connection", b"close"))
        text = f"http://{host}{self._head.path.removeprefix('*')}" if far.is_proxy else self._head.path
        return h11.Request(method=request.method, target=text.encode(), headers=headers)

    async def _send_request(self, far: End, scope: anyio.CancelScope) -> None:
        """Sends head and body. A host that stops reading may still answer."""
        try:
            await self._to_far(far, self._outgoing(far))
            while not isinstance(event := await self._from_server(), h11.EndOfMessage):
                await self._to_far(far, event)
            await self._to_far(far, h11.EndOfMessage())
        except h11.RemoteProtocolError as exc:
            self._failure = bad_request(_cause(exc))
            scope.cancel()
        except ConnectionResetError as exc:
            self._failure = exc
            scope.cancel()
        except _BROKEN:
            return

    async def _to_far(self, far: End, event: h11.Event) -> None:
        await far.send(self._client.send(event) or b"")

    async def _from_server(self) -> h11.Data | h11.EndOfMessage:
        while (event := self._server.next_event()) is h11.NEED_DATA:
            try:
                data = await self._near.receive()
            except _BROKEN:
                data = b""
            if not data:
                raise ConnectionResetError
            self._server.receive_data(data)
        if isinstance(event, h11.Data):
            return h11.Data(data=event.data)
        return h11.EndOfMessage()  # without trailers

    async def _send_answer(self, far: End) -> None:
        try:
            while not isinstance(event := self._client.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    self._client.receive_data(await far.receive())
                elif isinstance(event, h11.InformationalResponse | h11.Response):
                    await self._send_head(event)
                elif isinstance(event, h11.Data):
                    await self._send(h11.Data(data=event.data))
                else:
                    raise ConnectionAbortedError
            await self._send(h11.EndOfMessage())
        except _BROKEN:
            reason = f"{self._head.target.text} gave no valid answer."
            self._failure = self._failure or Denied(502, "http_protocol_error", reason)

    async def _send_head(self, event: h11.InformationalResponse | h11.Response) -> None:
        status, headers = event.status_code, _end_to_end(event)
        if isinstance(event, h11.Response):
            self.is_answered = True
            await self._send(h11.Response(status_code=status, reason=event.reason, headers=headers))
        elif self._head.request.http_version != b"1.0":
            await self._send(h11.InformationalResponse(status_code=status, reason=event.reason, headers=headers))

    async def _send(self, event: h11.Event) -> None:
        if data := self._server.send(event):
            await self._near.send(data)


def _end_to_end(
    event: h11.Request | h11.InformationalResponse | h11.Response, but: bytes = b""
) -> list[tuple[bytes, bytes]]:
    """Headers that are not hop-by-hop, without `but` or a length beside a transfer coding."""
    dropped = {but, *_HOP}
    for name, value in event.headers:
        if name == b"connection":
            dropped.update(token.strip(b" \t").lower() for token in value.split(b","))
        elif name == b"transfer-encoding":
            dropped.add(b"content-length")
    return [(name, value) for name, value in event.headers.raw_items() if name.lower() not in dropped]
