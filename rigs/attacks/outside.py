"""Attacks that have a hub of their own, or none yet: logins, networks, files of the configuration."""

import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from anyio.abc import AnyByteStream, ByteStream
from anyio.streams.tls import TLSListener
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mcp_hub.attach.machine import DUMPABLE
from rigs.attacks.site import CANARY, entry, honest, mark, write_scripts
from tests.unit.cli.command import COMMAND, command_env
from tests.unit.upstreams.authorization import Authorization
from tests.unit.wire.http_server import serving
from tests.upstreams.stdio_client import StdioClient

ALTERED = "A" * len(mark("middle"))
"""What the attacker in the middle replaces by the mark."""
PAGES = (
    "file:///bin/sh", "javascript:alert(1)", "a:$(touch pwned)", "http://login.example/$(touch pwned)",
    "https://login.example/`touch pwned`\" & calc",
)  # fmt: skip
_HARMLESS = re.compile(r"https?://[A-Za-z0-9.:-]+/[A-Za-z0-9._~%/?&=+:@-]*")
_ENDED = 30.0
_BROWSER = """
import sys, urllib.request, urllib.parse
open(sys.argv[1], "a").write(sys.argv[2] + chr(10))
if sys.argv[2].startswith("http://127.0.0.1:"):
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[2], timeout=10).read()
"""
_ANYBODY = 65534
"""A user without rights, who has the hub of `_environments` where the rig runs as root."""
_LOOKUP = {
    "tools": [{"name": "lookup", "inputSchema": {"type": "object"}}],
    "answers": {"lookup": {"environments": True}},
}
_CHILD = re.compile(r"MCP_HUB_CHILD=([0-9a-f]+\.\d+)")
_LEFT = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


async def login_runs_a_command(root: Path) -> bool:
    """Whether a login page that is a command gets to the browser as one. The kind of CVE-2025-6514.

    Raises: `AssertionError` if not even an honest page is opened, so that nothing would be shown.
    """
    assert await _opened(root / "honest", {}), "the browser is not asked for an honest page"
    opened = [await _opened(root / f"page{n}", {"authorization_endpoint": page}) for n, page in enumerate(PAGES)]
    return any(not _HARMLESS.fullmatch(page) for pages in opened for page in pages)


async def _opened(folder: Path, metadata: dict[str, Any]) -> list[str]:
    """The pages that the browser was asked for."""
    opened, browser = folder / "opened", folder / "browser.py"
    _write(browser, _BROWSER)
    async with serving(Authorization(metadata=metadata)) as server:
        servers = {"evil": {"url": server.url}}
        _write(folder / "servers.yaml", json.dumps({"servers": servers}))
        command = f"{sys.executable} {browser} {opened} %s"
        await _ran(folder, "login", "evil", "--timeout", "3", BROWSER=command)
    return _lines(opened)


def _write(file: Path, text: str, mode: int = 0o600) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    file.chmod(mode)


