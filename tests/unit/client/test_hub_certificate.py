"""A client of a hub on this machine reads no certificates for `http`, and checks them for `https`."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_hub.client.http import HttpTransport
from mcp_hub.client.transport import NotConnected

pytestmark = pytest.mark.anyio


def unsigned(root: Path) -> ssl.SSLContext:
    """A server's, with a certificate of 127.0.0.1 that no authority has signed."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    host = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = made.add_extension(host, critical=False).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    file = root / "server.pem"
    file.write_bytes(certificate.public_bytes(pem))
    with file.open("ab") as more:
        more.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def test_a_hub_on_this_machine_with_a_certificate_that_nobody_signed_is_refused(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=unsigned(tmp_path))
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    with anyio.fail_after(240):
        async with server, HttpTransport(url, None) as transport:
            with pytest.raises(NotConnected, match="(?i)certificate"):
                await transport.send("POST", url, {}, b"{}")
