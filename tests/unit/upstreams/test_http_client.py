"""The way to a remote server: redirects, and the certificates that count."""

import asyncio
import re
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_hub.errors import StartFailed
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import LoginFailed
from mcp_hub.upstreams.remote.connection import HttpConnection, HttpSpec
from mcp_hub.wire.http_client import EXTRA_CERTIFICATES, tls
from tests.unit.upstreams.remote import Remote, connection, unknown
from tests.unit.wire.http_server import HttpServer, Reply, Request, serving

pytestmark = pytest.mark.anyio


class Moved(Remote):
    """A server whose endpoint is at `/mcp/`; what comes to another path is sent to `target` with this status."""

    status = 307
    target = "/mcp/"

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.path.partition("?")[0] != "/mcp/":
            return await reply.status(self.status, location=self.target)
        await super().__call__(request, reply)


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("target", ["/mcp/", "mcp/", "http://127.0.0.1:{port}/mcp/", "//127.0.0.1:{port}/mcp/?key=k"])
async def test_redirect_within_the_origin_is_followed_with_method_and_body(status: int, target: str) -> None:
    remote = Moved()
    remote.status = status
    async with serving(remote) as server:
        remote.target = target.format(port=server.port)
        async with connection(server, headers={"authorization": "Bearer t"}) as (made, peer):
            await peer.answer(peer.send("tools/list"))
            (note,) = made.notes
        assert f"{server.url}/" in note and "key" not in note
        calls = [request for request in server.of("tools/list") if request.path.startswith("/mcp/")]
        assert calls[0].headers["authorization"] == "Bearer t" and calls[0].headers["mcp-session-id"] == "s-1"
        assert server.of("DELETE")[-1].path.startswith("/mcp/")


ELSEWHERE = ["http://localhost:{port}/mcp/", "https://127.0.0.1:{port}/mcp/", "http://127.0.0.1:{other}/mcp/", ""]


@pytest.mark.parametrize(
    ("target", "status"),
    [*((target, 307) for target in ELSEWHERE), *(("/mcp/", status) for status in (301, 302, 303))],
    ids=["name", "scheme", "port", "nothing", "301", "302", "303"],
)
async def test_redirect_to_another_origin_is_not_followed(target: str, status: int) -> None:
    """Nor one that would change the method."""
    remote = Moved()
    remote.status = status
    async with serving(Remote()) as other, serving(remote) as server:
        remote.target = target.format(port=server.port, other=other.port)
        await refused(server, "no_endpoint", "is not followed")
        assert not other.seen and all(request.path == "/mcp" for request in server.seen)


async def test_redirects_in_a_circle_end() -> None:
    async def round_about(request: Request, reply: Reply) -> None:
        await reply.status(307, location="/other" if request.path == "/mcp" else "/mcp")

    async with serving(round_about) as server:
        await refused(server, "no_endpoint", "is not followed")
        assert len(server.of("initialize")) == 4


