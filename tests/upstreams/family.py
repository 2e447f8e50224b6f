"""A server that leaves as much behind as it can: starts a family of processes, then becomes the program it is given.

`python family.py FOLDER PROGRAM [ARGUMENT…]`. A file in the folder names all of them: `{"mark", "pids": {kind: pid},
"starts": {kind: start time}}`, mark being its `MCP_HUB_CHILD`. With `--dial` in place of the folder the family is one
process that connects all the time. Needs the standard library and Linux.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def descriptors(pid: int) -> dict[str, str]:
    """What a process has open, by number."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed in between
            found[entry.name] = os.readlink(entry)
    return found


def start_time(pid: int) -> int | None:
    """Tells processes with the same number apart; None if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return None


def forked(work: Callable[[], None]) -> int:
    """A child that ignores SIGTERM and does `work`, and then nothing for ever."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        work()
        while True:
            signal.pause()
    return pid


def nothing() -> None:
    pass


def wipe() -> None:
    """No environment, and a group of its own, in the server's session."""
    os.setpgid(0, 0)
    program = "import signal\nwhile True: signal.pause()"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", program], {})


def have_children() -> None:
    """In a session of its own."""
    os.setsid()
    forked(nothing)
    forked(os.setsid)


def be_brief() -> None:
    """Ends, and the server never asks how: a zombie until the server's own end."""
    os.setsid()
    time.sleep(0.1)
    os._exit(0)


def dial() -> None:
    """Connects 20 times a second to a closed port. In a sandbox with hosts the proxy of the hub takes its place."""
    while True:
        time.sleep(0.05)
        with suppress(OSError), socket.create_connection(("127.0.0.1", 9), 5) as connection:
            connection.sendall(b"CONNECT refused.example:443 HTTP/1.1\r\nHost: refused.example\r\n\r\n")
            connection.recv(100)


def run_away() -> None:
    """A new process in a new session ten times a second, each the child of one that has ended."""
    while True:
        os.setsid()
        while os.fork():
            os._exit(0)
        time.sleep(0.1)


def daemon(work: Callable[[], None]) -> int:
    """Forked twice: its parent has ended. Keeps no descriptor."""
    read, write = os.pipe()
    first = os.fork()
    if not first:
        os.setsid()

        def told() -> None:
            os.write(write, str(os.getpid()).encode())
            os.closerange(0, 100)
            work()

        forked(told)
        os._exit(0)
    os.waitpid(first, 0)
    os.close(write)
    pid = int(os.read(read, 20))
    os.close(read)
    return pid


def main() -> None:
    folder, *argv = sys.argv[1:]
    if folder == "--dial":
        forked(dial)
        os.execv(argv[0], argv)
    pids = {
        "server": os.getpid(),
        "child": forked(nothing),
        "session": forked(os.setsid),
        "daemon": daemon(nothing),
        "parent": forked(have_children),
        "wiped": forked(wipe),
        "dialer": forked(dial),
    }
    starts = {kind: start_time(pid) for kind, pid in pids.items()}
    forked(be_brief)
    daemon(run_away)
    record = {"mark": os.environ.get("MCP_HUB_CHILD"), "pids": pids, "starts": starts}
    draft = Path(folder, f"{os.getpid()}.{starts['server']}.draft")
    draft.write_text(json.dumps(record))
    draft.rename(draft.with_suffix(".json"))
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
