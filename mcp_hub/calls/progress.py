"""One call's progress: the server's, heartbeats, and partial content as messages, which are events. Sans-I/O."""

import math
import re
from typing import Final

import msgspec

from mcp_hub.events import Delta, Progressed
from mcp_hub.globs import late
from mcp_hub.masking import hide_head, hide_tail
from mcp_hub.protocol.notifications import ProgressGuard
from mcp_hub.types import PartialForm

_EVERY: Final = 0.1
"""Seconds between messages."""
_HEARTBEAT: Final = 10.0
"""Seconds without progress before a heartbeat."""
_LINE: Final = 200
"""Characters of a `line` message, and of a heartbeat's words."""
_BYTES: Final = 1024
"""Bytes of a `text` message, in UTF-8."""
_HELD: Final = 8 * _BYTES
"""Waiting characters: more than a message shows, so that its end has no half escape sequence."""
_ESCAPE: Final = late(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\`-~])|\x9b[0-?]*[ -/]*[@-~]"
)
"""Escape sequences of terminals (ECMA-48)."""
_UNFINISHED: Final = late(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)|\x9b[0-?]*[ -/]*)\Z")
"""The beginning of an escape sequence."""
_OVERWRITTEN: Final = late(r"^[^\n]*\r(?=[^\n])", re.MULTILINE)
"""Text before a carriage return, as of a progress bar."""
_CONTROL: Final = late("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def last_line(text: str) -> str:
    """The last line with visible text, without escape sequences, at most 200 characters, masked."""
    text = text[-_HELD:].rstrip()
    line = text.rpartition("\n")[2]
    if not line.isprintable():  # most are
        text = _CONTROL.sub("", _UNFINISHED.sub("", _drawn(text)))
        line = text.rstrip().rpartition("\n")[2]
    return hide_tail(" ".join(line.split()), _LINE, "…")


def _drawn(text: str) -> str:
    """The text as a terminal leaves it: without escape sequences and what a carriage return overwrites."""
    return _OVERWRITTEN.sub("", _ESCAPE.sub("", text.replace("\r\n", "\n")))


class CallProgress:
    """Makes progress events. `last` is an earlier hub's last one; `began`: when the call began at this hub, in seconds.

    Partial content needs a `form`, and stops once the server sends messages. With a `form`, a heartbeat without a new
    message since the one before has words of the hub's: the time, and the last message.
    """

    __slots__ = ("_began", "_guard", "_has_words", "_is_new", "_is_taken_up", "_latest", "_spoken", "_text", "newest")

    def __init__(self, form: PartialForm | None, last: Progressed | None, began: float, *, is_taken_up: bool) -> None:
        self._guard = ProgressGuard(last)
        self.newest = last
        """The last event of all."""
        self._text = None if form is None else _PartialText(form)
        self._has_words = form is not None
        self._latest = None if last is None or last.is_hubs else last  # has the last message that no heartbeat made
        self._is_new = False  # whether it came after the last heartbeat
        self._is_taken_up = is_taken_up
        self._began = self._spoken = began

    def admit(self, event: Progressed, at: float) -> Progressed | None:
        """The server's event, raised slightly if not above the last; None if unusable."""
        admitted = self._guard.admit(event)
        if admitted is not None:
            self._spoken, self.newest = at, admitted
            self._note(admitted)
        return admitted

    @property
    def due(self) -> float:
        """The time of the next `beat`."""
        heartbeat = self._spoken + _HEARTBEAT
        return heartbeat if self._text is None else min(self._text.due, heartbeat)

    def show(self, event: Delta, now: float) -> None:
        if self._text is not None:
            self._text.add(event, now)

    def begin_attempt(self) -> None:
        """Forgets the partial content of a failed attempt. Values go on rising."""
        if self._text is not None:
            self._text.clear()
        self._latest, self._is_new = None, False

    def beat(self, now: float) -> Progressed | None:
        """The newest partial content or a heartbeat, if due."""
        message = self._message(now)
        is_silent = message is None and now >= self._spoken + _HEARTBEAT
        if is_silent:
            message = self._guard.between(self._words(now))
            self._is_new = False
        if is_silent or message is not None:
            self._spoken, self.newest = now, message or self.newest
        return message

    def _message(self, now: float) -> Progressed | None:
        if self._text is None or now < self._text.due:
            return None
        if self._guard.has_messages:
            self._text = None
            return None
        text = self._text.take(now)
        message = None if text is None else self._guard.between(text)
        if message is not None:
            self._note(message)
        return message

    def _note(self, event: Progressed) -> None:
        if event.members and "message" in event.members:
            self._latest, self._is_new = event, True

    def _words(self, at: float) -> msgspec.Raw | None:
        """The encoded message of a heartbeat; None: it repeats the last one."""
        if not self._has_words or self._is_new:
            return None
        words = "still running" if self._is_taken_up else f"running {at - self._began:.0f} s"
        if self._latest is not None and (last := _one_line(hide_head(self._latest.message or "", _HELD))):
            words = hide_head(f"{words}; last: {last}", _LINE, "…")
        elif not self._is_taken_up:
            words += ", no output yet"
        return msgspec.Raw(msgspec.json.encode(words))


class _PartialText:
    """Partial content as at most ten messages a second.

    Form `line` repeats the growing newest line; `text` has what is new.
    """

    __slots__ = ("_form", "_line", "_block", "_sent_at", "_text", "due")

    def __init__(self, form: PartialForm) -> None:
        self.due = math.inf
        self._form = form
        self._text = ""  # what no message had yet
        self._line = ""  # the line that it continues
        self._block: tuple[str, int] | None = None
        self._sent_at = -math.inf

    def add(self, event: Delta, now: float) -> None:
        text = event.text
        if not text:
            return
        block = event.channel, event.index
        if self._block not in (None, block):
            text = "\n" + text
        self._block = block
        self._text = (self._text + text)[-_HELD:]
        if self.due == math.inf:
            self.due = max(now, self._sent_at + _EVERY)

    def clear(self) -> None:
        self.due, self._text, self._line, self._block = math.inf, "", "", None

    def take(self, now: float) -> msgspec.Raw | None:
        """The encoded message; None without visible text."""
        self.due = math.inf
        unfinished = _UNFINISHED.search(self._text, max(len(self._text) - _LINE, 0))
        text, self._text = (self._text, "") if unfinished is None else (self._text[: unfinished.start()], unfinished[0])
        text = _drawn(self._line + text)
        if self._form == "line":
            self._line = text.rpartition("\n")[2][-_BYTES:]
            message = hide_tail(_one_line(text), _LINE, "…")
        else:
            message = _tail(hide_tail(_CONTROL.sub("", text).strip(), _BYTES, "…"))
        if not message:
            return None
        self._sent_at = now
        return msgspec.Raw(msgspec.json.encode(message))


def _one_line(text: str) -> str:
    return " ".join(_CONTROL.sub("", _ESCAPE.sub("", text)).split())


def _tail(text: str) -> str:
    end = text.encode("utf-8", "replace")
    if len(end) <= _BYTES:
        return end.decode()
    return "…" + end[len("…".encode()) - _BYTES :].decode(errors="ignore")
