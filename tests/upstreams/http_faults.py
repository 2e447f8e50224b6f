"""The ways in which the fixture server misbehaves that only HTTP has; each answers the struck `tools/call`."""

import gzip
import json
import socket
import struct
import time
import zlib
from contextlib import suppress
from typing import Any

from tests.upstreams.fault_base import Fault, Handler

Message = dict[str, Any]
LIMIT = {"code": -32000, "message": "three calls a minute"}
RESULT: dict[str, Any] = {"resultType": "complete", "content": [{"type": "text", "text": "fine"}]}


def _answer(message: Message, text: str = "fine") -> bytes:
    result = {**RESULT, "content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()


class HttpFault(Fault):
    """Writes `sent` to the bare connection, which is then closed; a client that goes away ends it too."""

    def posted(self, handler: Handler, message: Message) -> bool:
        params = message.get("params")
        is_call = message.get("method") == "tools/call" and isinstance(params, dict)
        if not is_call or not self.is_meant((params or {}).get("name")):
            return False
        handler.close_connection = True
        with suppress(OSError):
            self.sent(handler, message)
        return True

    def sent(self, handler: Handler, message: Message) -> None:
        raise NotImplementedError

    def write(self, handler: Handler, data: bytes) -> None:
        handler.connection.sendall(data)

    def head(self, handler: Handler, *lines: str, status: str = "200 OK") -> None:
        self.write(handler, "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1"))


class Whole(HttpFault):
    """A status, a type and a body."""

    status = "200 OK"
    kind = "application/json"
    more: tuple[str, ...] = ()

    def body(self, message: Message) -> bytes:
        return _answer(message)

    def sent(self, handler: Handler, message: Message) -> None:
        body = self.body(message)
        kind = [f"content-type: {self.kind}"] if self.kind else []
        self.head(handler, *kind, f"content-length: {len(body)}", *self.more, status=self.status)
        self.write(handler, body)


class WrongType(Whole):
    kind = "text/html"


class NoType(Whole):
    kind = ""


class ServerError(Whole):
    status = "500 Internal Server Error"
    kind = "text/plain"

    def body(self, message: Message) -> bytes:
        return b"oops " * 1000


class ErrorInBody(Whole):
    """500 with an answer that claims success."""

    status = "500 Internal Server Error"


class Unavailable(Whole):
    status = "503 Service Unavailable"

    @property
    def more(self) -> tuple[str, ...]:  # type: ignore[override]
        return (f"retry-after: {self.options.retry_after}",)


class RateLimited(Unavailable):
    status = "429 Too Many Requests"

    def body(self, message: Message) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": LIMIT}).encode()


class Accepted(Whole):
    status = "202 Accepted"

    def body(self, message: Message) -> bytes:
        return b""


class NoContent(Accepted):
    status = "204 No Content"


class Empty(Accepted):
    status = "200 OK"


class NotJson(Whole):
    def body(self, message: Message) -> bytes:
        return b"<html>" * 100


class Redirect(Whole):
    """To where credentials must not go."""

    status = "307 Temporary Redirect"

    def sent(self, handler: Handler, message: Message) -> None:
        self.more = (f"location: {self.options.canary}redirected",)
        super().sent(handler, message)


class RedirectSeeOther(Redirect):
    status = "303 See Other"


class OddHeaders(Whole):
    """Header values of every sort, a lot of them, and a long one."""

    @property
    def more(self) -> tuple[str, ...]:  # type: ignore[override]
        many = (f"x-{i}: {i}" for i in range(90))
        return ("set-cookie: a=b; domain=example.com", "mcp-session-id: \x01\xff;,", f"x-long: {'x' * 30_000}", *many)


class HeaderFlood(HttpFault):
    """Headers without end."""

    def sent(self, handler: Handler, message: Message) -> None:
        self.write(handler, b"HTTP/1.1 200 OK\r\n")
        for _ in range(100_000):
            self.write(handler, b"x-more: %s\r\n" % (b"x" * 1000))


