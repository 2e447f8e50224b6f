"""`forked_command.py SOCKET ARG…`: the `mcp-hub` command in a process that a fork server starts.

It stands for that process: same streams, folder, environment and umask, signals are passed on, and it ends as that one
ends. Where no fork server answers, or it declines, the command is executed here. Run with `-I -S`: it has to be quick.
"""

import os
import signal
import socket
import sys

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _request(arguments: list[str]) -> bytes:
    umask = os.umask(0)
    os.umask(umask)
    env = [b"%b=%b" % entry for entry in os.environb.items()]
    parts = [os.getcwdb(), b"%d" % umask, b"%d" % len(arguments), *map(os.fsencode, arguments), *env]
    body = b"\0".join(parts)
    return b"%12d" % len(body) + body


def _line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        part = connection.recv(1)
        if not part:
            return b""
        line += part
    return line


def _record(path: str, pid: int) -> None:
    """Writes whose process this one stands for, into a file beside the socket."""
    name = f"{path}.{os.getpid()}"
    with open(f"{name}.new", "w") as file:
        file.write(str(pid))
    os.rename(f"{name}.new", name)


def _forked(path: str, arguments: list[str]) -> int | None:
    """The exit status of the command, as wait(2) has it; None if it was not started."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
            request = _request(arguments)
            sent = socket.send_fds(connection, [request], [0, 1, 2])
            if sent < len(request):  # nothing is sent to a server that has it all: the command may have ended
                connection.sendall(request[sent:])
            pid = int(_line(connection) or 0)
        except OSError:
            return None
        if not pid:
            return None
        _record(path, pid)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # they are those of the command: who reads them sees their end
            os.dup2(nothing, stream)
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda number, _: os.kill(pid, number))
        try:
            connection.sendall(b"\n")
        except OSError:  # the command has ended already: its status can be read
            pass
        return int(_line(connection) or signal.SIGKILL)


def main() -> None:
    """Ends as the command ends."""
    status = _forked(sys.argv[1], sys.argv[2:])
    if status is None:
        _record(sys.argv[1], os.getpid())
        os.execv(sys.executable, [sys.executable, "-m", "mcp_hub", *sys.argv[2:]])
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
