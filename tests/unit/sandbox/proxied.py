"""A proxy of sandboxed servers, the connections of its servers, and hosts behind it that write down what they get."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import anyio
from anyio.abc import SocketStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_hub.addresses import Address, HostRule
from mcp_hub.sandbox.network.dial import Resolve, Via
from mcp_hub.sandbox.network.interface import Refusals, loopback_pair
from mcp_hub.sandbox.network.proxy import HostProxy, _ProxyLimits

NAME = "api.example.com"
SERVER = "scrape"


def answers(*texts: str) -> Resolve:
    """A name server that has these addresses for every name."""

    async def resolve(host: str) -> Sequence[Address]:
        return [ip_address(text) for text in texts]

    return resolve


def rules(port: int, *names: str) -> list[HostRule]:
    """The names, and the address of this machine to which `answers("127.0.0.1")` leads them."""
    return [HostRule(name, (port,)) for name in (*(names or (NAME,)), "127.0.0.1")]


class Sandboxed:
    """A proxy and the refusals of one server."""

    def __init__(self, proxy: HostProxy) -> None:
        self.proxy = proxy
        self.refusals = Refusals()

    async def connect(self, hosts: Sequence[HostRule], server: str = SERVER) -> SocketStream:
        """A connection of the server."""
        near, far = loopback_pair()
        asyncio.get_running_loop().call_soon(
            self.proxy.serve, far, server, hosts, self.refusals
        )  # as a supervisor does
        return await SocketStream.from_socket(near)

    async def sent(self, hosts: Sequence[HostRule], request: bytes, *, is_closed: bool = True) -> bytes:
        """All that comes back for these bytes; the server closes its direction behind them."""
        async with await self.connect(hosts) as stream:
            await stream.send(request)
            if is_closed:
                await stream.send_eof()
            return await everything(stream)

    @asynccontextmanager
    async def listening(self, hosts: Sequence[HostRule]) -> AsyncIterator[str]:
        """The URL of the proxy for programs; each connection there counts as one of the server."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)

        async def accept() -> None:
            while True:
                connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                connection.setblocking(False)
                self.proxy.serve(connection, SERVER, hosts, self.refusals)

        with listener:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(accept)
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def sandboxed(
    resolve: Resolve | None = None, *, via: Via = lambda url: None, limits: _ProxyLimits | None = None
) -> AsyncIterator[Sandboxed]:
    """A proxy that runs; names lead to this machine unless `resolve` says otherwise."""
    proxy = HostProxy(resolve=resolve or answers("127.0.0.1"), via=via, limits=limits)
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(proxy.run)
            await anyio.lowlevel.checkpoint()
            yield Sandboxed(proxy)
            tasks.cancel_scope.cancel()


async def everything(stream: SocketStream) -> bytes:
    """What comes until the other side closes or resets."""
    data = b""
    try:
        while True:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return data


class Host:
    """A server of HTTP behind the proxy: writes down each request, and answers with `answer`."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = b""
        while data := await reader.read(1 << 16):
            request += data
            head, end, body = request.partition(b"\r\n\r\n")
            if end and (b"chunked" not in head or body.endswith(b"0\r\n\r\n")) and len(body) >= _length(head):
                break
        self.requests.append(request)
        writer.write(self.answer)
        await writer.drain()
        writer.close()


def _length(head: bytes) -> int:
    values = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return int(values[0]) if values else 0


@asynccontextmanager
async def host(
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", context: ssl.SSLContext | None = None
) -> AsyncIterator[Host]:
    """A host on this machine, with TLS if there is a context."""
    server = Host(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """The port of a host that sends back what it gets, and closes when the other side has closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            writer.write(b"<end>")
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


def certificate(folder: Path, name: str = NAME) -> tuple[ssl.SSLContext, Path]:
    """The context of a server of this name, and the file with its certificate."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    file, secret = folder / "host.pem", folder / "host.key"
    file.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
    secret.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, secret)
    return context, file
