"""The command on a terminal of its own, and a person who reads and types there."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fork_server import forked_command
from tests.unit.cli.command import SECONDS, command_env


class Terminal:
    """A running command whose stdin, stdout and stderr are this terminal; Ctrl-C and Ctrl-D do what they do there."""

    def __init__(self, process: "subprocess.Popen[bytes]", master: int) -> None:
        self.process = process
        self._master = master
        self._written = bytearray()
        self._seen = 0

    @property
    def text(self) -> str:
        """All that was written so far."""
        return self._written.decode(errors="replace")

    def until(self, words: str) -> None:
        """Reads until these words are written, behind those that were waited for before."""
        while (found := self._written.find(words.encode(), self._seen)) < 0:
            assert self._read(), f"{words!r} never came: {self.text}"
        self._seen = found + len(words.encode())

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def answer(self, prompt: str, text: str) -> None:
        """Types a line behind a prompt."""
        self.until(prompt)
        self.type(f"{text}\n")

    def end(self) -> int:
        """The exit code, when all is written."""
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def _read(self) -> bool:
        assert select.select([self._master], [], [], SECONDS)[0], f"nothing came behind: {self.text}"
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # how Linux says that nobody has the terminal open any more
            chunk = b""
        self._written += chunk
        return bool(chunk)


@contextmanager
def terminal(folder: Path, *args: str, columns: int = 100) -> Iterator[Terminal]:
    """The command on a terminal of 40 lines."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {**command_env(folder), "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [*forked_command(), *args],
        stdin=slave, stdout=slave, stderr=slave, env=env, cwd=folder, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        os.close(master)
        process.kill()
        process.wait()
