"""Processes in a real sandbox: what is closed is closed, and the same things work outside."""

import fcntl
import os
import resource
import signal
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from msgspec import UNSET

from mcp_hub.addresses import HostRule
from mcp_hub.errors import StartFailed
from mcp_hub.sandbox import confinement
from mcp_hub.sandbox.confinement import ABI_LIMIT, landlock_abi
from mcp_hub.sandbox.connector import _CallRate
from mcp_hub.sandbox.network.interface import Refusals
from mcp_hub.sandbox.rules import Rule
from tests.unit.fakes import HandClock
from tests.unit.sandbox.confined import (
    PYTHON,
    SECONDS,
    TRY,
    listener,
    needs_sandbox,
    output,
    python,
    sandbox_of,
    spawned,
)

pytestmark = [needs_sandbox(), pytest.mark.anyio, pytest.mark.processes]

HOSTS = Rule(write=(), net="hosts", hosts=(HostRule("example.com"),))


class EchoProxy:
    """A proxy that answers the first bytes of each connection with its name, in capital letters."""

    def __init__(self) -> None:
        self.servers: list[str] = []

    async def run(self) -> None:
        """Nothing to do."""

    def serve(self, connection: socket.socket, server: str, hosts: Sequence[HostRule], refusals: Refusals) -> None:
        """See `network.Proxy`."""
        self.servers.append(server)
        threading.Thread(target=self._answer, args=(connection,)).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(20)
            connection.sendall(connection.recv(100).upper())


async def test_files_are_closed_except_for_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("user/read", "user/write"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "user/canary").write_text("secret")
    (tmp_path / "user/read/file").write_text("text")
    (tmp_path / "user/write/link").symlink_to(tmp_path / "user/canary")
    sandbox = sandbox_of(tmp_path, Rule(read=("~/read",), write=("~/write",)))
    user = tmp_path / "user"
    code = (
        TRY
        + f"""
attempt("read", open, "{user}/read/file")
attempt("canary", open, "{user}/canary")
attempt("link", open, "{user}/write/link")
attempt("hardlink", os.link, "{user}/read/file", "{user}/write/hard")
attempt("self", open, "/proc/self/root{user}/canary")
attempt("list", os.listdir, "{user}")
attempt("change", open, "{user}/read/file", "a")
attempt("truncate", os.truncate, "{user}/read/file", 0)
attempt("truncated", os.open, "{user}/read/file", os.O_RDONLY | os.O_TRUNC)
attempt("write", open, "{user}/write/new", "w")
attempt("home", open, os.path.expanduser("~/new"), "w")
attempt("temporary", open, os.environ["TMPDIR"] + "/new", "w")
attempt("settings", open, os.environ["NPM_CONFIG_USERCONFIG"], "a")
attempt("tmp", open, "/tmp/mcp-hub-test", "w")
attempt("null", open, "/dev/null", "w")
attempt("flags", __import__("fcntl").ioctl, os.open("{user}/read/file", os.O_RDONLY), 0x40086602, bytes(8))
attempt("parent", open, "/proc/{os.getpid()}/environ", "rb")
attempt("memory", open, "/proc/{os.getpid()}/mem", "rb")
"""
    )
    expected = {
        "read": "open", "canary": "13", "link": "13", "hardlink": "18", "self": "13", "list": "13", "change": "13",
        "truncate": "13", "truncated": "13", "write": "open", "home": "open", "temporary": "open", "settings": "13",
        "tmp": "13", "null": "open", "parent": "13", "memory": "13",
        "flags": "25",
    }  # fmt: skip
    assert dict(line.split() for line in (await python(sandbox, code)).splitlines()) == expected
    assert (user / "read/file").read_text() == "text"
    assert (user / "canary").read_text() == "secret"


_OF_LIBC = 0b11 << 31
"""Signals 32 and 33, which the C library keeps for itself: no program can set them through it."""


async def test_a_process_holds_nothing_of_the_hub(tmp_path: Path) -> None:
    code = "import os\nprint(sorted(os.listdir('/proc/self/fd'), key=int))\nprint(open('/proc/self/status').read())"
    low, high = os.open("/etc/passwd", os.O_RDONLY), fcntl.fcntl(0, fcntl.F_DUPFD, 700)
    of_nohup = int(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)  # what it runs, and all that comes of that
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        argv = [PYTHON, "-I", "-S", "-c", code]
        text = await output(sandbox_of(tmp_path), argv, inherited=[low, high])
        shell = ["/bin/sh", "-c", "ulimit -c; grep SigIgn /proc/self/status"]
        settings = await output(sandbox_of(tmp_path), shell)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
        os.close(low)
        os.close(high)
    first, *lines = text.splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert first == "['0', '1', '2', '3']"  # the last one is that of the list itself
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    core, _, ignored = settings.split()
    assert (core, int(ignored, 16) & ~_OF_LIBC) == ("0", of_nohup)


