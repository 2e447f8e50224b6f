"""Decides when a server's lists are read again. Sans-I/O; times are seconds of one clock."""

from typing import Final, Literal

import msgspec

from mcp_hub.types import Kind

_SETTLE: Final = 0.1
"""Seconds to collect `list_changed` notifications before listing again."""
_FREE: Final = 5
"""Changes in a row without a longer pause: a server may add tools one by one."""
_LONGEST: Final = 5.0
_QUIET: Final = 10.0
"""Seconds without a change after which everything is forgiven."""
_HOUR: Final = 3600.0
"""The greatest age of a list, and how often an unsteady one is taken over."""
_NEWCOMER: Final = 10
"""At a client's first listing, lists are read again at this fraction of the age."""
_LEAST_TTL: Final = 10.0
"""Seconds; a shorter TTL of a server counts as this."""
_UNSTEADY: Final = 3
"""Different readings in a row after which a list is unsteady."""
_DOUBT: Final = 5.0
_MOST_DOUBT: Final = 300.0
"""Seconds between readings for a doubt; doubled while they show nothing new."""

Doubt = Literal["entry", "stream"]
"""Reasons to read at once: the server does not know an entry, or its stream of announcements broke."""
Verdict = Literal["same", "news", "held"]


class Pacer:
    """The pauses after one server's announcements."""

    def __init__(self) -> None:
        self._last = -_QUIET
        self._streak = 0

    def pause(self, now: float) -> float:
        """Seconds between an announcement at `now` and the reading."""
        self._streak = self._streak + 1 if now - self._last < _QUIET else 0
        pause = min(_SETTLE * 2.0 ** max(0, self._streak - _FREE), _LONGEST)
        self._last = now + pause
        return pause


class _Age(msgspec.Struct):
    tried: float
    taken: float
    factor: int = 1
    streak: int = 0
    content: str = ""


class ListAges:
    """The ages of one server's lists."""

    def __init__(self) -> None:
        self._ages: dict[Kind, _Age] = {}
        self._doubts: dict[Doubt, tuple[float, float]] = {}  # when, and seconds until the next

    @property
    def unsteady(self) -> list[Kind]:
        return [kind for kind, age in self._ages.items() if age.streak > _UNSTEADY]

    def taken(self, kind: Kind, now: float) -> None:
        """Notes a reading that was taken over."""
        age = self._ages.get(kind)
        streak = 0 if age is None else age.streak
        self._ages[kind] = _Age(now, now, streak=streak)

    def take_due(self, kind: Kind, now: float, max_age: float, ttl: float, *, is_new: bool) -> bool:
        """Whether to read the list when a client lists it; notes the attempt.

        `max_age` 0: never. `ttl` 0: the server gives none. `is_new`: the client's first listing.
        """
        age = self._ages.get(kind)
        if age is None or not max_age:
            return False
        aged_limit = min(max_age * age.factor, max(_HOUR, max_age))
        limit = max(ttl, _LEAST_TTL) if ttl else aged_limit / _NEWCOMER if is_new else aged_limit
        if now - age.tried <= limit:
            return False
        age.tried = now
        age.factor = min(2 * age.factor, 1 << 20)  # until it turns out to be another one
        return True

    def take_doubt(self, why: Doubt, now: float) -> bool:
        """Whether to read the lists now for this reason, with growing pauses."""
        at, pause = self._doubts.get(why, (now, 0.0))
        if now - at < pause:
            return False
        self._doubts[why] = now, min(max(2 * pause, _DOUBT), _MOST_DOUBT)
        return True

    def judge(self, kind: Kind, content: str, listed: str, now: float, *, is_urgent: bool) -> Verdict:
        """Compares digests of a reading and of the current list.

        A list that differs every time is "held" for an hour, unless it `is_urgent`.
        """
        age = self._ages.setdefault(kind, _Age(now, now))
        before, age.content = age.content, content
        if content == listed:
            age.streak = 0
            return "same"
        age.streak = age.streak + 1 if content != before else 0
        age.factor = 1
        self._doubts.clear()
        if age.streak > _UNSTEADY and now - age.taken < _HOUR and not is_urgent:
            return "held"
        age.taken = now
        return "news"
