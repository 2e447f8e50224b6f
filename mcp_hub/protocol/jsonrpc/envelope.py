"""Decodes one JSON-RPC message; payloads stay encoded.

Invalid UTF-8 and lone surrogates become U+FFFD. Source: JSON-RPC 2.0 §4-5.
"""

import json
import re
from itertools import islice
from typing import Final, Literal, TypeVar

import msgspec

from mcp_hub.protocol.jsonrpc.framing import foreign
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST, PARSE_ERROR
from mcp_hub.protocol.jsonrpc.unparsed import salvage_id
from mcp_hub.types import RawJson, RawObject

Unset = msgspec.UNSET
ABSENT: Final = msgspec.Raw(b"")
"""An id, result or error that a message does not have."""
_NO_METHOD: Final = "(none)"  # compared by identity: a peer may send this text
_T = TypeVar("_T")

MessageKind = Literal["request", "notification", "result", "error", "none"]
"""The kinds of messages. An error of `null` beside a result is a result; "none" has neither, nor a method."""


Frame = bytes | tuple[bytes | memoryview, ...]
"""A line, or the parts of a long one."""
LONG: Final = 1 << 18
"""Bytes of a result from which a copy costs more than to write parts."""
_CLOSING: Final = b"}\n"


class _Decoded:
    """Set by `decode`, not in the JSON."""

    __slots__ = ("id_key", "kind")
    kind: MessageKind
    id_key: int | str | None


class Envelope(_Decoded, msgspec.Struct, gc=False):
    """One message, members encoded.

    Missing id, result and error are `ABSENT`, missing params and version `Unset`. `id_key` matches an answer to its
    request; None for an unusable id.
    """

    id: msgspec.Raw = ABSENT
    method: str = _NO_METHOD
    params: msgspec.Raw | msgspec.UnsetType = Unset
    result: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT
    jsonrpc: str | msgspec.UnsetType = Unset

    @property
    def is_answer(self) -> bool:
        return self.kind not in ("request", "notification")

    @property
    def usable_id(self) -> bytes | None:
        """The id to echo; None unless a string or integer."""
        text = bytes(self.id)
        return text if text[:1] == b'"' or text.lstrip(b"-").isdigit() else None

    def with_params(self, params: msgspec.Raw) -> "Envelope":
        """A copy with other params."""
        message = msgspec.structs.replace(self, params=params)
        message.kind, message.id_key = self.kind, self.id_key
        return message


class _Answer(msgspec.Struct):
    """Some serialisers write `"method": null` in answers."""

    method: None
    id: msgspec.Raw
    result: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT
    jsonrpc: str | msgspec.UnsetType = Unset


class BadMessage(msgspec.Struct, frozen=True):
    """An invalid message: JSON-RPC code, reason, and id if readable. `is_held`: it is kept for its request."""

    code: int
    reason: str
    id: bytes | None = None
    is_held: bool = False


