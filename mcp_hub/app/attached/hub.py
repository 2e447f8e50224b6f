"""The background hub: clients on one socket, HTTP on another, and an end when idle."""

import os
import socket
from collections import deque
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Final, Protocol

import anyio
import msgspec
from msgspec.structs import replace

from mcp_hub.aio import keep_running
from mcp_hub.app.attached.claim import PrivateSocket, described
from mcp_hub.app.attached.clients import Hello, answer, gone, greeted, pipes
from mcp_hub.app.build import App
from mcp_hub.app.readiness import is_to_separate
from mcp_hub.attach.environment import shared_folders
from mcp_hub.attach.folder import HTTP_SOCKET, LOG, SOCKET
from mcp_hub.attach.hello import BUILD, STOPPING, STREAM, encoded
from mcp_hub.clock import wall_time
from mcp_hub.fronts.mcp.binding import Binding
from mcp_hub.fronts.mcp.bonds import AttachedBond
from mcp_hub.fronts.stdio import StdioFront
from mcp_hub.hub import HubPort
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.sessions.clients import ClientsSeen, HubUse, PresentClient, SeenClient
from mcp_hub.stores.locks import new_instance_id

log = get_logger(__name__)

_LOOK: Final = 1.0
"""Seconds between checks for idleness and missing sockets."""
_MOST_LOG: Final = 4 << 20
"""Bytes of the hub's log until it begins again."""
_LAST_WORDS: Final = 0.5
"""Seconds for clients to read endings."""
_FAREWELL: Final = 2.0
"""Seconds to read what a client wrote before its end."""
_MOST_PRESENT: Final = 40
"""Clients listed, so that they fit into one message."""
_SHOWN: Final = 40
"""Characters per text of a client."""
_MOST_FOLDERS: Final = 128
"""Folders of the search path."""
_NOT_FOUND: Final = frozenset(("command_not_found", "lookup_failed"))
"""Codes of servers that another search path may repair."""


class _HttpSide(Protocol):
    async def serve(self, connection: socket.socket) -> None:
        """Serves one connection of this user."""

    async def dashboard(self) -> dict[str, str]:
        """The dashboard's `url` and `operator` token on this machine, or `why` not."""

    @property
    def connections(self) -> int: ...


class _Clients:
    """The connected clients."""

    def __init__(self, hub: HubPort, binding: Binding, line_limit: int, drain: Callable[[], float]) -> None:
        """`line_limit` in bytes; `drain` in seconds."""
        self._hub = hub
        self._binding = binding
        self._line_limit = line_limit
        self._drain = drain
        self._fronts: dict[StdioFront, tuple[Hello, float]] = {}

    def __len__(self) -> int:
        return len(self._fronts)

    def present(self, seen: ClientsSeen) -> list[PresentClient]:
        return [
            _present(hello, since, seen.of(hello.caller)) for hello, since in [*self._fronts.values()][:_MOST_PRESENT]
        ]

    async def serve(self, connection: socket.socket, hello: Hello) -> None:
        """Serves an accepted client until it leaves. Raises `ValueError`, `OSError` or `TimeoutError` without its two
        pipes.
        """
        read, write = await pipes(connection)
        bond = AttachedBond(self._hub, dict(hello.streams), _stream_line)
        binding = self._binding
        if hello.build != BUILD:  # for people who wonder why a client and its hub differ
            binding = binding.introduced(f"{BUILD} (client {hello.build})")
        front = StdioFront(hub=self._hub, binding=binding, caller=hello.caller, drain=self._drain, bond=bond)
        self._fronts[front] = hello, wall_time()
        log.info("client_attached", client=hello.caller.client, pid=hello.pid, build=hello.build, clients=len(self))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_watch, connection, front)
                await front.serve(read, write, self._line_limit)
                tasks.cancel_scope.cancel()
        finally:
            del self._fronts[front]
            front.close()

    def close(self) -> None:
        for front in list(self._fronts):
            front.close(STOPPING)


def _present(hello: Hello, since: float, seen: SeenClient | None) -> PresentClient:
    client = PresentClient(
        hello.pid, hide_head(hello.build, _SHOWN), since, hide_head(hello.caller.client or "", _SHOWN)
    )
    if seen is None:
        return client
    name, version = hide_head(seen.name, _SHOWN), hide_head(seen.version, _SHOWN)
    return replace(client, name=name, version=version, era=seen.era.value, calls=seen.calls)


async def _watch(connection: socket.socket, front: StdioFront) -> None:
    await gone(connection)
    await anyio.sleep(_FAREWELL)
    front.close()


def _stream_line(id_: bytes, stream: str) -> bytes:
    return b"%b%b %b\n" % (STREAM, id_, stream.encode())


