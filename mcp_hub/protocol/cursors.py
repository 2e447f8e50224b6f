"""Places in a stream as clients write them: `<stream id>:<seq>`."""

import re
from typing import Final, NamedTuple, Self

from mcp_hub.masking import hide_head
from mcp_hub.types import CallId

_FORM: Final = re.compile(r"(st_[0-9A-HJKMNP-TV-Z]{26}):(0|[1-9][0-9]{0,14})")
"""One way only to write each; 15 digits are more than any stream has events, and fit every reader's numbers."""


class Cursor(NamedTuple):
    """The place after event `seq`; 0 is the beginning."""

    stream: CallId
    seq: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `ValueError`."""
        form = _FORM.fullmatch(text)
        if form is None:
            raise ValueError(f"not a place in a stream: {hide_head(text, 80)!r}")
        return cls(CallId(form[1]), int(form[2]))

    def __str__(self) -> str:
        return place(self.stream, self.seq)


def place(stream: CallId, seq: int) -> str:
    return f"{stream}:{seq}"
