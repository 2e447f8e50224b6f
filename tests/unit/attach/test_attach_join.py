"""Joining: only the lock says who lives, a slow hub is waited for, and one of many clients starts the hub."""

import fcntl
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcp_hub.attach import hello
from mcp_hub.attach.arguments import HubWanted
from mcp_hub.attach.client import _joining as joining
from mcp_hub.attach.folder import LOCK, SOCKET, hub_folder, successor_folder
from mcp_hub.attach.join import NotJoined, _started, join, request

SAID = {"cwd": "/"}


class FakeHub:
    """A hub that answers hellos with these statuses, one after the other, the last for ever; it holds the lock."""

    def __init__(self, folder: Path, *statuses: str) -> None:
        self.folder = folder
        self.statuses = list(statuses)
        self.hellos: list[dict[str, str]] = []
        self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._open: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / "draft"))
        (folder / "draft").chmod(0o600)
        self._listening.listen()
        (folder / "draft").rename(folder / SOCKET)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            data = b""
            while not hello.is_whole(data) and (portion := connection.recv(4096)):
                data += portion
            if not data:
                return
            self.hellos.append(hello.decoded(data)[0])
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            if status == "silent":
                continue
            if status == "leaves":  # takes the client, and ends before it has got the pipes
                connection.shutdown(socket.SHUT_RD)
            more = {"build": "0.0.1", "why": "older"} if status == "busy" else {}
            connection.sendall(hello.encoded({"status": "ok" if status == "leaves" else status, **more}))
            if status in ("retire", "leaves"):
                self.end()
                return

    def end(self) -> None:
        """Frees the lock and the socket."""
        (self.folder / SOCKET).unlink(missing_ok=True)
        if self._lock >= 0:
            self._listening.shutdown(socket.SHUT_RDWR)
            os.close(self._lock)
            self._lock = -1
        if threading.current_thread() is not self._thread:
            self._thread.join(5)
        for one in (self._listening, *self._open):
            one.close()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[FakeHub]]:
    hubs: list[FakeHub] = []
    yield hubs
    for hub in hubs:
        hub.end()


def starting(folder: Path, hubs: list[FakeHub], *statuses: str) -> Callable[[float], None]:
    return lambda until: hubs.append(FakeHub(folder, *statuses))


def test_a_hub_is_started_where_nobody_holds_the_lock(tmp_path: Path, started: list[FakeHub]) -> None:
    joined = join(str(tmp_path), SAID, starting(tmp_path, started, "ok"))
    joined.close()
    assert joined.fields["status"] == "ok" and len(started) == 1
    assert started[0].hellos[0]["cwd"] == "/"


def test_clients_that_come_at_once_start_one_hub(tmp_path: Path, started: list[FakeHub]) -> None:
    done: list[str] = []

    def client() -> None:
        joined = join(str(tmp_path), SAID, starting(tmp_path, started, "ok"))
        done.append(joined.fields["status"])
        joined.close()

    threads = [threading.Thread(target=client) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert done == ["ok"] * 20 and len(started) == 1


def test_nobody_starts_a_hub_where_one_was_started_meanwhile(tmp_path: Path, started: list[FakeHub]) -> None:
    started.append(FakeHub(tmp_path, "ok"))

    def start(until: float) -> None:
        pytest.fail("a second hub was started")

    assert not _started(str(tmp_path), start, time.monotonic() + 5)


@pytest.mark.parametrize(
    ("status", "is_older", "reason"), [("silent", False, "does not answer"), ("busy", True, "older")]
)
def test_a_hub_that_does_not_answer_or_is_busy_is_never_replaced(
    tmp_path: Path, started: list[FakeHub], status: str, is_older: bool, reason: str
) -> None:
    started.append(FakeHub(tmp_path, status))
    with pytest.raises(NotJoined, match=reason) as problem:
        join(str(tmp_path), SAID, starting(tmp_path, started, "ok"), patience=0.2)
    assert problem.value.is_older is is_older
    assert len(started) == 1


def test_a_lock_without_a_socket_is_waited_for(tmp_path: Path, started: list[FakeHub]) -> None:
    lock = os.open(tmp_path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(NotJoined, match="did not answer within"):
        join(str(tmp_path), SAID, starting(tmp_path, started, "ok"), patience=0.2)
    os.close(lock)
    assert not started


def test_a_socket_that_a_killed_hub_left_behind_is_no_hub(tmp_path: Path, started: list[FakeHub]) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET))
    (tmp_path / SOCKET).chmod(0o600)

    def start(until: float) -> None:
        (tmp_path / SOCKET).unlink()
        started.append(FakeHub(tmp_path, "ok"))

    join(str(tmp_path), SAID, start).close()
    assert len(started) == 1


def test_an_older_hub_retires_once_and_its_successor_is_taken_whatever_its_build(
    tmp_path: Path, started: list[FakeHub]
) -> None:
    old = FakeHub(tmp_path, "retire")
    started.append(old)
    joined = join(str(tmp_path), SAID, starting(tmp_path, started, "ok"))
    joined.close()
    assert "final" not in old.hellos[0] and started[1].hellos[0]["final"] == "1"


def test_a_hub_that_ends_before_it_has_the_pipes_is_followed_by_another(tmp_path: Path, started: list[FakeHub]) -> None:
    started.append(FakeHub(tmp_path, "leaves"))
    join(str(tmp_path), SAID, starting(tmp_path, started, "ok")).close()
    assert [len(hub.hellos) for hub in started] == [1, 1]


def test_start_that_fails_and_a_request_to_nobody_say_why(tmp_path: Path) -> None:
    def start(until: float) -> None:
        raise NotJoined("no interpreter")

    before = time.monotonic()
    with pytest.raises(NotJoined, match="no interpreter"):
        join(str(tmp_path), SAID, start)
    assert time.monotonic() - before < 5
    with pytest.raises(NotJoined, match="nobody listens"):
        request(str(tmp_path), "stop")


def test_clients_of_a_newer_build_share_one_hub_beside_an_older_one_that_is_in_use(
    started: list[FakeHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as state:
        env = {"XDG_RUNTIME_DIR": "", "MCP_HUB_STATE_DIR": state, "HOME": "/home/ann"}

        def start(folder: str, *about: object) -> None:
            started.append(FakeHub(Path(folder), "ok"))

        monkeypatch.setattr("mcp_hub.attach.start.start_hub", start)
        folder = hub_folder("/a.yaml", [], env)
        joined = joining(HubWanted([], "/a.yaml", None, None, None), [], env)
        older = FakeHub(Path(folder), "busy")
        try:
            for _ in range(2):
                joined("").close()
            (newer,) = started
            assert str(newer.folder) == successor_folder(folder, "/a.yaml", [], env) and len(older.hellos) == 1
        finally:
            older.end()
        joined("").close()
        assert started == [newer] and len(newer.hellos) == 3, "it is used as long as it lives"
        newer.end()
        joined("").close()
        assert [hub.folder for hub in started] == [newer.folder, Path(folder)]
