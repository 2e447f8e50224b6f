"""`python -m bench --accounts`: what accounts of principals cost: 200 principals at three servers, and 10,000 stored.

Each principal lists the tools of each server, in one process with the hub; the servers are a process of their own.
"""

import ctypes
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
from cryptography.fernet import Fernet

from mcp_hub import logs
from mcp_hub.app.build import App, open_app
from mcp_hub.config.load.load import load
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import Era, Kind
from mcp_hub.upstreams.accounts.rows import Account, Seal, row_name
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, grant_key

PRINCIPALS: Final = 200
SERVERS: Final = 3
STORED: Final = 10_000
GOAL: Final = 60.0
"""kB of an idle account without a connection."""
_TOOLS: Final = 30
_GROUP: Final = 20
"""Principals that are there at a time."""
_KEY: Final = Fernet.generate_key().decode()


def measured() -> Iterator[str]:
    """The report, line by line."""
    with tempfile.TemporaryDirectory() as folder, _serving() as url:
        root = Path(folder)
        starts = [anyio.run(_start_up, root / "none", url, 0), anyio.run(_start_up, root / "many", url, STORED)]
        yield f"start-up, ms, no accounts stored:     {starts[0] * 1000:.0f}"
        yield f"start-up, ms, {STORED:,} accounts stored: {starts[1] * 1000:.0f}"
        connected, idle, connections = anyio.run(_memory, root / "memory", url)
        verdict = "ok" if idle <= GOAL else "MISSED"
        yield f"memory, kB an account, without a connection: {idle:.1f} (goal: {GOAL:.0f}, {verdict})"
        yield f"memory, kB an account, with one:             {connected:.1f} ({connections} at once)"


async def _start_up(root: Path, url: str, stored: int) -> float:
    """The shortest of five, until all servers are settled."""
    _store(root, url, stored // SERVERS)
    times: list[float] = []
    for _ in range(5):
        begun = time.perf_counter()
        async with open_app(load(_config(root, url), {}), _env(root), owns_process=False) as app:
            await app.hub.catalog.settled()
            times.append(time.perf_counter() - begun)
    return min(times)


async def _memory(root: Path, url: str) -> tuple[float, float, int]:
    """kB of an account with a connection and without one, and the connections of all at once.

    Idle accounts: groups of principals come and go, and the memory of the first group's connections is used again.
    """
    _store(root, url, 2 * PRINCIPALS)
    people = [f"person-{number}" for number in range(PRINCIPALS)]
    async with open_app(load(_config(root, url), {}), _env(root), owns_process=False) as app:
        before = resident = 0
        for start in range(0, PRINCIPALS, _GROUP):
            for principal in people[start : start + _GROUP]:
                await _use(app, principal)
            await _ended(app)
            resident = _resident()
            before = before or resident
        idle = (resident - before) / ((PRINCIPALS - _GROUP) * SERVERS)
        for number in range(PRINCIPALS, 2 * PRINCIPALS):  # further ones, whose lists are not known
            await _use(app, f"person-{number}")
        connections = sum(status.connections or 0 for status in app.hub.statuses())
        return (_resident() - resident) / max(connections, 1), idle, connections


async def _ended(app: App) -> None:
    for upstream in app.upstream_set.upstreams.values():
        upstream.lifecycle.restart()  # as `idle_stop` ends them
    while any(status.connections for status in app.hub.statuses()):
        await app.hub.changes.wait(app.hub.changes.version)
    await anyio.sleep(2.0)


async def _use(app: App, principal: str) -> None:
    session = Session(principal, Caller(principal), Era.HANDSHAKE, "2025-11-25")
    await app.hub.views.settled(session, Kind.TOOL)
    tools = json.loads(app.hub.views.page(session, Kind.TOOL, None))["tools"]
    assert len(tools) >= SERVERS * _TOOLS, f"{principal} was listed {len(tools)} tools"
    app.hub.end(session)


def _resident() -> int:
    """kB in memory."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def _env(root: Path) -> dict[str, str]:
    return {"MCP_HUB_STATE_DIR": str(root / "state"), "HOME": str(root), "PATH": "/usr/bin:/bin"}


def _config(root: Path, url: str) -> Path:
    tokens = [{"token": "a-token-of-twenty-characters", "principal": "person-0"}]
    servers = {f"s{n}": {"url": f"{url}/{n}/mcp", "account": "own"} for n in range(SERVERS)}
    hub = {"tokens": tokens, "accounts": {"key": _KEY}, "expose": "full"}
    root.mkdir(exist_ok=True)
    file = root / "servers.json"
    file.write_text(json.dumps({"hub": hub, "servers": servers}))
    file.chmod(0o600)
    return file


def _store(root: Path, url: str, principals: int) -> None:
    """Rows as the hub writes them, without its waits for the disk."""
    folder, seal = root / "state" / "oauth" / "accounts", Seal([_KEY])
    folder.mkdir(parents=True, mode=0o700)
    for number in range(principals):
        for server in range(SERVERS):
            name, person = f"s{server}", f"person-{number}"
            grant = Grant(access_token=f"token-{number}", token_endpoint=f"{url}/token", client_id="hub", issuer=url)
            target = grant_key(f"{url}/{server}/mcp", ClientRegistration())
            row = seal.closed(Account(server=name, principal=person, target=target, issuer=url, grant=grant))
            file = folder / f"{row_name(name, person)}.json"
            file.write_bytes(row)
            file.chmod(0o600)


@contextmanager
def _serving() -> Iterator[str]:
    """Three servers in a process of their own; their URL without the path."""
    with subprocess.Popen([sys.executable, "-m", "bench.accounts"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _serve() -> None:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            person = self.headers.get("authorization", "").rpartition("-")[2]
            self._answer(200 if "id" in message else 202, _result(message, person) if "id" in message else None)

        def do_GET(self) -> None:
            self._answer(405, None)

        def do_DELETE(self) -> None:
            self._answer(200, None)

        def _answer(self, status: int, body: object) -> None:
            content = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def _result(message: dict[str, object], person: str) -> object:
    """Each person is listed thirty tools alike, and one of their own."""
    match message["method"]:
        case "initialize":
            info = {"name": "people", "version": "1"}
            result: object = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            names = [*(f"tool_{n}" for n in range(_TOOLS)), f"of_{person}"]
            text = {"type": "string", "description": "What to write. " * 5}
            schema = {"type": "object", "properties": {"text": text}}
            result = {"tools": [{"name": n, "description": "Writes it. " * 20, "inputSchema": schema} for n in names]}
        case _:
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


if __name__ == "__main__":
    _serve()
else:
    logs.configure("error", "json")
