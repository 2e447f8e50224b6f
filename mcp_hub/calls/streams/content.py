"""Partial content of a durable call's present attempt: whether there is any, and where it begins in the stream."""

import msgspec

from mcp_hub.events import Delta, Reset


class PartialContent:
    """Known twice: as it is sent (`is_any`), and with its numbers once it is written."""

    __slots__ = ("_first", "is_any")

    def __init__(self) -> None:
        self.is_any = False
        self._first = 0

    def add(self) -> None:
        """There is some."""
        self.is_any = True

    def reset(self) -> None:
        """The attempt has failed."""
        self.is_any = False

    def placed(self, event: Delta | Reset, seq: int) -> Delta | Reset:
        """The event that is written under this number: a `Reset` with the number of the first that it is about."""
        first = self._first or seq
        if isinstance(event, Delta):
            self._first = first
            return event
        self._first = 0
        return msgspec.structs.replace(event, discard_from=first)
