"""Decides about a worker's posts for one call. Sans-I/O; every refusal is a `Rejected`.

A post is a batch of events, numbered 1, 2, 3… per call, taken whole or refused without effect. A repeated post has no
effect. Posts of an earlier epoch (registration) are refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeVar

import msgspec

from mcp_hub.errors import Rejected, RpcError
from mcp_hub.events import Completed, Delta, Failed, InputRequired, Post
from mcp_hub.globs import late
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import one_line
from mcp_hub.protocol.shape.produced import PRODUCED, Produced, produced
from mcp_hub.types import RawJson, RawObject, plural

T = TypeVar("T")

_NAME: Final = late("[^\x00-\x1f\x7f-\x9f]{1,1024}")
"""Names of tools, as for servers."""
_TEXT: Final = msgspec.Raw(b'"text"')


def stale(sent: int, epoch: int) -> Rejected:
    """The refusal of an old epoch."""
    text = f"Epoch {sent} is not the current one, {epoch}: the executor was registered again."
    return Rejected("stale_epoch", text, epoch=epoch)


def too_large(subject: str, limit: int, unit: str = "bytes") -> Rejected:
    """The refusal of a size over a fixed limit."""
    return Rejected("too_large", f"{subject} has more than {limit} {unit}.", limit=limit)


def malformed(text: str) -> Rejected:
    """The refusal of an invalid request."""
    return Rejected("malformed", text)


class ExecutorLimits(msgspec.Struct, frozen=True):
    """Limits of executors.

    * Hub: `executors`; `ended` calls kept for late posts.
    * Principal: `own_executors`, and their `own_tools` together.
    * Executor: `tools`; bytes of `definitions`; calls `waiting` and `running`.
    * Call: `window`, unread events; unanswered `questions`; bytes of an `event`, a `post` and all `text`.
    * Seconds: `silence` between posts without an open question; `catch_up` for readers; `keeping` for storage.
    """

    executors: int = 256
    own_executors: int = 64
    own_tools: int = 4000
    ended: int = 4096
    tools: int = 1000
    definitions: int = 1 << 20
    waiting: int = 256
    running: int = 1024
    window: int = 256
    questions: int = 64
    event: int = 256 << 10
    post: int = 1 << 20
    text: int = 1 << 20
    silence: float = 60.0
    catch_up: float = 1.0
    keeping: float = 10.0


class _Taken(msgspec.Struct, frozen=True):
    events: tuple[Produced, ...]
    ending: Completed | Failed | None = None


class Production:
    """The posts for one call: `taken` so far, and `credit` in events."""

    __slots__ = ("_epoch", "_gathered", "_limits", "_open", "_size", "credit", "ended", "taken")

    def __init__(self, limits: ExecutorLimits) -> None:
        self._limits = limits
        self._open: set[str] = set()
        self._gathered: list[Delta] = []
        self._size = 0
        self.taken = self._epoch = 0
        self.credit = limits.window
        self.ended = False

    def receive(self, post: Post, epoch: int) -> _Taken | None:
        """The content of the post; None for a duplicate. `epoch` is the current one. Raises `Rejected`."""
        seq = self.taken + 1 if post.seq is None else post.seq
        if not self._is_next(epoch if post.epoch is None else post.epoch, seq, epoch):
            return None
        _check_form(post, self._limits)
        events = _read_events(post)
        keys = self._asked_by(events)
        if len(events) > self.credit:
            credit = plural(self.credit, "event")
            text = f"Readers are behind: {credit} can be taken now, not {len(events)}. Post again later."
            raise Rejected("no_credit", text, credit=self.credit)
        content = [event for event in events if isinstance(event, Delta) and event.channel == "content"]
        ending = self._ending(post, content) if post.complete else None
        self.taken, self._epoch = seq, epoch
        self.credit -= len(events)
        self._open |= keys
        self._gathered += content
        self._size += _size(content)
        if self._size > self._limits.text:  # too much for a result: the worker has to send one
            self._gathered.clear()
        if ending is not None:
            self.end()
        return _Taken(events, ending)

    def drained(self) -> None:
        self.credit = self._limits.window

    def answered(self, key: str) -> None:
        """Frees the key of an answered question."""
        self._open.discard(key)

    def end(self) -> None:
        self.ended = True
        self._open.clear()
        self._gathered.clear()

    def _is_next(self, sent: int, seq: int, epoch: int) -> bool:
        """False for a duplicate."""
        if sent != epoch:
            raise stale(sent, epoch)
        if seq < 1:
            raise malformed(f"Posts are numbered 1, 2, 3…, not {seq}.")
        if seq <= self.taken and sent == self._epoch:
            return False
        if self.ended:
            raise Rejected("call_ended", "The call has ended: nothing more can be posted.")
        if seq != self.taken + 1:
            expected = self.taken + 1
            raise Rejected("gap", f"Post {seq} leaves a gap: the next one is {expected}.", expected=expected)
        return True

    def _asked_by(self, events: Sequence[Produced]) -> set[str]:
        keys = [event.key for event in events if isinstance(event, InputRequired)]
        for index, key in enumerate(keys):
            if key in self._open or key in keys[:index]:
                raise malformed(f'input-required: a question with the key "{hide_head(key, 100)}" is open already.')
        if len(self._open) + len(keys) > self._limits.questions:
            raise too_large("The call", self._limits.questions, "questions whose answers were not fetched")
        return set(keys)

    def _ending(self, post: Post, content: Sequence[Delta]) -> Completed | Failed:
        if post.error is not None:
            error = _decoded(post.error, "error", _Error)
            return Failed(RpcError(error.message, code=error.code, raw=one_line(bytes(post.error))))
        if post.result is not None:
            _decoded(post.result, "result", RawObject)
            return Completed(one_line(bytes(post.result)))
        if self._size + _size(content) > self._limits.text:
            raise too_large("The content for a result (complete the call with `result` instead)", self._limits.text)
        return Completed(_result([*self._gathered, *content]))


def _size(deltas: Iterable[Delta]) -> int:
    return sum(len(delta.content) for delta in deltas)


def _result(deltas: Sequence[Delta]) -> bytes:
    by_index: dict[int, list[RawObject]] = {}
    for delta in deltas:
        by_index.setdefault(delta.index, []).extend(msgspec.json.decode(delta.content, type=list[RawObject]))
    content = [block for _, blocks in sorted(by_index.items()) for block in _joined(blocks)]
    return msgspec.json.encode({"content": content, "isError": False})


def _joined(blocks: Iterable[RawObject]) -> Iterator[object]:
    for is_text, run in groupby(blocks, lambda block: block.keys() == {"type", "text"} and block["type"] == _TEXT):
        if is_text:
            yield {"type": "text", "text": "".join(msgspec.json.decode(block["text"], type=str) for block in run)}
        else:
            yield from run


def _check_form(post: Post, limits: ExecutorLimits) -> None:
    try:
        content = len((post.content or "").encode())
    except UnicodeEncodeError:
        raise malformed("content: a lone surrogate is not text.") from None
    sizes = [content, *map(len, post.events)]
    if max(sizes) > limits.event:
        raise too_large("One event", limits.event)
    if sum(sizes) + len(post.result or b"") + len(post.error or b"") > limits.post:
        raise too_large("One post", limits.post)
    if len(post.events) > limits.window:
        raise too_large("One post", limits.window, "events")
    endings = (post.result is not None) + (post.error is not None)
    if (post.events and post.content is not None) or endings > 1:
        raise malformed("A post carries events or content, and a result or an error, not both.")
    if endings and not post.complete:
        raise malformed("A result or an error needs `complete`: true.")


class _Error(msgspec.Struct):
    code: int
    message: str


class _Named(msgspec.Struct):
    name: str
    inputSchema: RawObject


class _Event(msgspec.Struct):
    type: str
    data: RawObject


_HUBS_OWN: Final[Mapping[str, str]] = {
    "start": "the hub says when a call starts",
    "end": "a call is ended by `complete` with a `result`",
    "error": "a call is ended by `complete` with an `error`",
    "input-received": "the hub says when a question is answered",
    "reset": "the hub alone starts a call over",
}


def _read_events(post: Post) -> tuple[Produced, ...]:
    if post.content:
        return (Delta(msgspec.json.encode([{"type": "text", "text": post.content}])),)
    return tuple(_read_event(one_line(bytes(raw)), f"events[{index}]") for index, raw in enumerate(post.events))


def _read_event(raw: RawJson, where: str) -> Produced:
    event = _decoded(raw, where, _Event)
    where = f"{where} ({hide_head(event.type, 50)})"
    if event.type in _HUBS_OWN:
        raise malformed(f"{where}: {_HUBS_OWN[event.type]}")
    if event.type not in PRODUCED:
        raise malformed(f"{where}: unknown type (known: {', '.join(PRODUCED)})")
    return _checked(lambda: produced(event.type, event.data), where)


def read_tools(tools: Sequence[RawJson], max_tools: int, size: int) -> dict[str, bytes]:
    """Unchanged definitions by name: at most `max_tools`, and `size` bytes together. Raises `Rejected`."""
    for count, limit, unit in ((len(tools), max_tools, "tools"), (sum(map(len, tools)), size, "bytes")):
        if count > limit:
            raise too_large("The list of tools", limit, unit)
    named: dict[str, bytes] = {}
    for index, raw in enumerate(tools):
        name = _decoded(raw, f"tools[{index}]", _Named).name
        if not _NAME.fullmatch(name):
            raise malformed(f"tools[{index}]: the name has to be 1 to 1024 characters without control characters.")
        if name in named:
            raise malformed(f'tools[{index}]: "{hide_head(name, 100)}" is there twice.')
        named[name] = bytes(raw)
    return named


def _decoded(raw: RawJson, where: str, type_: type[T]) -> T:
    """Also raises `Rejected` for bad JSON in parts that `type_` skips."""

    def decode() -> T:
        msgspec.json.decode(raw)
        return msgspec.json.decode(raw, type=type_)

    return _checked(decode, where)


def _checked(decode: Callable[[], T], where: str) -> T:
    try:
        return decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise malformed(f"{where}: {problem}") from None
    except RecursionError:
        raise malformed(f"{where}: it is nested too deep.") from None