_decode = msgspec.json.Decoder(Envelope).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_id = msgspec.json.Decoder(int | str).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_SURROGATES = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Escapes of surrogates, pairs and single ones, behind any number of escaped backslashes; linear in the line."""
_MAX_REPAIRED = 1 << 20
"""Bytes of a line that is tried again; a longer one would delay other messages."""
_LONGEST_NUMBER = 32
_LONG_ID = 10**19
"""Integers from here on are matched as text."""
_NULL = msgspec.Raw(b"null")
_SAFE = 1 << 53
"""Integers up to here are floats without loss."""
_OBJECTS = re.compile(rb"\s*\[?\s*\{")
"""The beginning of a message or of a batch of them; anything else before a message on its line is stray text."""
MESSAGE = rb'\{\s*"(?:jsonrpc|id|method|params|result|error)"\s*:'
"""The beginning of a message."""
_BEGINS = re.compile(rb"\s*(?:\[\s*)?" + MESSAGE)
_STARTS = re.compile(MESSAGE)
_MOST_STARTS = 16
"""Places of a line at which a message behind stray text may begin."""
_ARRAY = "an array of messages exists only in protocol version 2025-03-26; send each message by itself"
_whole = json.JSONDecoder().raw_decode
_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def one_line(text: bytes) -> bytes:
    """JSON with line breaks (white space) replaced."""
    return text.translate(_BREAKS) if b"\n" in text or b"\r" in text else text


_COLOURS = re.compile(rb"\x1b\[[\d;?]*[ -/]*[@-~]")
"""Escape sequences, whose first byte is not part of any JSON text."""


def decode(line: bytes) -> Envelope | BadMessage:
    """Never raises."""
    if not line.isascii():
        line = _valid_utf8(line)
    try:
        message = _decode(line)
    except (msgspec.DecodeError, RecursionError) as problem:
        second = _second_try(line, problem)
        if isinstance(second, BadMessage):
            return second
        message = second
    id_ = message.id
    if message.method is not _NO_METHOD:
        message.kind = "notification" if id_ is ABSENT else "request"
    elif message.error is ABSENT:
        message.kind = "none" if message.result is ABSENT else "result"
    else:
        message.kind = "error" if message.result is ABSENT or message.error != _NULL else "result"
    if id_ is ABSENT:
        message.id_key = None
        return message
    try:
        key = _decode_id(id_)
    except msgspec.DecodeError:
        key = None
    message.id_key = key if type(key) is int and -_LONG_ID < key < _LONG_ID else _unusual_key(message)
    return message


def _unusual_key(message: Envelope) -> int | str | None:
    """An answer may have `7.0` for `7`."""
    id_ = message.usable_id
    if id_ is not None:
        return id_key(id_)
    return number_key(bytes(message.id)) if message.is_answer else None


def _second_try(line: bytes, problem: Exception) -> Envelope | BadMessage:
    if isinstance(problem, msgspec.ValidationError):
        if (answer := _without_method(line)) is not None:
            return answer
        if not _OBJECTS.match(line) and (message := _after_stray_text(line)) is not None:
            return message
        reason = _ARRAY if line.lstrip().startswith(b"[") else str(problem)
        return _bad(INVALID_REQUEST, f"not a JSON-RPC message: {reason}", line)
    if isinstance(problem, msgspec.DecodeError):
        return _decode_repaired(line, str(problem))
    return BadMessage(PARSE_ERROR, "JSON nested too deep", salvage_id(line))


def _without_method(line: bytes) -> Envelope | None:
    try:
        found = _decode_answer(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    is_answer = found.result is not ABSENT or found.error is not ABSENT
    if not is_answer:
        return None
    return Envelope(id=found.id, result=found.result, error=found.error, jsonrpc=found.jsonrpc)


def _decode_repaired(line: bytes, reason: str) -> Envelope | BadMessage:
    if len(line) <= _MAX_REPAIRED:
        repaired = without_lone_surrogates(_COLOURS.sub(b"", line))
        if repaired != line:
            try:
                return _decode(repaired)
            except (msgspec.DecodeError, RecursionError):
                pass
        if (message := _after_stray_text(repaired)) is not None:
            return message
    return _bad(PARSE_ERROR, f"malformed JSON: {reason}", line)


def _bad(code: int, reason: str, line: bytes) -> BadMessage:
    if (framing := foreign(line)) is not None:
        reason = f"{reason}. Over stdio each message is one line of JSON, not {framing}"
    return BadMessage(code, reason, salvage_id(line))


def without_lone_surrogates(text: bytes) -> bytes:
    """Replaces escaped lone surrogates by U+FFFD."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    return _SURROGATES.sub(lambda m: m[0] if m[2] else m[1] + b"\\ufffd", text)


def begins_with_stray_text(line: bytes) -> bool:
    return _BEGINS.match(line) is None