class SlowHead(HttpFault):
    """The status line, a byte at a time."""

    def sent(self, handler: Handler, message: Message) -> None:
        for byte in b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" * 100:
            self.write(handler, bytes([byte]))
            time.sleep(0.05)


class SlowBody(HttpFault):
    """The answer, a byte at a time."""

    def sent(self, handler: Handler, message: Message) -> None:
        body = _answer(message, "x" * 10_000)
        self.head(handler, "content-type: application/json", f"content-length: {len(body)}")
        for byte in body:
            self.write(handler, bytes([byte]))
            time.sleep(0.05)


class NeverAnswers(HttpFault):
    def sent(self, handler: Handler, message: Message) -> None:
        _until_gone(handler)


def _until_gone(handler: Handler) -> None:
    while handler.connection.recv(1):
        pass


class Stream(HttpFault):
    """An event stream of `events`."""

    def sent(self, handler: Handler, message: Message) -> None:
        self.head(handler, "content-type: text/event-stream", "connection: close")
        self.events(handler, message)

    def events(self, handler: Handler, message: Message) -> None:
        raise NotImplementedError


class EndlessComments(Stream):
    """Signs of life, and nothing else."""

    def events(self, handler: Handler, message: Message) -> None:
        while True:
            self.write(handler, b": still there\n\n")
            time.sleep(0.01)


class CommentFlood(Stream):
    """The same as fast as it goes."""

    def events(self, handler: Handler, message: Message) -> None:
        while True:
            self.write(handler, b": still there\n\n" * 4000)


class HugeEvent(Stream):
    """One event of `--bytes` bytes, the answer."""

    def events(self, handler: Handler, message: Message) -> None:
        self.write(handler, b"data: " + _answer(message, "x" * self.options.bytes) + b"\n\n")


