"""One call's progress: the server's, heartbeats, and partial content as messages, which are events. Sans-I/O.

Its output so far is text for a model.
"""

import math
import re
from collections.abc import Collection, Iterable
from typing import Final, TypeVar

import msgspec

from mcp_hub.call import Call, Question
from mcp_hub.events import CallEvent, Cancelled, Completed, Delta, Failed, InputRequired, Progressed, Reset
from mcp_hub.globs import late
from mcp_hub.masking import hide_head, hide_tail, visible
from mcp_hub.protocol.notifications import ProgressGuard
from mcp_hub.types import CallId, PartialForm, RawJson

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
    """The last visible line, without escape sequences, at most 200 characters, masked."""
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
            if admitted.members:
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
        """Forgets partial content that is taken back. Values go on rising."""
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


_ROUGHLY: Final = 2
"""Times the shown text is held, so that few events cut it."""
_ASKED: Final = 200
"""Characters of a question shown."""
_LOOKED_AT: Final = 20 * _ASKED
"""Characters of a question read: many may be blanks."""

_T = TypeVar("_T")


class Transcript:
    """The end of a call's output, at most `limit` bytes of UTF-8: partial content, else progress messages."""

    def __init__(self, limit: int, *, is_cut: bool = False) -> None:
        self.is_cut = is_cut
        self._limit = limit
        self._content = _Tail(limit)
        self._messages = _Tail(limit)
        self._last = ""

    def cut(self) -> None:
        self.is_cut = True

    def add(self, event: CallEvent) -> None:
        if isinstance(event, Delta):
            if event.channel == "content":
                self._content.add(_text_of_blocks(event.content))
        elif isinstance(event, Reset):  # of an attempt that has failed
            self._content = _Tail(self._limit)
        elif isinstance(event, Progressed) and not event.is_hubs and event.members and "message" in event.members:
            message = _decoded(event.members["message"], str, "").strip()
            if message and message != self._last:
                self._last = message
                self._messages.add(message + "\n")

    @property
    def text(self) -> str:
        tail = self._content if self._content.size else self._messages
        text, is_cut = tail.end()
        self.is_cut = self.is_cut or is_cut
        return text


class _Tail:
    """The end of a text in pieces; `size` is of all."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._text = bytearray()

    def add(self, text: str) -> None:
        piece = text.encode(errors="replace")
        self.size += len(piece)
        self._text += piece
        if len(self._text) > _ROUGHLY * self._limit:
            del self._text[: -self._limit]

    def end(self) -> tuple[str, bool]:
        end = self._text[-self._limit :]
        is_cut = self.size > len(end)
        return end.decode(errors="ignore") if is_cut else end.decode(), is_cut


def still_running(
    stream: CallId,
    cursor: int,
    transcript: Transcript,
    heading: str,
    call: Call,
    questions: Collection[Question | InputRequired] = (),
    *,
    has_cancel: bool = True,
) -> str:
    """The text of an early answer: output, questions, and how to continue from event `cursor`.

    `has_cancel`: the client is listed `hub_cancel`.
    """
    text = transcript.text
    lines = ["Still running: this is not the result yet."]
    mine = [each for each in questions if call.asks_client(each.method, each.params)]
    lines += [f"The tool waits for an answer: {_question(each)}" for each in mine]
    lines += [f"The tool waits for people at the hub: {_question(each)}" for each in questions if each not in mine]
    if mine:
        lines.append("It continues once that is given: call hub_calls as below, and it asks again.")
    cancel = f'To end the call: hub_cancel with {{"stream":"{stream}"}}. ' if has_cancel else ""
    lines += [
        f'To go on waiting, call hub_calls with {{"id":"{stream}","after":{cursor}}}; it returns new output, '
        f"or the result once it is there. {cancel}Do not start the same call again.",
    ]
    if text:
        lines += ["", f"{heading}{' (the end of it)' if transcript.is_cut else ''}:", text]
    else:
        lines += ["", f"{heading}: none"]
    return "\n".join(lines)


def last_line_of(events: Iterable[CallEvent], message: str = "") -> str:
    """The last line of a result or of output, else of `message`: masked, at most 200 characters."""
    transcript, ending = Transcript(_LOOKED_AT), ""
    for event in events:
        match event:
            case Completed(result):
                ending = _text_of_blocks(_decoded(result, _Result, _Result()).content)
            case Failed(error):
                ending = str(error)
            case Cancelled(reason):
                ending = reason or ""
            case _:
                transcript.add(event)
    lines = (ending.strip() or transcript.text.strip() or message.strip()).splitlines()
    # its end, for its beginning may be cut within a secret
    line = " ".join(visible(hide_tail(lines[-1], _ASKED)).split()) if lines else ""
    return hide_tail(line, _ASKED, "…")


def _question(question: Question | InputRequired) -> str:
    message = question_text(question)
    return f'{question.method}: "{message}"' if message else question.method


def question_text(question: Question | InputRequired) -> str:
    """A question's message on one line, masked and cut."""
    message = hide_head(_decoded(question.params, _Asked, _Asked()).message, _LOOKED_AT)
    line = " ".join(visible(message).split())
    return hide_head(line, _ASKED, "…")


class _Asked(msgspec.Struct):
    message: str = ""


class _Result(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"[]")


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None


def _text_of_blocks(content: RawJson) -> str:
    blocks = _decoded(content, list[_Block], [])
    return "".join(block.text if block.text is not None else f"[{block.type}]" for block in blocks)


def _decoded(raw: RawJson, shape: type[_T], otherwise: _T) -> _T:
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, RecursionError):
        return otherwise
