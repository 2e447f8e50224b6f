"""Modes that send too much: the call of the struck tool is answered only after `--n` messages of one sort."""

import os
from collections.abc import Iterable
from itertools import islice
from typing import Any

from tests.upstreams.definitions import text
from tests.upstreams.eras import HANDSHAKE, LOG_LEVEL, Request
from tests.upstreams.fault_base import Fault
from tests.upstreams.instance import Session
from tests.upstreams.wire import Raw, encode

Messages = Iterable[dict[str, Any]]
_BATCH = 500


class Flood(Fault):
    """`--n` messages as fast as they can be written, then the answer."""

    usual = 20_000

    def strikes(self, session: Session, request: Request) -> bool:
        session.start(lambda: self._flood(session, request))
        return True

    def _flood(self, session: Session, request: Request) -> None:
        count = self.options.n or self.usual
        messages = iter(self.messages(session, request, count))
        while batch := list(islice(messages, _BATCH)):
            if self.options.http is None:
                session.instance.output.write(b"".join(encode(message) + b"\n" for message in batch))
            else:
                for message in batch:
                    request.channel.send(message)
        session.respond(request, text("flooded"))

    def messages(self, session: Session, request: Request, count: int) -> Messages:
        return ()


def _notification(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}


class Pings(Flood):
    def messages(self, session: Session, request: Request, count: int) -> Messages:
        return ({"jsonrpc": "2.0", "id": f"ping-{i}", "method": "ping"} for i in range(count))


class Logs(Flood):
    """Whatever level anybody asked for."""

    usual = 100_000

    def messages(self, session: Session, request: Request, count: int) -> Messages:
        # the modern era forbids them unless asked for, which is what makes them hostile
        level = request.meta.get(LOG_LEVEL, "error")
        return (_notification("notifications/message", {"level": level, "data": f"line {i}"}) for i in range(count))


class Changes(Flood):
    """`list_changed` that are none, each on whichever stream is at hand."""

    def messages(self, session: Session, request: Request, count: int) -> Messages:
        return (_notification("notifications/tools/list_changed") for _ in range(count))


class Strays(Flood):
    """Answers to requests that nobody sent, and notifications that nobody knows."""

    def messages(self, session: Session, request: Request, count: int) -> Messages:
        for i in range(count // 2):
            yield {"jsonrpc": "2.0", "id": 1_000_000_000 + i, "result": {}}
            yield _notification("notifications/nobody/knows", {"progressToken": 1_000_000_000 + i, "progress": i})


class ProgressFlood(Flood):
    usual = 200_000

    def messages(self, session: Session, request: Request, count: int) -> Messages:
        token = request.meta.get("progressToken")
        return (_notification("notifications/progress", {"progressToken": token, "progress": i}) for i in range(count))


class Questions(Flood):
    """Elicitations of one call; their answers are not waited for. A modern server asks them in its result."""

    usual = 1000

    def messages(self, session: Session, request: Request, count: int) -> Messages:
        if request.era != HANDSHAKE:
            return ()
        return ({"jsonrpc": "2.0", "id": f"ask-{i}", "method": "elicitation/create", "params": _asked(i)}
                for i in range(count))  # fmt: skip

    def _flood(self, session: Session, request: Request) -> None:
        if request.era == HANDSHAKE:
            super()._flood(session, request)
            return
        count = self.options.n or self.usual
        wanted = {f"ask-{i}": {"method": "elicitation/create", "params": _asked(i)} for i in range(count)}
        session.respond(request, {"resultType": "input_required", "inputRequests": wanted})


def _asked(number: int) -> dict[str, Any]:
    return {"message": f"question {number}", "requestedSchema": {"type": "object", "properties": {}}}


class Stderr(Flood):
    """`--bytes` bytes of stderr, half of them one line."""

    def _flood(self, session: Session, request: Request) -> None:
        half = self.options.bytes // 2
        _write(2, b"stderr of the flood\n" * (half // 20))
        _write(2, b"x" * half + b"\n")
        session.respond(request, text("flooded"))


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[: 1 << 16]) :]


class OddProgress(Fault):
    """Adds nothing: the call of the struck tool is answered in the middle of `VALUES`, each said as progress."""

    VALUES = ("-5", "7", "7", "3", "1e308", "1e400", "-Infinity", "NaN", '"12"', "null", "9" * 400, "true", "[1]", "8")

    def strikes(self, session: Session, request: Request) -> bool:
        for value in self.VALUES:
            session.progress(request, Raw(value), total=4)
        for total in ("NaN", '"x"', "-1", "1e400"):
            session.progress(request, 9, total=Raw(total))
        session.respond(request, text("odd"))
        for late in (10, 11):
            session.progress(request, late)
        return True


FLOODS: dict[str, type[Fault]] = {
    "flood-pings": Pings,
    "flood-logs": Logs,
    "flood-changes": Changes,
    "flood-strays": Strays,
    "flood-progress": ProgressFlood,
    "flood-questions": Questions,
    "flood-stderr": Stderr,
    "odd-progress": OddProgress,
}
