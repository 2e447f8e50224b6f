"""The terminal as a `Conversation`."""

import os
import sys
from contextlib import suppress

import anyio

from mcp_hub.cli.render.output import say

with suppress(ImportError):  # Windows
    import termios

_CHUNK = 65536


def can_ask() -> bool:
    return sys.platform != "win32" and sys.stdin.isatty() and sys.stderr.isatty()


def _drop_typed(terminal: int) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    termios.tcflush(terminal, termios.TCIFLUSH)


class Terminal:
    """Drops lines that were typed before a question."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        _drop_typed(self._input)

    def tell(self, text: str) -> None:
        say(text)

    async def ask(self, prompt: str) -> str:
        """Raises `EOFError` at the end of the input."""
        say(prompt, ends_line=False)
        try:
            await anyio.wait_readable(self._input)
        except anyio.get_cancelled_exc_class():
            self.tell("")
            raise
        try:
            line = os.read(self._input, _CHUNK)  # a terminal has one line for each read
        except OSError:
            line = b""
        if not line:
            raise EOFError
        return line.decode("utf-8", "replace").rstrip("\r\n")