async def refused(server: HttpServer, code: str, said: str, **spec: Any) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with connection(server, **spec):
            pass
    (failure,) = leaves(caught.value)
    assert isinstance(failure, StartFailed) and failure.code == code, failure
    assert said in str(failure)


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in group.exceptions:
        yield from leaves(one) if isinstance(one, BaseExceptionGroup) else (one,)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("ALL_PROXY", "socks5://user:s3cr3t@127.0.0.1:9", r"ALL_PROXY names a SOCKS proxy.* pip install .*\[socks\]"),
        ("all_proxy", "socks://127.0.0.1:9/", r"all_proxy names a SOCKS proxy.*\[socks\]"),
        (
            "HTTP_PROXY",
            "socks4://s3cr3t@127.0.0.1:9",
            "HTTP_PROXY names a proxy by socks4://. Use one of http, https, ",
        ),
        ("http_proxy", "http://[::1", "http_proxy names a proxy by an address that is not a URL"),
    ],
)
async def test_bad_proxy_is_named(variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv(variable, value)
    made = HttpConnection("far", HttpSpec("http://far.example/mcp"), unknown())
    with pytest.raises(ExceptionGroup) as caught:
        async with anyio.create_task_group() as tasks:
            await made.open(tasks)
    (failure,) = leaves(caught.value)
    assert isinstance(failure, StartFailed) and failure.code == "invalid_proxy"
    assert re.search(said, str(failure)) and "s3cr3t" not in str(failure)
    if variable.lower() != "all_proxy":
        return
    with pytest.raises(LoginFailed, match=said) as failed:
        await Addresses("https://far.example/mcp").send(httpx2.Request("GET", "https://far.example/token"))
    assert "s3cr3t" not in str(failed.value)


PEM = serialization.Encoding.PEM


class Authority:
    """A private authority, and what it signs. Files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Private CA")])
        made = self._builder(self.name, self.key, 1).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(PEM))

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        start, end = (now - timedelta(days=3), now + timedelta(days=days))
        return x509.CertificateBuilder(self.name, name, key.public_key(), x509.random_serial_number(), start, end)

    def server(self, host: str, days: int = 1) -> ssl.SSLContext:
        """That of a server with a certificate for `host`, valid for so many days."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(x509.Name([]), key, days)
        name = x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        names = x509.SubjectAlternativeName([name])
        certificate = made.add_extension(names, critical=True).sign(self.key, hashes.SHA256())
        secret = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file = self.folder / "server.pem"
        file.write_bytes(certificate.public_bytes(PEM) + secret)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


@asynccontextmanager
async def certified(context: ssl.SSLContext) -> AsyncIterator[HttpServer]:
    """A server behind TLS on `localhost`."""
    async with serving(Remote(), tls=context) as server:
        yield server


def url(server: HttpServer, host: str = "localhost") -> str:
    return f"https://{host}:{server.port}/mcp"


async def test_server_of_a_private_authority_is_reached_by_its_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with certified(authority.server("localhost")) as server:
        async with connection(server, url=url(server), ca=str(authority.file)) as (_, peer):
            assert await peer.answer(peer.send("tools/list"))


async def test_private_authority_is_reached_by_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv(EXTRA_CERTIFICATES, str(authority.file))
    async with certified(authority.server("localhost")) as server, connection(server, url=url(server)) as (_, peer):
        assert await peer.answer(peer.send("tools/list"))


async def test_unknown_authority_wrong_host_and_expired_certificate_have_codes_of_their_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ca = {"ca": str(authority.file)}
    async with certified(authority.server("localhost")) as server:
        await refused(server, "tls_unknown_issuer", "issuer", url=url(server))
        await refused(server, "tls_wrong_host", "not valid for '127.0.0.1'", url=url(server, "127.0.0.1"), **ca)
        await refused(server, "tls_unknown_issuer", "not valid for '127.0.0.1'", url=url(server, "127.0.0.1"))
    async with certified(authority.server("localhost", days=-1)) as server:
        await refused(server, "tls_expired", "expired", url=url(server), **ca)


async def test_server_that_does_not_speak_tls_is_not_blamed_for_its_certificate() -> None:
    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        server = HttpServer(Remote(), listening.sockets[0].getsockname()[1])
        await refused(server, "tls_failed", "wrong version number", url=url(server))


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
async def test_file_without_certificates_is_an_error_in_the_settings_and_a_warning_in_a_variable(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    async with serving(Remote()) as server:
        await refused(server, "ca_unreadable", str(file), ca=str(file))
        monkeypatch.setenv(EXTRA_CERTIFICATES, str(file))
        async with connection(server):
            pass


async def test_file_of_an_authority_is_read_again_when_it_changes(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    before = tls(str(authority.file))
    assert tls(str(authority.file)) is before
    authority.file.write_bytes(b"changed")
    with pytest.raises(StartFailed, match="PEM"):
        tls(str(authority.file))
    assert tls() is tls()