class AttachedHub:
    """One background hub. `idle`: seconds without clients and calls until it ends.

    `folders` gets those of clients. While `has_folder`, removed sockets are restored.
    """

    def __init__(
        self, app: App, folder: Path, http: _HttpSide, idle: float, folders: deque[str | None],
        has_folder: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._app = app
        self._folders = folders
        self._folder = folder
        self._has_folder = has_folder
        self._http = http
        self._idle = idle
        self._clients = _Clients(
            app.hub, app.binding, app.settings.hub.limits.line, lambda: app.settings.hub.drain_timeout
        )
        self._ended = anyio.Event()
        self._used = anyio.current_time()
        self._id = new_instance_id()

    @property
    def is_idle(self) -> bool:
        """Whether there are no clients, calls and HTTP connections."""
        return not (len(self._clients) or self._app.registry.under_way or self._http.connections)

    async def run(self, stopped: anyio.Event, ready: Callable[[], None]) -> None:
        """Serves until `stopped`, idle or retired. Raises `OSError` if it cannot listen."""
        hub, http = PrivateSocket(self._folder / SOCKET), PrivateSocket(self._folder / HTTP_SOCKET)
        try:
            with described(self._folder, self._id):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(hub.serve, self._take)
                    tasks.start_soon(http.serve, self._http.serve)
                    tasks.start_soon(keep_running, "background hub", self._look_after, [hub, http])
                    tasks.start_soon(self._end_when, stopped)
                    ready()
                    await self._ended.wait()
                    hub.close()
                    await self._app.stop()
                    self._clients.close()
                    await anyio.sleep(_LAST_WORDS if len(self._clients) else 0)
                    tasks.cancel_scope.cancel()
        finally:
            hub.close()
            http.close()

    async def _end_when(self, event: anyio.Event) -> None:
        await event.wait()
        self._ended.set()

    async def _take(self, connection: socket.socket) -> None:
        try:
            fields, _ = await greeted(connection)
            if (command := fields.get("wants")) is not None:
                await self._serve_command(connection, command)
                return
            hello = Hello.of(fields)
        except (ValueError, KeyError, OSError) as problem:
            log.info("hello_refused", reason=str(problem))
            connection.close()
            return
        reply = answer(hello, BUILD, self._app.settings, clients=len(self._clients), is_idle=self.is_idle)
        log.debug("client_greeted", status=reply["status"], build=hello.build)
        await _send(connection, encoded(reply))
        if reply["status"] == "ok" and not self._ended.is_set():
            await self._serve_client(connection, hello)
            return
        connection.close()
        if reply["status"] == "retire":
            log.info("hub_retired", build=BUILD, by=hello.build)
            self._ended.set()

    async def _serve_client(self, connection: socket.socket, hello: Hello) -> None:
        try:
            self._folders.append(hello.caller.directory)
            await widen(self._app, os.environ, hello.path)
            if hello.caller.directory is not None:
                caller = await self._app.in_project(hello.caller, hello.caller.directory)
                hello = replace(hello, caller=caller)
            await self._clients.serve(connection, hello)
        except (OSError, ValueError) as problem:
            log.info("client_lost", reason=str(problem))
        except Exception:  # one client's connection must not end the others'
            log.exception("client_crashed")
        finally:
            connection.close()
        self._used = anyio.current_time()

    async def _serve_command(self, connection: socket.socket, command: str) -> None:
        reply = {"status": "ok"}
        if command == "dashboard":
            reply |= await self._http.dashboard()
        elif command == "use":
            reply["use"] = msgspec.json.encode(self._use()).decode()
        elif command != "stop":
            reply = {"status": "refused", "why": f"unknown request {hide_head(command, 50)!r}"}
        await _send(connection, encoded(reply))
        connection.close()
        if command == "stop":
            log.info("hub_stopping", by="command")
            self._ended.set()

    def _use(self) -> HubUse:
        app, clients, idle = self._app, self._clients, self._idle
        remaining = max(idle - (anyio.current_time() - self._used), 0.0) if self.is_idle else None
        calls, connections = len(app.registry.under_way), self._http.connections
        return HubUse(
            clients=clients.present(app.seen.clients),
            many=len(clients),
            calls=calls,
            connections=connections,
            idle=idle,
            left=remaining,
        )

    async def _look_after(self, sockets: list[PrivateSocket]) -> None:
        while True:
            await anyio.sleep(min(_LOOK, self._idle / 4))
            separate(self._app)
            time = anyio.current_time()
            if not self.is_idle:
                self._used = time
            elif time - self._used >= self._idle:
                log.info("hub_idle", seconds=self._idle)
                self._ended.set()
            if not self._has_folder():
                continue
            for private in sockets:
                if not private.is_there and not self._ended.is_set():
                    _restore(private)
            _bound_log(self._folder / LOG)


def _restore(private: PrivateSocket) -> None:
    try:
        private.restore()
        log.warning("socket_restored")
    except OSError as problem:
        log.warning("socket_lost", reason=problem.strerror or str(problem))


def _bound_log(path: Path) -> None:
    try:
        if path.stat().st_size > _MOST_LOG:
            os.truncate(path, 0)
    except OSError:
        pass


async def _send(connection: socket.socket, data: bytes) -> None:
    try:
        while data:
            await anyio.wait_writable(connection)
            data = data[connection.send(data) :]
    except OSError as problem:
        log.info("client_lost", reason=str(problem))


def separate(app: App) -> None:
    """Gives each client its own process of a shared server that asks, so that nobody waits for others' answers.

    A configured `scope` wins. Earlier callers keep the shared process.
    """
    for status in app.hub.statuses():
        server = app.settings.servers.get(status.server)
        if server is not None and is_to_separate(status, server):
            log.info("server_separated", upstream=status.server, reason="it asks its callers")
            app.operations.applier.isolate(status.server)


def widened(path: str, more: str) -> str:
    """The search path with further absolute folders of `more` at its end."""
    folders = path.split(os.pathsep)
    new = [
        folder for folder in dict.fromkeys(more.split(os.pathsep)) if os.path.isabs(folder) and folder not in folders
    ]
    return os.pathsep.join([*folders, *new[: max(0, _MOST_FOLDERS - len(folders))]])


async def widen(app: App, env: MutableMapping[str, str], more: str) -> None:
    """Adds to the search path; retries servers whose program was not found."""
    path = widened(env.get("PATH", ""), os.pathsep.join(shared_folders(more)))
    if path == env.get("PATH", ""):
        return
    env["PATH"] = path
    if any(status.code in _NOT_FOUND for status in app.hub.statuses()):
        await app.reloader.reload("search path")
