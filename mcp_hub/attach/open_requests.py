"""The open requests of one client, which another hub takes up when theirs has died.

Lines are only noted as they pass, and parsed when a hub has died or much has gathered: a line costs an append. A call
is resumed by its durable stream, or fails with `hub_restarted`; other requests are sent again.
"""

from mcp_hub.attach import hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Id = int | str

_ANSWER = b'{"jsonrpc":"2.0","id":'
"""The beginning of each answer of the hub."""
_NEXT_ANSWER = b"\n" + _ANSWER
_HEAD = 512
"""Bytes of an answer in which its id is, as long as ids may be here."""
_SHORT_HEAD = len(_ANSWER) + 24
"""Bytes in which a number is an id."""
_CALL = b'"method":"tools/call"'
_ID_FIRST = rb'\n\{"jsonrpc":"2\.0","id":(\d+),"method":"tools/call",'
_ID_LAST = rb'\n\{"method":"tools/call",.*,"jsonrpc":"2\.0","id":(\d+)\}(?=\n)'
"""Calls as libraries write them."""
_ANSWERED_CALL = rb'\n\{"jsonrpc":"2\.0","id":(\d+),'
_ASKED, _ANSWERED, _NAMED = range(3)
_MOST_BYTES = 1 << 16
"""Bytes that are noted before they are understood; each note counts as `_NOTE` more."""
_NOTE = 64
_WHOLE = 1 << 13
"""Bytes of answers that are noted as they are; of longer ones only the heads are."""
_LONG = 1 << 16
"""Bytes of a request above which only its name and `_meta` are kept: it is not sent again."""
_MOST_SETTINGS = 256
_ONCE = ("tools/call",)
"""Methods that must not be sent twice; every other one only reads, or sets what is set already."""
_HUB_RESTARTED = 1006


class _Request:
    """An open request, and its durable stream, if the hub named one."""

    __slots__ = ("line", "method", "raw_id", "stream")

    def __init__(self, line: bytes, method: str, raw_id: str) -> None:
        self.line = line
        self.method = method
        self.raw_id = raw_id
        self.stream = ""


class _Again:
    """The lines for another hub, the ids that the client has responses to, and the errors of lost calls."""

    __slots__ = ("errors", "lines", "known")

    def __init__(self, lines: list[bytes], known: "set[Id]", errors: list[bytes]) -> None:
        self.lines = lines
        self.known = known
        self.errors = errors