async def test_calls_of_the_table_are_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract:
        abstract.bind("\0mcp-hub-test-" + str(os.getpid()))
        code = (
            TRY
            + f"""
attempt("unix", socket.socket, socket.AF_UNIX)
attempt("pair", socket.socketpair)
attempt("datagrams", socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)
attempt("mptcp", socket.socket, socket.AF_INET, socket.SOCK_STREAM, 262)
attempt("ptrace", libc.ptrace, 16, {os.getpid()}, 0, 0)
attempt("unshare", libc.unshare, 0x10000000)
attempt("io_uring", libc.syscall, 425, 4, 0)
attempt("signal", os.kill, {os.getpid()}, 0)
attempt("limits", libc.prlimit, {os.getpid()}, 7, 0, 0)
attempt("thread", subprocess.run, ["/bin/true"])
"""
        )
        answer = await python(sandbox_of(tmp_path), code)
    expected = {
        "unix": "13", "pair": "open", "datagrams": "13", "mptcp": "13", "ptrace": "1", "unshare": "1", "io_uring": "1",
        "signal": "1", "limits": "1", "thread": "open",
    }  # fmt: skip
    assert dict(line.split() for line in answer.splitlines()) == expected


async def test_each_connection_reaches_the_proxy_and_nothing_else(tmp_path: Path) -> None:
    proxy = EchoProxy()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        code = (
            TRY
            + f"""
def ask(family, address, is_blocking):
    with socket.socket(family) as s:
        s.setblocking(is_blocking)
        s.connect(address)
        s.setblocking(True)
        s.sendall(b"hello")
        return s.recv(100).decode(), s.getblocking(), os.get_inheritable(s.fileno())
print(ask(socket.AF_INET, {address}, True), ask(socket.AF_INET, ("192.0.2.1", 9), False))
print(ask(socket.AF_INET6, ("::1", 443), True))
s = socket.socket()
s.connect(("192.0.2.1", 443))
attempt("again", s.connect, ("192.0.2.1", 443))
attempt("listen", s.listen)
attempt("bind", socket.socket().bind, ("127.0.0.1", 0))
attempt("udp", socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
attempt("fast", lambda: socket.socket().sendto(b"x", 0x20000000, {address}))
attempt("file", libc.connect, os.open("/dev/null", os.O_RDONLY), b"x", 1)
attempt("closed", libc.connect, 77, b"x", 1)
"""
        )
        lines = (await python(sandbox_of(tmp_path, HOSTS, proxy), code)).splitlines()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    answer = "('HELLO', True, False)"
    assert lines[:2] == [f"{answer} {answer}", answer]
    expected = {"again": "106", "listen": "13", "bind": "13", "udp": "13", "fast": "13", "file": "88", "closed": "9"}
    assert dict(line.split() for line in lines[2:]) == expected
    assert set(proxy.servers) == {"test"} and len(proxy.servers) == 4


def test_calls_beyond_the_rate_wait() -> None:
    clock = HandClock()
    rate = _CallRate(clock)
    assert [rate.take() for _ in range(101)] == [True] * 100 + [False]
    assert rate.pause() == pytest.approx(0.01)
    clock.time += 0.0101
    assert [rate.take(), rate.take()] == [True, False]
    clock.time += 3600
    assert sum(rate.take() for _ in range(500)) == 100