def _lines(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines() if file.exists() else []


async def public_hub_starts(root: Path) -> bool:
    """Whether a hub serves on all addresses while it asks nobody for a token."""
    config = {"hub": {"http": {"host": "0.0.0.0"}}, "servers": {"x": {"command": "true"}}}
    _write(root / "servers.yaml", json.dumps(config))
    return (await _ran(root, "serve", "--http", "--port", "0")) is None


async def writable_file_is_used(root: Path) -> bool:
    """Whether a hub uses a configuration that everybody on the machine can write."""
    _write(root / "servers.yaml", json.dumps({"servers": {"x": {"command": "true"}}}), 0o666)
    return (await _ran(root, "serve", "--http", "--port", "0")) is None


async def hub_environment_is_read(root: Path, attach: str = "never") -> bool:
    """Whether a server reads a secret of its hub in the environment of any process of its user."""
    hub = {"tokens": [{"token": "${SOME_API_KEY}", "principal": "ann"}]}
    return CANARY in await _environments({"hub": hub}, {}, attach)


async def neighbour_environment_is_read(root: Path) -> bool:
    """Whether a server reads a secret of another server of the hub in the same way."""
    return CANARY in await _environments({}, {"env": {"KEY": "${SOME_API_KEY}"}}, "never")


async def _environments(config: Mapping[str, Any], neighbour: Mapping[str, Any], attach: str) -> str:
    """What a server of a hub over stdio reads; the hub and its client have the secret in their environment.

    As root the rig plays it as another user, since root reads everything. Raises: `TimeoutError` if it does not see
    even the servers of the hub, so that nothing would be shown.
    """
    become = ["setpriv", f"--reuid={_ANYBODY}", f"--regid={_ANYBODY}", "--clear-groups"] if os.geteuid() == 0 else []
    with TemporaryDirectory(prefix="env-", dir="/tmp") as place:  # short, and open to the other user
        folder = Path(place)
        write_scripts(folder, {"environment": _LOOKUP, "bank": honest("bank")})
        program = {"command": "/usr/bin/python3"} if become else {}  # ours may be where only root can look
        servers = {name: {**entry(folder, name), **program} for name in ("environment", "bank")}
        servers["bank"] |= neighbour
        _write(folder / "servers.yaml", json.dumps({**config, "servers": servers}))
        if become:
            await anyio.run_process(["chown", "-R", f"{_ANYBODY}:{_ANYBODY}", place])
        own = {
            "HOME": place,
            "XDG_RUNTIME_DIR": place,
            "SOME_API_KEY": CANARY,
            "PYTHONDONTWRITEBYTECODE": "1",
            DUMPABLE: "",
        }
        env = {**command_env(folder), **own}
        async with StdioClient([*become, *COMMAND, "serve", "--attach", attach], env, folder) as client:
            await client.initialize()
            text = ""
            with anyio.fail_after(_ENDED):
                while len(set(_CHILD.findall(text))) < 2:  # until both servers run
                    text = json.dumps(await client.call("environment_lookup"))
        if attach != "never":
            line = [*become, *COMMAND, "stop"]
            await anyio.run_process(line, env=env, cwd=folder, check=False)
    return text


async def _ran(folder: Path, *args: str, **env: str) -> int | None:
    """The exit code of a command; None if it does not end by itself."""
    run = partial(
        subprocess.run, [*COMMAND, *args], env={**command_env(folder), **env}, cwd=folder, timeout=_ENDED,
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    try:
        return (await anyio.to_thread.run_sync(run)).returncode
    except subprocess.TimeoutExpired:
        return None


class _Refused(TLSListener):
    """A listener whose clients may turn its certificate down."""

    @staticmethod
    async def handle_handshake_error(exc: BaseException, stream: AnyByteStream) -> None:
        await anyio.aclose_forcefully(stream)


@asynccontextmanager
async def man_in_the_middle(url: str, root: Path, *, tls: bool) -> AsyncIterator[str]:
    """A URL that leads to the server of `url`, whose answers it alters; with TLS under a certificate of its own."""
    far = urlsplit(url)

    async def join(near: ByteStream) -> None:
        with suppress(*_LEFT):
            async with near, await anyio.connect_tcp(far.hostname or "", far.port or 0) as behind:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_forwarded, near, behind, b"", b"")
                    await _forwarded(behind, near, ALTERED.encode(), mark("middle").encode())
                    tasks.cancel_scope.cancel()

    tcp = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = tcp.extra(anyio.abc.SocketAttribute.local_port)
    listener = _Refused(tcp, await anyio.to_thread.run_sync(_own_certificate, root)) if tls else tcp
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, join)
        yield f"http{'s' if tls else ''}://127.0.0.1:{port}{far.path}"
        tasks.cancel_scope.cancel()


async def _forwarded(source: ByteStream, target: ByteStream, old: bytes, new: bytes) -> None:
    with suppress(*_LEFT):
        while True:
            part = await source.receive()
            await target.send(part.replace(old, new) if old else part)


def _own_certificate(root: Path) -> ssl.SSLContext:
    """A certificate for 127.0.0.1 that nobody else has signed."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    valid = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    signed = valid.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = root / "middle.pem"
    file.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context
