"""The open requests of one client, so that another hub can take them up when theirs has died.

Lines are only noted while they pass; they are parsed in one go, when a hub has died or many have come together. So a
line costs an append, and the JSON library is loaded late.
"""

from mcp_hub.attach import hello

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Id = int | str

_ANSWER = b'{"jsonrpc":"2.0","id":'
"""The beginning of each answer of the hub."""
_HEAD = 512
"""Bytes of an answer in which its id is, as long as ids may be here."""
_SHORT_HEAD = len(_ANSWER) + 24
"""Bytes in which a number is an id."""
_MOST_LINES, _MOST_BYTES = 512, 1 << 19
_LONG = 1 << 16
"""Bytes of a request from which on only its name and `_meta` are kept: nobody sends it a second time."""
_MOST_SETTINGS = 256
_ONCE = ("tools/call",)
"""Methods that must not be sent twice; every other one only reads, or sets what is set already."""
_HUB_RESTARTED = 1006


class Request:
    """An open request; `stream` is its durable stream, if the hub has named one."""

    __slots__ = ("line", "method", "raw_id", "stream")

    def __init__(self, line: bytes, method: str, raw_id: str) -> None:
        self.line = line
        self.method = method
        self.raw_id = raw_id
        self.stream = ""


class Again:
    """The lines that tell another hub all about this client, the ids whose answers the client has already, and the
    errors that requests get which no other hub can take up."""

    __slots__ = ("errors", "lines", "known")

    def __init__(self, lines: list[bytes], known: "set[Id]", errors: list[bytes]) -> None:
        self.lines = lines
        self.known = known
        self.errors = errors


class UnansweredRequests:
    """The open requests of one client, and its settings."""

    def __init__(self) -> None:
        self._noted: list[bytes] = []
        self._size = 0
        self._requests: dict[Id, Request] = {}
        self._calls: dict[bytes, bytes] = {}  # tool calls that are not understood yet, by their ids
        self._setup: dict[str, bytes] = {}
        self._kept: list[bytes] = []

    def asked(self, lines: bytes) -> None:
        """The client has sent these whole lines."""
        self._note(lines)

    def keep(self, lines: bytes) -> None:
        """The client has sent these, but no hub has got them."""
        self._kept.append(lines)

    @property
    def has_kept(self) -> bool:
        """Whether there are lines that no hub has got."""
        return bool(self._kept)

    def kept(self) -> bytes:
        """The lines that no hub has got; they are kept no longer."""
        kept, self._kept = self._kept, []
        return b"".join(kept)

    def answered(self, lines: bytes) -> None:
        """The hub has sent these lines, answers among them."""
        for line in (lines,) if lines.find(b"\n") == len(lines) - 1 else lines.split(b"\n"):
            if line.startswith(_ANSWER):
                number = line[len(_ANSWER) : _SHORT_HEAD].partition(b",")[0]
                self._note(b">" + number if number.isdigit() else b">" + line[:_HEAD])

    def runs_as(self, line: bytes) -> None:
        """The hub has named the durable stream of a request, by this control line."""
        self._note(line)

    def _note(self, text: bytes) -> None:
        self._noted.append(text)
        self._size += len(text)
        if self._size > _MOST_BYTES or len(self._noted) > _MOST_LINES:
            self.settle()

    def settle(self) -> None:
        """Understands all that was noted. Calls that have their answers, which are most, are not even parsed."""
        noted, self._noted, self._size = self._noted, [], 0
        for text in noted:
            if text.startswith(b">"):
                if self._calls.pop(text[1:], None) is None:
                    self._forget(int(text[1:]) if text[1:].isdigit() else answer_id(text[1:]))
            elif text.startswith(hello.STREAM):
                self._has_stream(text)
            else:
                for line in text.split(b"\n"):
                    if (number := _number_of_call(line)) is not None:
                        self._calls[number] = line
                    else:
                        self._understand(line)
        for number in list(self._calls):
            self._understand_call(number)

    def _understand_call(self, number: bytes) -> None:
        if (line := self._calls.pop(number, None)) is not None:
            self._understand(line)

    @property
    def is_open(self) -> bool:
        """Whether a request waits for its answer."""
        self.settle()
        return bool(self._requests)

    def streams(self) -> str:
        """The requests that are durable streams, as a hello names them: a line `ID STREAM` for each."""
        self.settle()
        return "\n".join(f"{one.raw_id} {one.stream}" for one in self._requests.values() if one.stream)

    def again(self, takes_streams: bool) -> Again:
        """All that another hub has to be sent. Requests that cannot be sent again are open no longer."""
        self.settle()
        known = {key for line in self._setup.values() for key in _ids(line)}
        errors = []
        for key, one in list(self._requests.items()):
            if one.method in _ONCE and not (one.stream and takes_streams):
                del self._requests[key]
                said = "The background hub ended during this call. Whether the tool has done its work is not known."
                data = {"code": "hub_restarted", "outcome": "unknown"}
                error = {"code": _HUB_RESTARTED, "message": said, "data": data}
                errors.append(b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (one.raw_id.encode(), _bytes_of(error)))
        requests = [one.line + b"\n" for one in self._requests.values() if one.line not in self._setup.values()]
        setup = [line + b"\n" for line in self._setup.values()]
        return Again([*setup, *requests], known - self._requests.keys(), errors)

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
        for one in message if isinstance(message, list) else [message]:
            if isinstance(one, dict) and isinstance(method := one.get("method"), str):
                self._take(one, method, line if one is message else _bytes_of(one))

    def _take(self, message: "dict[str, object]", method: str, line: bytes) -> None:
        params, key = message.get("params"), message.get("id")
        given = params if isinstance(params, dict) else {}
        if method == "notifications/cancelled":
            self._forget(given.get("requestId"))
        if method in ("initialize", "notifications/initialized", "logging/setLevel"):
            self._setup[method] = line
        elif method == "resources/subscribe" and len(self._setup) < _MOST_SETTINGS:
            self._setup[f"subscribe {given.get('uri')}"] = line
        elif method == "resources/unsubscribe":
            self._setup.pop(f"subscribe {given.get('uri')}", None)
        if isinstance(key, int | str):
            if len(line) > _LONG:
                few = {name: given[name] for name in ("name", "_meta") if name in given}
                line = _bytes_of({"jsonrpc": "2.0", "id": key, "method": method, "params": few})
            self._requests[key] = Request(line, method, _text(key))


def _number_of_call(line: bytes) -> bytes | None:
    """The id of a tool call, if it is a number in one of the two places where libraries write it."""
    if b'"method":"tools/call"' not in line:
        return None
    head = line[len(_ANSWER) : _SHORT_HEAD] if line.startswith(_ANSWER) else b""
    number = head.partition(b",")[0] or line[line.rfind(b'"id":') + 5 :].removesuffix(b"}")
    return number if number.isdigit() else None


def answer_id(line: bytes) -> "Id | None":
    """The id of an answer of the hub; None for `null`, and for any other line."""
    import json

    if not line.startswith(_ANSWER):
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(line[len(_ANSWER) : _HEAD].decode("utf-8", "ignore"))
    except ValueError:
        return None
    return found if isinstance(found, int | str) else None


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
