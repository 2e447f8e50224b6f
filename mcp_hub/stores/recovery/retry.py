"""When a file that could not be used may be tried again. Pure."""

from typing import Final

FIRST: Final = 5.0
"""Seconds after the first failure; twice as long after each further one."""
MOST: Final = 300.0
"""Seconds between two tries at most; a file that has worked for as long starts from the beginning."""


class Retry:
    """Of one file. `now` is of the caller's clock; nothing has failed yet."""

    def __init__(self) -> None:
        self._delay = FIRST
        self._due = 0.0
        self._worked: float | None = None
        self._is_trying = False
        self.is_out = False
        """Whether the file is out of use."""

    def failed(self, now: float) -> bool:
        """Whether that is news. Of many that fail together the first one counts."""
        if self.is_out and not self._is_trying:
            return False
        if self._worked is not None and now - self._worked >= MOST:
            self._delay = FIRST
        is_news, self.is_out = not self.is_out, True
        self._is_trying = False
        self._worked = None
        self._due = now + self._delay
        self._delay = min(self._delay * 2, MOST)
        return is_news

    def take(self, now: float) -> bool:
        """Whether to try now; True for one caller only, until the next time is due."""
        if not self.is_out or now < self._due:
            return False
        self._is_trying = True
        self._due = now + self._delay
        return True

    def worked(self, now: float) -> bool:
        """The file can be used again; whether that is news."""
        is_news, self.is_out = self.is_out, False
        self._is_trying = False
        if is_news or self._worked is None:
            self._worked = now
        return is_news
