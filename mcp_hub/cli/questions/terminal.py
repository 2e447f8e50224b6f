"""The terminal as a `Conversation`: prompts on stderr, lines from stdin, read without blocking the call."""

import os
import sys
from contextlib import suppress

import anyio

from mcp_hub.cli.render.output import say

with suppress(ImportError):  # Windows
    import termios

_CHUNK = 65536


def can_ask() -> bool:
    """Whether a person can read a question on stderr and type an answer."""
    return sys.platform != "win32" and sys.stdin.isatty() and sys.stderr.isatty()


def _drop_typed(terminal: int) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    termios.tcflush(terminal, termios.TCIFLUSH)


class Terminal:
    """Lines that were typed before a question count for nothing: nobody can have meant them."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        _drop_typed(self._input)

    def tell(self, text: str) -> None:
        """Shows a line, whose control characters its author has spelled out."""
        say(text)

    async def ask(self, prompt: str) -> str:
        """The line typed after the prompt. Raises `EOFError` at the end of the input, and without a terminal."""
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
