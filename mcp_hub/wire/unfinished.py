"""The limit for all the unfinished messages of one server together, besides the limit of each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_SMALL: Final = 1 << 16
"""Bytes that any message may have, however much others hold."""


class Unfinished:
    """Counts the bytes of all the unfinished messages of one server, of which there may be `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    @contextmanager
    def share(self, let_go: Callable[[], None]) -> Iterator[Callable[[int], bool]]:
        """The share of one response: a function of its present bytes, which returns whether there is room for them.

        In the end `let_go` drops the bytes: the traceback of an error would keep them alive for a while.
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
