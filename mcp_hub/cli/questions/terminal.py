"""The terminal as a `Conversation`: prompts on stderr, lines from stdin, read without blocking the call."""

import os
import sys

import anyio

try:
    import termios
except ImportError:  # Windows
    has_lines = False
else:
    has_lines = True

from mcp_hub.cli.render.output import say

_CHUNK = 65536


def can_ask() -> bool:
    """Whether a person can read a question on stderr and type an answer."""
    return has_lines and sys.stdin.isatty() and sys.stderr.isatty()


class Terminal:
    """Lines that were typed before a question count for nothing: nobody can have meant them."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        termios.tcflush(self._input, termios.TCIFLUSH)

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
