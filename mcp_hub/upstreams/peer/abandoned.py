"""Calls that were given up: for a while their server may still log and ask on their behalf."""

from typing import Final

import msgspec
from msgspec.structs import replace

_ECHO: Final = 5.0
"""Seconds of silence after which no more messages of a call that was given up are expected."""


class _Call(msgspec.Struct, frozen=True):
    session: str
    logs_until: float
    asks_until: float


class AbandonedCalls:
    """The abandoned calls of one connection, by request id, until they are answered after all. Times are a clock's."""

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}

    def add(self, id_: int, session: str, now: float) -> None:
        self._drop_old(now)
        self._calls[id_] = _Call(session, now + _ECHO, now + _ECHO)

    def answered(self, id_: int) -> None:
        self._calls.pop(id_, None)

    def may_mean_others(self, session: str | None, now: float, *, is_question: bool) -> bool:
        """Whether a message that comes now may belong to another session than this one, which has calls in flight.

        Such a log message prolongs the wait for all abandoned calls: the server has not been silent.
        """
        self._drop_old(now)
        others = [call for call in self._calls.values() if call.session != session]
        if is_question:  # sessions have waited for this long before their turn (`Turns`)
            return any(call.asks_until > now for call in others)
        if others:
            self._calls = {id_: replace(call, logs_until=now + _ECHO) for id_, call in self._calls.items()}
        return bool(others)

    def _drop_old(self, now: float) -> None:
        self._calls = {id_: call for id_, call in self._calls.items() if call.logs_until > now}
