"""The stand-in for a forked command."""

import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from tests import fork_server

STAND_IN = Path(fork_server.__file__).with_name("forked_command.py")


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="commands are not forked")
@pytest.mark.parametrize("code", [0, 2])
def test_command_that_ends_before_its_stand_in_is_ready_has_its_exit_code(tmp_path: Path, code: int) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path := str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(60)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                socket.recv_fds(connection, 1 << 20, 3)
                connection.shutdown(socket.SHUT_RD)
                connection.sendall(b"1\n%d\n" % (code << 8))

        server = Thread(target=serve)
        server.start()
        line = [sys.executable, "-I", "-S", str(STAND_IN), path, "--version"]
        assert subprocess.run(line, timeout=240, env={}).returncode == code
        server.join()
