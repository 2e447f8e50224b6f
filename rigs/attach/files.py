"""Folders, sockets and records that are gone, stale, full, not writable or somebody else's."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from rigs.attach.desktop import Skipped
from rigs.attach.place import Place, echoed, expect, greeted
from rigs.attach.trial import Trial
from rigs.report import has_sandbox
from tests.upstreams.child import Child
from tests.upstreams.family import start_time
from tests.upstreams.stdio_client import StdioClient

NOBODY = 65534
_AUTO = {"attach": "auto"}


async def socket_deleted(trial: Trial) -> None:
    """Without its socket the hub goes on for those that it has; who comes later is served, too."""
    async with trial.place(servers=("a",), hub=_AUTO) as place, place.joined() as first:
        (scope,) = place.scopes()
        (scope / "hub.sock").unlink()
        await served(place)
        await echoed(first, "the old one")


async def folder_deleted(trial: Trial) -> None:
    """The folder is removed and a second hub has made a new one: the first, when it ends, leaves that one alone."""
    async with trial.place(servers=("a",)) as place, place.joined() as first:
        old = place.hub()
        (scope,) = place.scopes()
        shutil.rmtree(scope)
        async with place.joined():
            new = {path.name: path.lstat().st_ino for path in scope.iterdir()}
            expect({"hub.sock", "hub.json"} <= new.keys(), "the second hub has no files of its own", new)
            os.kill(old, signal.SIGTERM)
            await place.gone([old])
            found = {path.name: path.lstat().st_ino for path in scope.iterdir()}
            expect(new.items() <= found.items(), f"the first hub removed files of the second: {new}", found)
            async with place.joined():
                place.hub()
            await echoed(first, "after its hub")


async def reused_pid(trial: Trial) -> None:
    """The record of a killed hub names a process of somebody else: nobody touches it, and a new hub starts."""
    with stranger() as pid:
        async with trial.place(servers=("a",)) as place:
            async with place.joined():
                record, began = place.record(), start_time(place.hub())
                (scope,) = place.scopes()
            os.kill(record["pid"], signal.SIGKILL)
            await place.gone()
            (start,) = (
                key for key, value in record.items() if value == began
            )  # what tells processes of one number apart
            for other in (began, start_time(pid)):
                (scope / "hub.json").write_text(json.dumps({**record, "pid": pid, start: other}))
                async with place.joined():
                    place.hub()
                done = await place.command("stop")
                expect(done.returncode == 0, "stop failed", done)
                await place.gone()
                expect(start_time(pid) is not None, "a process of somebody else was killed")


@contextmanager
def stranger() -> Iterator[int]:
    """A process that has nothing to do with a hub."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
    try:
        yield process.pid
        assert process.poll() is None, "a process of somebody else was ended"
    finally:
        process.kill()
        process.wait()


async def disk_full(trial: Trial) -> None:
    """On a full disk clients get a hub of their own, or attach without a record: they are served."""
    async with trial.place(servers=("a",), hub=_AUTO) as place:
        async with mounted(place.root / "run", "size=8k,mode=700"):
            fill(place.root / "run" / "filler")
            await served(place)


async def read_only(trial: Trial) -> None:
    """Where neither the runtime folder nor the state folder can be written, clients are served all the same."""
    if has_sandbox():
        raise Skipped("the private home of a sandbox needs a state folder")
    before = elsewhere()
    async with trial.place(servers=("a",), hub=_AUTO) as place:
        async with mounted(place.root / "run", "ro,mode=700"), mounted(place.root / "state", "ro,mode=700"):
            await served(place)
    for folder in elsewhere() - before:
        shutil.rmtree(folder)


def elsewhere() -> set[Path]:
    """The folders of hubs of this user that are neither in the runtime folder nor in the state folder."""
    return set(Path("/tmp", f"mcp-hub-{os.geteuid()}").glob("*/"))


async def folder_is_a_file(trial: Trial) -> None:
    """Where the folder should be, there is a file."""
    async with trial.place(servers=("a",), hub=_AUTO) as place:
        (place.root / "run" / "mcp-hub").write_text("mine")
        await served(place)
        expect((place.root / "run" / "mcp-hub").read_text() == "mine", "the file was changed")