async def test_listed_sockets_are_connected_by_the_hub(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    allowed, other = tmp_path / "run/agent", tmp_path / "run/other"
    (tmp_path / "run/link").symlink_to(other)
    moved = tmp_path / "run/moved"
    engine = listener(tmp_path / "run/docker.sock")
    with listener(allowed), listener(other), engine, socket.create_server(("127.0.0.1", 0)) as server:
        (tmp_path / "run/docker.sock").rename(moved)  # an engine's by another name
        sandbox = sandbox_of(tmp_path, Rule(write=(), sockets=(str(allowed), str(moved))))
        code = (
            TRY
            + f"""
def ask(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        print(s.recv(500).decode())
attempt("allowed", ask, "{allowed}")
attempt("other", ask, "{other}")
attempt("link", ask, "{tmp_path}/run/link")
attempt("abstract", ask, "\\0x")
attempt("engine", ask, "/run/docker.sock")
attempt("moved", ask, "{moved}")
attempt("own", ask, os.environ["HOME"] + "/x")
attempt("datagrams", socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM)
attempt("tcp", socket.create_connection, {server.getsockname()})
"""
        )
        lines = (await python(sandbox, code)).splitlines()
    refused = [f"{name} 13" for name in ("other", "link", "abstract", "engine", "moved", "own", "datagrams")]
    assert lines == [str(allowed), "allowed open", *refused, "tcp open"]
    entries = {refusal.target: (refusal.kind, refusal.entry) for refusal in sandbox.refusals.latest()}
    assert sandbox.latest is not None
    own = sandbox.latest.confinement.variables["HOME"] + "/x"  # where no rule may have one: no line
    paths = {path: path for path in (str(other), f"{tmp_path}/run/link")}
    assert entries == {
        target: ("socket", entry)
        for target, entry in {
            **paths,
            **dict.fromkeys(("(abstract)", "/run/docker.sock", str(moved), own), UNSET),
        }.items()
    }


async def test_a_closed_network_has_no_sockets(tmp_path: Path) -> None:
    code = TRY + "attempt('tcp', socket.socket)\nattempt('six', socket.socket, socket.AF_INET6)"
    assert await python(sandbox_of(tmp_path, Rule(write=(), net="none")), code) == "tcp 13\nsix 13"


@pytest.mark.parametrize("abi", range(1, landlock_abi()))
async def test_an_older_landlock_keeps_files_and_hosts_closed(
    tmp_path: Path, abi: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ABI_LIMIT, str(abi))
    (tmp_path / "user/read").mkdir(parents=True)
    file = tmp_path / "user/read/file"
    file.write_text("text")
    (tmp_path / "user/canary").write_text("secret")
    rule = Rule(read=("~/read",), write=(), net="hosts", hosts=(HostRule("example.com"),))
    proxy = EchoProxy()
    sandbox = sandbox_of(tmp_path, rule, proxy)
    code = (
        TRY
        + f"""
attempt("canary", open, "{tmp_path}/user/canary")
attempt("truncate", os.truncate, "{file}", 0)
attempt("truncated", os.open, "{file}", os.O_RDONLY | os.O_TRUNC)
attempt("append", open, "{file}", "a")
attempt("bind", socket.socket().bind, ("127.0.0.1", 0))
attempt("unix", socket.socket, socket.AF_UNIX)
s = socket.create_connection(("192.0.2.1", 443))
s.sendall(b"x")
print("host", s.recv(1).decode())
"""
    )
    names = ("canary", "truncate", "truncated", "append", "bind", "unix")
    answers = dict(line.split() for line in (await python(sandbox, code)).splitlines())
    assert answers == {**dict.fromkeys(names, "13"), "host": "X"}
    assert file.read_text() == "text"
    assert bool(sandbox.notes) == (abi < 6)


async def test_a_command_that_cannot_be_executed_has_the_usual_codes(tmp_path: Path) -> None:
    script, text = tmp_path / "script", tmp_path / "text"
    script.write_text("#!/no/interpreter\n")
    script.chmod(0o755)
    text.write_text("no program")
    rule = Rule(read=(str(tmp_path / "script"), str(tmp_path / "text")), write=())
    rows = [(script, "interpreter_not_found"), (text, "not_executable")]
    for program, code in rows:
        with pytest.raises(BaseExceptionGroup) as failed:
            await output(sandbox_of(tmp_path, rule), [str(program)])
        (error,) = failed.value.exceptions
        assert isinstance(error, StartFailed) and error.code == code


async def test_a_system_without_a_sandbox_starts_nothing_unless_it_is_only_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "landlock_abi", lambda: 0)
    with pytest.raises(StartFailed) as failed:
        sandbox_of(tmp_path).prepare(["/bin/true"], {}, "/", is_spare=False)
    assert failed.value.code == "sandbox_unsupported"
    preferred = sandbox_of(tmp_path, Rule(is_preferred=True))
    assert preferred.prepare(["/bin/true"], {}, "/", is_spare=False) is None
    assert "without a sandbox" in preferred.notes[0]


async def test_the_loader_of_the_confining_program_takes_nothing_from_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty entry of the variable is the working directory, which the server of the start before could write."""
    folder = tmp_path / "user/folder"
    folder.mkdir(parents=True)
    for name in ("libc.so.6", "libm.so.6"):
        (folder / name).write_text("no library")
    sandbox = sandbox_of(tmp_path, Rule(write=("~/folder",)))
    for value in (":/usr/lib", str(folder), f"/usr/lib;{folder}:"):
        monkeypatch.setenv("LD_LIBRARY_PATH", value)
        assert await output(sandbox, ["/bin/echo", "runs"], cwd=str(folder)) == "runs\n"


async def test_a_folder_that_became_a_link_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "user/data").mkdir(parents=True)
    sandbox = sandbox_of(tmp_path, Rule(write=("~/data",)))
    start = sandbox.prepare(["/bin/true"], {"PATH": "/bin"}, "/", is_spare=False)
    assert start is not None
    (tmp_path / "user/data").rmdir()
    (tmp_path / "user/data").symlink_to(tmp_path)
    process = spawned(start)
    async with anyio.create_task_group() as tasks:
        with pytest.raises(StartFailed) as failed, anyio.fail_after(SECONDS):
            await start.begin(tasks)
    assert failed.value.code == "sandbox_refused"
    process.communicate()
    assert process.returncode == 126
