"""A program in a terminal of its own, what it shows there, and a person who types."""

import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

ROWS, COLUMNS = 30, 100
SECONDS: Final = 90.0
_CODES: Final = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b.|\s")


class Late(Exception):
    """Something did not happen in time; the message says what, and what was seen."""


def until(is_so: Callable[[], object], said: str, seen: Callable[[], object] = str, seconds: float = SECONDS) -> None:
    """Waits until it is so. Raises `Late`, with what is `seen` then."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise Late(f"{said}: not in {seconds:g} s; {seen()}")
        time.sleep(0.05)


class Terminal:
    """A program whose stdin, stdout and stderr are a terminal of 30 lines, which is read all the time.

    `output` has what was written, with the seconds since the start. Linux only.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self.output: list[tuple[float, bytes]] = []
        self._from = 0
        self._begun = time.monotonic()
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *argv], stdin=slave, stdout=slave, stderr=slave, env=env, cwd=folder
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._master, 65536):
                self.output.append((time.monotonic() - self._begun, chunk))
        except OSError:
            pass  # how Linux says that nobody has the terminal open any more

    @property
    def text(self) -> str:
        """All that was written, without white space and codes: a program may move the cursor in place of a space."""
        return _CODES.sub("", b"".join(chunk for _, chunk in self.output).decode("utf-8", "replace"))

    def until(self, words: str, seconds: float = SECONDS) -> None:
        """Waits until these words are written, behind those that were waited for before. Raises `Late`."""
        searched = _CODES.sub("", words)
        until(lambda: searched in self.text[self._from :], words, lambda: self.text[-400:], seconds)
        self._from = self.text.index(searched, self._from) + len(searched)

    def settled(self, seconds: float = 0.7) -> None:
        """Waits until nothing was written for so long, but 3 s at most: some programs always draw."""
        end = time.monotonic() + 3
        while time.monotonic() < end and time.monotonic() - self._begun - self.output[-1][0] < seconds:
            time.sleep(0.05)

    def type(self, text: str) -> None:
        """Presses the keys, one after the other, as fast as a person does."""
        for key in re.findall(r"\x1b\[.|.", text, re.DOTALL):
            os.write(self._master, key.encode())
            time.sleep(0.02 if key.isprintable() else 0.4)

    def ended(self) -> int:
        """Waits for the end of the program; its exit code. Raises `Late`."""
        until(lambda: self.process.poll() is not None, "the end", lambda: self.text[-400:])
        return self.process.returncode

    def close(self) -> None:
        """Waits for the end of the program, and closes the terminal."""
        self.ended()
        self._reader.join(SECONDS)
        os.close(self._master)
