"""Newline framing of a byte stream: linear in bytes, bounded in memory, indifferent to how the bytes arrive.

Source: specification, transports/stdio ("messages are delimited by newlines").
"""

import msgspec

_HEAD = 4096
"""Bytes kept of a line that is too long: enough to read its id, which every writer we know puts first."""


class TooLong(msgspec.Struct, frozen=True):
    """Stands where a line over the limit stood; `head` is its beginning, `size` its length so far."""

    head: bytes
    size: int


class Framer:
    """Cuts chunks into lines without their terminator. Blank lines are left out.

    A line of more than `limit` bytes becomes one `TooLong` as soon as that is known; the rest of it is skipped.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """The lines that `chunk` completes."""
        if not (self._size or self._skipping) and len(chunk) <= self._limit and chunk[-1:] == b"\n":
            if chunk.find(b"\n") != len(chunk) - 1:
                return [line for line in chunk.split(b"\n") if line and not line.isspace()]
            line = chunk[:-1]  # one whole line, as a peer writes that waits for its answer
            return [line] if line and not line.isspace() else []
        first, *rest = chunk.split(b"\n")
        if not rest:
            return self._keep(first)
        frames = self._keep(first)
        if not self._skipping:
            self._emit(b"".join(self._parts), frames)
        self._reset()
        last = rest.pop()
        for line in rest:
            if len(line) > self._limit:
                frames.append(TooLong(line[:_HEAD], len(line)))
            else:
                self._emit(line, frames)
        frames += self._keep(last)
        return frames

    def finish(self) -> list[bytes | TooLong]:
        """The unterminated rest at the end of the stream, if there is one."""
        frames: list[bytes | TooLong] = []
        if not self._skipping:
            self._emit(b"".join(self._parts), frames)
        self._reset()
        return frames

    def _keep(self, piece: bytes) -> list[bytes | TooLong]:
        if self._skipping or not piece:
            return []
        self._parts.append(piece)
        self._size += len(piece)
        if self._size <= self._limit:
            return []
        head, size = self._head(), self._size
        self._reset()
        self._skipping = True
        return [TooLong(head, size)]

    def _head(self) -> bytes:
        """The beginning of the line, without putting all of it together."""
        head = b""
        for part in self._parts:
            head += part[: _HEAD - len(head)]
            if len(head) == _HEAD:
                break
        return head

    def _reset(self) -> None:
        self._parts.clear()
        self._size = 0
        self._skipping = False

    @staticmethod
    def _emit(line: bytes, frames: list[bytes | TooLong]) -> None:
        if line and not line.isspace():
            frames.append(line)