async def foreign(trial: Trial) -> None:
    """Folder, socket, record and link of another user are not used, and the client is served all the same."""
    if os.geteuid() != 0:
        raise Skipped("only root has a second user")
    for name in ("folder", "link", "open folder", "lock", "hub.json", "hub.sock")[-trial.many(2, 6) :]:
        async with trial.place(servers=("a",), hub=_AUTO) as place:
            async with place.joined():
                (scope,) = place.scopes()
            await place.command("stop")
            await place.gone()
            made_foreign(scope, name)
            await served(place, is_private=name == "hub.sock")
            here = [path for path in place.root.rglob("hub.sock") if path.is_socket() and path.match("mcp-hub/*/*")]
            if name == "hub.sock":
                await refused_always(place)
            elif name in ("lock", "hub.json"):
                expect(place.record()["pid"] in place.hubs(), "the record is another user's", place.record())
            else:
                expect(not here, "there is a socket in a folder that is not the user's alone", here)


def made_foreign(scope: Path, name: str) -> None:
    """Gives what has this name to another user."""
    if name == "link":
        shutil.move(scope, scope.with_name("elsewhere"))
        scope.symlink_to("elsewhere")
    elif name == "open folder":
        scope.chmod(0o777)
    else:
        path = scope if name == "folder" else scope / name
        if not path.exists():
            path.write_text("{}")
            path.chmod(0o600)
        os.chown(path, NOBODY, NOBODY)


async def foreign_listener(trial: Trial) -> None:
    """Another user's process listens behind a socket that looks like ours: it is never told anything."""
    if os.geteuid() != 0:
        raise Skipped("only root has a second user")
    async with trial.place(servers=("a",), hub=_AUTO) as place:
        async with place.joined():
            (scope,) = place.scopes()
        await place.command("stop")
        await place.gone()
        heard = place.root / "heard"
        heard.touch()
        heard.chmod(0o666)
        program = [sys.executable, "-S", "-c", _LISTENER, str(scope), str(heard), str(NOBODY)]
        async with Child(program) as listener:
            await listener.wait_stderr("listening")
            await served(place, is_private=True)
            expect(heard.read_bytes() == b"", "another user's process was told", heard.read_bytes()[:200])


_LISTENER = """
import fcntl, os, socket, sys
scope, heard, uid = sys.argv[1], sys.argv[2], int(sys.argv[3])
lock = os.open(scope + "/lock", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
if os.path.exists(scope + "/hub.sock"):
    os.unlink(scope + "/hub.sock")
wire = socket.socket(socket.AF_UNIX)
wire.bind(scope + "/hub.sock")
os.chmod(scope + "/hub.sock", 0o600)
file = open(heard, "ab", buffering=0)
os.setgid(uid)
os.setuid(uid)
wire.listen(8)
print("listening", file=sys.stderr, flush=True)
while True:
    client, _ = wire.accept()
    while data := client.recv(65536):
        file.write(data)
"""


async def served(place: Place, *, is_private: bool = False) -> None:
    """A new client is served at once, on `auto`; one with a hub of its own is told why in one line. Raises `Fault`."""
    async with place.client("--attach", "auto") as client:
        await greeted(client, seconds=30)
        await echoed(client, f"served {client.pid}")
        if is_private:
            expect(client.pid in place.owners("a"), "it was served by another process", place.owners("a"))
            await said_once(client)


async def said_once(client: StdioClient) -> None:
    """That it does not share a hub. Raises `Fault` unless it is one line."""
    lines = [line for line in client.stderr.splitlines() if "a hub of its own" in line]
    expect(len(lines) == 1, "not one line on stderr", client.stderr[-1000:])


async def refused_always(place: Place) -> None:
    """`--attach always` ends with 3 in place of a hub of its own. Raises `Fault`."""
    async with place.client("--attach", "always") as client:
        code = await client.wait(30)
        expect(code == 3, f"--attach always ended with {code}, not 3", client.stderr[-500:])
        expect("[not_attached]" in client.stderr, "no code on stderr", client.stderr[-500:])


@asynccontextmanager
async def mounted(folder: Path, options: str) -> AsyncIterator[None]:
    """A file system in memory at this folder. Raises `Skipped` where none can be mounted."""
    done = await anyio.run_process(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False)
    if done.returncode:
        raise Skipped(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.run_process(["umount", "--lazy", str(folder)], check=False)


def fill(path: Path) -> None:
    """Leaves no byte of the file system that this file is on."""
    with path.open("wb", buffering=0) as file:
        size = 65536
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2
