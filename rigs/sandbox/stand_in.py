"""The internet of a rig: an HTTP proxy on loopback that answers for every name itself, by HTTPS with certificates of
its own authority. It writes down which names were asked for, and connects to nothing. Beside it, the home folder of
servers that the rig downloads.
"""

import os
import re
import secrets
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mcp_hub.addresses import address_of, special_kind

CANARY = "canary"
"""The name of the canary in a prepared answer."""
_PAGE = """<!doctype html><html><head><title>{canary}</title></head><body><main><article><h1>{canary}</h1>
<p>The stand-in answers for this name, and its word is {canary}. Nothing else on this machine knows that word.</p>
<p>A second paragraph, so that programs which look for the text of a page have one: {canary}.</p></article></main>
</body></html>"""
SETTINGS = (".npmrc", ".config/pip", ".config/uv")
"""What names the package indexes of this machine."""
_ROBOTS = "User-agent: *\nAllow: /\n"
_READ = 1 << 16
_INDEXES = ("registry.npmjs.org", "pypi.org", "files.pythonhosted.org")
_HOST = re.compile(r"https?://(?:[^/@\s]*@)?([\w.-]+)")
_BROKEN = (OSError, ssl.SSLError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
_TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")


@dataclass(frozen=True)
class Network:
    """A call that uses the network: the hosts that it reaches, the `client` library, and prepared answers of them.

    `answers` are by the beginning of `host/path?query`.
    """

    hosts: Sequence[str]
    client: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)


class StandIn:
    """The proxy while it runs: `requests` has host and path of each request, `canary` is in every answer.

    `answers` are prepared ones by the beginning of `host/path`; without one it answers with a page.
    """

    def __init__(self, folder: Path, answers: Mapping[str, str]) -> None:
        self.canary = f"word{secrets.token_hex(8)}"
        self.requests: list[tuple[str, str]] = []
        self.url = ""
        self._folder = folder
        self._answers = answers
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._authority = _named("authority of a rig")
        self.certificates = folder / "authorities.pem"
        usual = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
        known = Path(usual).read_bytes() if usual else b""
        self.certificates.write_bytes(known + b"\n" + _pem(self._signed(self._authority, self._key.public_key(), None)))

    @property
    def trust(self) -> dict[str, str]:
        """The variables by which programs trust its authority, beside the usual ones."""
        return dict.fromkeys(_TRUST, str(self.certificates))

    def proxies(self, settings: Iterable[Path]) -> dict[str, str]:
        """The variables that lead to it, but not for package indexes; `settings` are files or folders with such."""
        files = [file for path in settings for file in (path, *path.glob("*")) if file.is_file()]
        hosts = [host for file in files for host in _HOST.findall(file.read_text("utf-8"))]
        direct = ",".join(dict.fromkeys((*_INDEXES, *hosts)))
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), self.url)
        return {**proxies, "NO_PROXY": direct, "no_proxy": direct, "NODE_USE_ENV_PROXY": "1"}

    async def serve(self, stream: SocketStream) -> None:
        """One connection of a client, until either side ends it."""
        async with stream:
            with suppress(*_BROKEN, h11.RemoteProtocolError, h11.LocalProtocolError):
                await self._serve(stream, "")

    async def _serve(self, stream: ByteStream, host: str) -> None:
        """Answers requests; those without a `host` are those to a proxy."""
        protocol = h11.Connection(h11.SERVER)
        while True:
            request = await _next(protocol, stream)
            if not isinstance(request, h11.Request):
                return
            target = request.target.decode()
            if request.method == b"CONNECT":
                await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
                name = target.rpartition(":")[0]
                await self._serve(await TLSStream.wrap(stream, server_side=True, ssl_context=self._context(name)), name)
                return
            while isinstance(await _next(protocol, stream), h11.Data):
                pass
            await self._answer(protocol, stream, host or urlsplit(target).hostname or "", target)
            if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
                return
            protocol.start_next_cycle()

    async def _answer(self, protocol: h11.Connection, stream: ByteStream, host: str, target: str) -> None:
        parts = urlsplit(target)
        path = parts.path or "/"
        self.requests.append((host, path))
        full = f"{host}{path}?{parts.query}"
        text = next((text for name, text in self._answers.items() if full.startswith(name)), None)
        if text is None:
            text = _ROBOTS if path == "/robots.txt" else _PAGE
        body = text.replace(f"{{{CANARY}}}", self.canary).encode()
        kind = {"{": "application/json", "[": "application/json", "<": "text/html"}.get(text.lstrip()[:1], "text/plain")
        kind = "application/xml" if text.lstrip().startswith("<?xml") else kind
        headers = [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body)))]
        for event in (h11.Response(status_code=200, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            if data := protocol.send(event):
                await stream.send(data)

    def _context(self, name: str) -> ssl.SSLContext:
        """For the side of the server, with a certificate of this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        path = self._folder / f"certificate-{secrets.token_hex(4)}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + _pem(self._signed(_named(name), key.public_key(), name)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        context.set_alpn_protocols(["http/1.1"])
        path.unlink()
        return context

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, host: str | None) -> x509.Certificate:
        """A certificate of a host, or without one of the authority itself."""
        day, number = timedelta(days=1), x509.random_serial_number()
        moment = datetime.now(UTC)
        builder = x509.CertificateBuilder(self._authority, subject, key, number, moment - day, moment + day)
        builder = builder.add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
        own = x509.SubjectKeyIdentifier.from_public_key(key)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(own, critical=False).add_extension(issuer, critical=False)
        if host is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@asynccontextmanager
async def stand_in(folder: Path, answers: Mapping[str, str]) -> AsyncIterator[StandIn]:
    """A stand-in that serves inside the block; its files are in `folder`."""
    running = StandIn(folder, answers)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    running.url = f"http://127.0.0.1:{listener.listeners[0].extra(anyio.abc.SocketAttribute.local_port)}"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, running.serve)
        yield running
        tasks.cancel_scope.cancel()


def near_indexes() -> list[str]:
    """Addresses of package indexes that are of this machine's own network, which a rule has to name."""
    near = set()
    for name in _INDEXES:
        with suppress(OSError):
            for *_, place in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM):
                address = address_of(str(place[0]))
                if address is not None and special_kind(address) is not None:
                    near.add(str(address))
    return sorted(near)


async def _next(protocol: h11.Connection, stream: ByteStream) -> object:
    while (event := protocol.next_event()) is h11.NEED_DATA:
        try:
            protocol.receive_data(await stream.receive(_READ))
        except anyio.EndOfStream:
            protocol.receive_data(b"")
    return event


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def home_of(root: Path) -> dict[str, str]:
    """A home folder below `root` with the settings of package indexes, a folder and a repository."""
    home, real = root / "home", Path.home()
    data, repo = home / "data", home / "repo"
    data.mkdir(parents=True)
    (data / "note.md").write_text("a note\n")
    for name in SETTINGS:
        source, target = real / name, home / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    return {"home": str(home), "data": str(data), "repo": str(repo)}
