"""A running call's output so far, as text for a model."""

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

import msgspec

from mcp_hub.call import Call, Question
from mcp_hub.events import CallEvent, Cancelled, Completed, Delta, Failed, InputRequired, Progressed, Reset
from mcp_hub.masking import hide_head, hide_tail, visible
from mcp_hub.types import CallId, RawJson

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


def last_line(events: Iterable[CallEvent], message: str = "") -> str:
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