class UnansweredRequests:
    """The open requests and settings of one client."""

    def __init__(self) -> None:
        self._noted: list[tuple[int, bytes]] = []
        self._size = 0
        self._is_plain = True  # nothing but short lines and answers is noted
        self._requests: dict[Id, _Request] = {}
        self._calls: dict[bytes, bytes] = {}  # tool calls that are not understood yet, by their ids
        self._setup: dict[str, bytes] = {}
        self._lines: list[bytes] = []

    def asked(self, lines: bytes) -> None:
        """Notes the client's lines."""
        self._noted.append((_ASKED, lines))
        self._size += len(lines) + _NOTE
        if self._size > _MOST_BYTES:
            self._is_plain = self._is_plain and len(lines) <= _LONG
            self.settle()

    def keep(self, lines: bytes) -> None:
        self._lines.append(lines)

    @property
    def has_kept(self) -> bool:
        return bool(self._lines)

    def kept(self) -> bytes:
        """Removes lines that no hub has received."""
        lines, self._lines = self._lines, []
        return b"".join(lines)

    def answered(self, lines: bytes) -> None:
        """Notes the hub's lines."""
        if len(lines) > _WHOLE:
            lines = _heads(lines)
        self._noted.append((_ANSWERED, lines))
        self._size += len(lines) + _NOTE
        if self._size > _MOST_BYTES:
            self.settle()

    def runs_as(self, line: bytes) -> None:
        """Notes a control line that names a durable stream."""
        self._is_plain = False
        self._noted.append((_NAMED, line))
        self._size += len(line) + _NOTE
        if self._size > _MOST_BYTES:
            self.settle()

    def settle(self) -> None:
        """Parses the notes, calls only as far as their ids."""
        noted, self._noted, self._size = self._noted, [], 0
        is_plain, self._is_plain = self._is_plain and not self._requests, True
        if not (is_plain and self._settle_calls(noted)):
            for kind, text in noted:
                (self._settle_requests, self._settle_answers, self._has_stream)[kind](text)

    def _settle_calls(self, noted: "list[tuple[int, bytes]]") -> bool:
        """Fast path for calls and responses alone."""
        import re

        requests = b"\n" + b"".join([text for kind, text in noted if kind == _ASKED])
        numbers = first = re.findall(_ID_FIRST, requests)
        if not first:
            numbers = re.findall(_ID_LAST, requests)
        numbers_asked = {*numbers, *self._calls}
        if len(numbers) != requests.count(b"\n") - 1 or len(numbers_asked) != len(numbers) + len(self._calls):
            return False
        answers = b"\n" + b"\n".join([text for kind, text in noted if kind == _ANSWERED])
        calls, self._calls = self._calls, {}
        for number in numbers_asked.difference(re.findall(_ANSWERED_CALL, answers)):
            self._calls[number] = calls.get(number) or _line_of(number, requests, is_first=bool(first))
        return True

    def _settle_requests(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            if _CALL in line and len(line) <= _LONG and (number := _number_of(line)) is not None:
                self._calls[number] = line
            elif line:
                self._understand(line)

    def _settle_answers(self, lines: bytes) -> None:
        first, *answers = lines.split(_NEXT_ANSWER)
        if first.startswith(_ANSWER):
            answers.append(first[len(_ANSWER) :])
        calls = self._calls
        for answer in answers:
            number = answer[: answer.find(b",")]
            if calls.pop(number, None) is None:
                self._forget(int(number) if number.isdigit() else _id_in(answer))

    def _understand_calls(self) -> None:
        self.settle()
        for number in list(self._calls):
            self._understand_call(number)

    def _understand_call(self, number: bytes) -> None:
        if (line := self._calls.pop(number, None)) is not None:
            self._understand(line)

    @property
    def is_open(self) -> bool:
        """Whether a request awaits its response."""
        self.settle()
        return bool(self._requests or self._calls)

    def streams(self) -> str:
        """The durable streams for a hello: a line `ID STREAM` each."""
        self._understand_calls()
        return "\n".join(f"{request.raw_id} {request.stream}" for request in self._requests.values() if request.stream)

    def again(self, takes_streams: bool) -> _Again:
        """All that another hub must receive; calls that cannot be resumed close."""
        self._understand_calls()
        ids = {key for line in self._setup.values() for key in _ids(line)}
        errors = []
        for key, request in list(self._requests.items()):
            if request.method in _ONCE and not (request.stream and takes_streams):
                del self._requests[key]
                reason = "The background hub ended during this call. Whether the tool has done its work is not known."
                data = {"code": "hub_restarted", "outcome": "unknown"}
                error = {"code": _HUB_RESTARTED, "message": reason, "data": data}
                errors.append(b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (request.raw_id.encode(), _bytes_of(error)))
        requests = [
            request.line + b"\n" for request in self._requests.values() if request.line not in self._setup.values()
        ]
        setup = [line + b"\n" for line in self._setup.values()]
        return _Again([*setup, *requests], ids - self._requests.keys(), errors)

    def _has_stream(self, line: bytes) -> None:
        raw_id, _, stream = line[len(hello.STREAM) :].strip().rpartition(b" ")
        self._understand_call(raw_id)
        key = _parsed(raw_id)
        if isinstance(key, int | str) and key in self._requests:
            self._requests[key].stream = stream.decode()

    def _forget(self, key: object) -> None:
        if isinstance(key, int):
            self._calls.pop(b"%d" % key, None)
        if isinstance(key, int | str):
            self._requests.pop(key, None)

    def _understand(self, line: bytes) -> None:
        message = _parsed(line)
        for part in message if isinstance(message, list) else [message]:
            if isinstance(part, dict) and isinstance(method := part.get("method"), str):
                self._take(part, method, line if part is message else _bytes_of(part))

    def _take(self, message: "dict[str, object]", method: str, line: bytes) -> None:
        params, key = message.get("params"), message.get("id")
        members = params if isinstance(params, dict) else {}
        if method == "notifications/cancelled":
            self._forget(members.get("requestId"))
        if method in ("initialize", "notifications/initialized", "logging/setLevel"):
            self._setup[method] = line
        elif method == "resources/subscribe" and len(self._setup) < _MOST_SETTINGS:
            self._setup[f"subscribe {members.get('uri')}"] = line
        elif method == "resources/unsubscribe":
            self._setup.pop(f"subscribe {members.get('uri')}", None)
        if isinstance(key, int | str):
            if len(line) > _LONG:
                few = {name: members[name] for name in ("name", "_meta") if name in members}
                line = _bytes_of({"jsonrpc": "2.0", "id": key, "method": method, "params": few})
            self._requests[key] = _Request(line, method, _text(key))


def _heads(lines: bytes) -> bytes:
    each = [lines] if lines.find(b"\n") == len(lines) - 1 else lines.split(b"\n")
    return b"\n".join([line[:_HEAD] for line in each if line.startswith(_ANSWER)])


def _line_of(number: bytes, requests: bytes, *, is_first: bool) -> bytes:
    if is_first:
        begun = requests.rfind(_NEXT_ANSWER + number + b",")
    else:
        begun = requests.rfind(b"\n", 0, requests.rfind(b',"jsonrpc":"2.0","id":%b}\n' % number))
    return requests[begun + 1 : requests.find(b"\n", begun + 1)]


def _number_of(line: bytes) -> bytes | None:
    head = line[len(_ANSWER) : _SHORT_HEAD] if line.startswith(_ANSWER) else b""
    number = head.partition(b",")[0] or line[line.rfind(b'"id":') + 5 :].removesuffix(b"}")
    return number if number.isdigit() else None


def answer_id(line: bytes) -> "Id | None":
    return _id_in(line[len(_ANSWER) :]) if line.startswith(_ANSWER) else None


def _id_in(text: bytes) -> "Id | None":
    import json

    try:
        value, _ = json.JSONDecoder().raw_decode(text[:_HEAD].decode("utf-8", "ignore"))
    except ValueError:
        return None
    return value if isinstance(value, int | str) else None


def _ids(line: bytes) -> "Iterable[Id]":
    message = _parsed(line)
    key = message.get("id") if isinstance(message, dict) else None
    return [key] if isinstance(key, int | str) else []


def _parsed(text: bytes) -> "object":
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    import json

    return json.dumps(value)


def _bytes_of(value: object) -> bytes:
    return _text(value).encode()
