"""How much a server may have sent at once of messages that are not whole: each has its limit, all together have one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["Unfinished"]

_SMALL: Final = 1 << 16
"""Bytes that any message may have, however much others hold."""


class Unfinished:
    """Counts the bytes of all the unfinished messages of one server, of which there may be `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    @contextmanager
    def share(self, let_go: Callable[[], None]) -> Iterator[Callable[[int], bool]]:
        """That of one response, which is told how many bytes it holds now; says whether there is room for so many.

        In the end it has to `let_go` of them: an error that tells of them would keep them alive for a while.
        """
        mine = 0

        def fits(size: int) -> bool:
            nonlocal mine
            self.held += size - mine
            mine = size
            return size <= _SMALL or self.held <= self.most

        try:
            yield fits
        finally:
            let_go()
            self.held -= mine