def _after_stray_text(line: bytes) -> Envelope | None:
    """None if another message would be lost."""
    if len(line) > _MAX_REPAIRED or not begins_with_stray_text(line):
        return None
    line = without_lone_surrogates(line)
    tried: list[int] = []
    for start in islice(_STARTS.finditer(line), _MOST_STARTS):
        message = _message_of(line[start.start() :])
        if message is not None:
            is_only = not any(_begins_as_one(line[at : start.start()]) for at in tried)
            return message if is_only else None  # another one before it would be lost
        tried.append(start.start())
    return None


def _begins_as_one(text: bytes) -> bool:
    try:
        found, _ = _whole(text.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("jsonrpc") == "2.0"


def _message_of(text: bytes) -> Envelope | None:
    try:
        found = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    is_message = found.jsonrpc == "2.0" and (found.id is not ABSENT or found.method is not _NO_METHOD)
    return found if is_message else None


def _valid_utf8(line: bytes) -> bytes:
    try:
        line.decode()
        return line
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace").encode()


def id_key(text: bytes) -> int | str:
    """The correlation key; `"7"` and `7` are equal."""
    bare = text[1:-1] if text[:1] == b'"' else text
    digits = bare[1:] if bare[:1] == b"-" else bare
    if digits.isdigit() and len(digits) < 20:
        number = int(bare)
        if text[:1] != b'"' or b"%d" % number == bare:  # "007" is a name, not the number 7
            return number
    return bare.decode("utf-8", "replace")


def number_key(text: bytes) -> int | None:
    """The integer in an id or progress token: `7`, `7.0`, `7e0`, `"7"` (RFC 8259 §6)."""
    key = id_key(text)
    if type(key) is int:
        return key
    number = read_as(text, float) if text[:1] != b'"' and len(text) < _LONGEST_NUMBER else None
    return int(number) if number is not None and number.is_integer() and abs(number) <= _SAFE else None


def raw_object(raw: RawJson | msgspec.UnsetType) -> RawObject | None:
    """The encoded members; empty if absent, None if not an object."""
    if raw is Unset:
        return {}
    try:
        return _decode_object(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def read_as(raw: RawJson, type_: type[_T]) -> _T | None:
    """The decoded value; None if invalid or of another type."""
    try:
        return msgspec.json.decode(raw, type=type_)
    except (msgspec.DecodeError, RecursionError):
        return None


object_bytes = msgspec.json.Encoder().encode
"""Encodes an object whose members may be encoded already."""


def request_frame(id_: int, method: str, params: RawJson) -> bytes:
    """A request line; `method` must need no escaping."""
    return b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}\n' % (id_, method.encode(), params)


def notification_frame(method: str, params: RawJson | None = None) -> bytes:
    """A notification line."""
    if params is None:
        return b'{"jsonrpc":"2.0","method":"%s"}\n' % method.encode()
    return b'{"jsonrpc":"2.0","method":"%s","params":%s}\n' % (method.encode(), params)


def result_frame(id_: bytes, *result: RawJson | memoryview) -> bytes:
    return b"".join((b'{"jsonrpc":"2.0","id":', id_, b',"result":', *result, b"}\n"))


def response(id_: bytes, *result: RawJson | memoryview) -> Frame:
    """A long result is not copied."""
    if sum(map(len, result)) < LONG:
        return result_frame(id_, *result)
    return b'{"jsonrpc":"2.0","id":%b,"result":' % id_, *(memoryview(part) for part in result), _CLOSING


def whole(frame: Frame) -> bytes:
    """The line as one text."""
    return b"".join(frame) if isinstance(frame, tuple) else frame


def answer_of(error: bytes) -> Envelope:
    """The answer that is this error, without an id."""
    answer = Envelope(error=msgspec.Raw(error))
    answer.kind, answer.id_key = "error", None
    return answer


def error_frame(id_: bytes | None, error: RawJson) -> bytes:
    """Without an id, `null` (JSON-RPC 2.0 §5)."""
    return b"".join((b'{"jsonrpc":"2.0","id":', id_ or b"null", b',"error":', error, b"}\n"))