class EndlessEvent(Stream):
    """An event that never ends, in many lines."""

    def events(self, handler: Handler, message: Message) -> None:
        for _ in range(self.options.bytes // 1000):
            self.write(handler, b"data: " + b"x" * 993 + b"\n")
        _until_gone(handler)


class EmptyStream(Stream):
    def events(self, handler: Handler, message: Message) -> None:
        pass


class EndlessResume(Stream):
    """Breaks off at once, with a place to resume from, and again each time (of the handshake era)."""

    def events(self, handler: Handler, message: Message) -> None:
        self.write(handler, b"retry: 1\nid: \xff\x7f\x01;\ndata:\n\n")


class ForeignAnswers(Stream):
    """Answers for other requests, then nothing."""

    def events(self, handler: Handler, message: Message) -> None:
        for i in range(50):
            self.write(handler, b"data: " + _answer({"id": i}) + b"\n\n" if i != message.get("id") else b"")
        _until_gone(handler)


def _bomb(megabytes: int) -> bytes:
    """Gzip of so many MB of blanks, at a thousandth of their size and next to no cost."""
    packer = zlib.compressobj(9, wbits=-15)
    # after a full flush every block is the same, and need not be compressed again
    block = packer.compress(b" " * 1_000_000) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * megabytes


class GzipBomb(Whole):
    """Two GB in two MB, though nobody asked for compression."""

    more = ("content-encoding: gzip",)

    def body(self, message: Message) -> bytes:
        return _bomb(2000)


class GzipTwice(Whole):
    """The same in some kB: compressed twice."""

    more = ("content-encoding: gzip, gzip",)

    def body(self, message: Message) -> bytes:
        return gzip.compress(_bomb(2000))


class GzipGarbage(Whole):
    more = ("content-encoding: gzip",)

    def body(self, message: Message) -> bytes:
        return b"\x1f\x8b\x08\0garbage"


class OddEncoding(Whole):
    more = ("content-encoding: br",)


class GzipHonest(Whole):
    """Compressed, and fine otherwise."""

    more = ("content-encoding: gzip",)

    def body(self, message: Message) -> bytes:
        return gzip.compress(_answer(message))


class Reset(HttpFault):
    """The connection is reset in the middle of the body."""

    def sent(self, handler: Handler, message: Message) -> None:
        self.head(handler, "content-type: application/json", "content-length: 10000")
        self.write(handler, b'{"jsonrpc":"2.0",')
        time.sleep(0.05)
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()


class Truncated(HttpFault):
    """The body ends before it should."""

    def sent(self, handler: Handler, message: Message) -> None:
        self.head(handler, "content-type: application/json", "content-length: 10000")
        self.write(handler, _answer(message)[:-10])


class ChunkGarbage(HttpFault):
    def sent(self, handler: Handler, message: Message) -> None:
        self.head(handler, "content-type: application/json", "transfer-encoding: chunked")
        self.write(handler, b"zz\r\n{}\r\n-5\r\n")


class HugeChunkSize(HttpFault):
    def sent(self, handler: Handler, message: Message) -> None:
        self.head(handler, "content-type: application/json", "transfer-encoding: chunked")
        self.write(handler, b"ffffffffffffffff\r\n")
        self.write(handler, b"x" * 100)


class EndlessBody(HttpFault):
    """`--bytes` bytes that are no JSON yet, and no end."""

    def sent(self, handler: Handler, message: Message) -> None:
        self.head(handler, "content-type: application/json", "connection: close")
        for _ in range(self.options.bytes // 65536):
            self.write(handler, b" " * 65536)
        _until_gone(handler)


class NoHttp(HttpFault):
    def sent(self, handler: Handler, message: Message) -> None:
        self.write(handler, b"SSH-2.0-OpenSSH_9.9\r\n")


class Ambiguous(HttpFault):
    """Two lengths: whoever reads on would take the rest for another answer."""

    def sent(self, handler: Handler, message: Message) -> None:
        self.head(handler, "content-type: application/json", "content-length: 5", "content-length: 500")
        self.write(handler, _answer(message))


class OddSession(Fault):
    """A session id that no header can carry back."""

    def session_id(self, own: str) -> str:
        return f"{own} \xff\x01;,\t\x7f"


class LongSession(Fault):
    def session_id(self, own: str) -> str:
        return own * 500


HTTP_FAULTS: dict[str, type[Fault]] = {
    "http-wrong-type": WrongType,
    "http-no-type": NoType,
    "http-500": ServerError,
    "http-500-answer": ErrorInBody,
    "http-503": Unavailable,
    "http-429": RateLimited,
    "http-202": Accepted,
    "http-204": NoContent,
    "http-empty": Empty,
    "http-not-json": NotJson,
    "http-redirect": Redirect,
    "http-redirect-303": RedirectSeeOther,
    "http-odd-headers": OddHeaders,
    "http-header-flood": HeaderFlood,
    "http-slow-head": SlowHead,
    "http-slow-body": SlowBody,
    "http-never": NeverAnswers,
    "http-endless-comments": EndlessComments,
    "http-comment-flood": CommentFlood,
    "http-huge-event": HugeEvent,
    "http-endless-event": EndlessEvent,
    "http-empty-stream": EmptyStream,
    "http-endless-resume": EndlessResume,
    "http-foreign-answers": ForeignAnswers,
    "http-gzip-bomb": GzipBomb,
    "http-gzip-twice": GzipTwice,
    "http-gzip-garbage": GzipGarbage,
    "http-gzip-honest": GzipHonest,
    "http-odd-encoding": OddEncoding,
    "http-reset": Reset,
    "http-truncated": Truncated,
    "http-chunk-garbage": ChunkGarbage,
    "http-huge-chunk-size": HugeChunkSize,
    "http-endless-body": EndlessBody,
    "http-no-http": NoHttp,
    "http-two-lengths": Ambiguous,
    "http-odd-session": OddSession,
    "http-long-session": LongSession,
}
