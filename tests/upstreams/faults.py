"""The ways in which the fixture server misbehaves: one class per `--mode`, each overriding one moment."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.upstreams.definitions import text
from tests.upstreams.eras import Request
from tests.upstreams.fault_base import Fault, is_call
from tests.upstreams.floods import FLOODS
from tests.upstreams.http_faults import HTTP_FAULTS
from tests.upstreams.instance import Session, Tool
from tests.upstreams.odd_lists import ODD_LISTS
from tests.upstreams.odd_tasks import ODD_TASKS
from tests.upstreams.wire import encode


class HangStart(Fault):
    def swallows(self, method: str) -> bool:
        return True


class HangList(Fault):
    def swallows(self, method: str) -> bool:
        return method.endswith("/list")


class CrashStart(Fault):
    def starting(self) -> None:
        print("boom: cannot open database", file=sys.stderr, flush=True)
        os._exit(3)


class CrashAfter(Fault):
    def strikes(self, session: Session, request: Request) -> bool:
        os._exit(self.options.exit_code)


class Noise(Fault):
    def frame(self, line: bytes, request: Request | None) -> bytes:
        return b"starting the engine {ok}\n\n   \n[1, 2]\n" + line + b"\n\n"


class NoNewlineNoise(Fault):
    def frame(self, line: bytes, request: Request | None) -> bytes:
        return b"Loading {model}... 50% " + line + b"\n"


class GarbageAnswer(Fault):
    """Adds the tool `garble {variant?}`, whose answer is a line of `GARBAGE`."""

    def tools(self) -> dict[str, Tool]:
        schema = {"type": "object", "properties": {"variant": {"enum": list(GARBAGE)}}}
        definition = {"name": "garble", "description": "Answers with garbage.", "inputSchema": schema}
        return {"garble": Tool(definition, _garble)}


class KilledMidCall(Fault):
    def strikes(self, session: Session, request: Request) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return True


class CloseStdout(Fault):
    def strikes(self, session: Session, request: Request) -> bool:
        session.instance.output.close()
        return True


class IgnoreEof(Fault):
    def ended(self) -> None:
        while True:
            time.sleep(3600)


class IgnoreTerm(IgnoreEof):
    def starting(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


class StopReading(Fault):
    def strikes(self, session: Session, request: Request) -> bool:
        threading.Event().wait()
        return True


class Freeze(Fault):
    """Stops as a whole: its pipes stay open, and nothing but SIGKILL moves it."""

    def strikes(self, session: Session, request: Request) -> bool:
        os.kill(os.getpid(), signal.SIGSTOP)
        return True


class BadUtf8(Fault):
    def frame(self, line: bytes, request: Request | None) -> bytes:
        broken = line.replace(b'"text":"', b'"text":"\xff', 1) if is_call(request) else line
        return broken + b"\n"


class LongLine(Fault):
    """The answer is one line of `--bytes` bytes, newline included."""

    def strikes(self, session: Session, request: Request) -> bool:
        empty = encode({"jsonrpc": "2.0", "id": request.id, "result": text("")})
        at = empty.index(b'"text":""') + len(b'"text":"')
        padding = b"x" * (self.options.bytes - len(empty) - 1)
        request.channel.raw(empty[:at] + padding + empty[at:])
        return True


class EndlessLine(Fault):
    """`--bytes` bytes without a newline, then nothing more."""

    def strikes(self, session: Session, request: Request) -> bool:
        session.instance.output.write(b"x" * self.options.bytes)
        return True


class Late(Fault):
    def frame(self, line: bytes, request: Request | None) -> bytes:
        return (line + b"\n") * (2 if is_call(request) else 1)


class UnknownId(Fault):
    def frame(self, line: bytes, request: Request | None) -> bytes:
        nobody = encode({"jsonrpc": "2.0", "id": 999_999_999, "result": text("nobody asked")}) + b"\n"
        return (nobody if is_call(request) else b"") + line + b"\n"


class NoisyAnswer(Fault):
    """Before the answer to a call come lines that may be taken for it."""

    def frame(self, line: bytes, request: Request | None) -> bytes:
        noise = b'{"jsonrpc":"2.0","result":{"content":[}\n{"jsonrpc":"2.0","result":"fine"}\n'
        noise += encode({"jsonrpc": "2.0", "id": "nobody", "result": text("nobody asked")}) + b"\n"
        return (noise if is_call(request) else b"") + line + b"\n"


MODES: dict[str, type[Fault]] = {
    "normal": Fault,
    "hang-start": HangStart,
    "hang-list": HangList,
    "crash-start": CrashStart,
    "crash-after": CrashAfter,
    "killed": KilledMidCall,
    "noise": Noise,
    "no-newline-noise": NoNewlineNoise,
    "garbage-answer": GarbageAnswer,
    "close-stdout": CloseStdout,
    "ignore-eof": IgnoreEof,
    "ignore-term": IgnoreTerm,
    "stop-reading": StopReading,
    "freeze": Freeze,
    "bad-utf8": BadUtf8,
    "long-line": LongLine,
    "endless-line": EndlessLine,
    "late": Late,
    "unknown-id": UnknownId,
    "noisy-answer": NoisyAnswer,
    **ODD_LISTS,
    **ODD_TASKS,
    **FLOODS,
    **HTTP_FAULTS,
}

ONLY_STDIO = {"close-stdout", "stop-reading", "freeze", "noise", "no-newline-noise", "bad-utf8"}
ONLY_STDIO |= {"endless-line", "late", "unknown-id", "noisy-answer"}

OK = b'{"content":[{"type":"text","text":"fine"}]}'


def _answer(id_text: bytes, rest: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + id_text + b"," + rest + b"}"


GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "malformed": lambda i: _answer(i, b'"result":{"content":[}'),
    "truncated": lambda i: _answer(i, b'"result":{"content":[]')[:-1],
    "not-json": lambda i: b"Traceback (most recent call last):",
    "null-result": lambda i: _answer(i, b'"result":null'),
    "number-result": lambda i: _answer(i, b'"result":42'),
    "neither": lambda i: _answer(i, b'"extra":1'),
    "both": lambda i: _answer(i, b'"result":' + OK + b',"error":{"code":-1,"message":"both"}'),
    "string-error": lambda i: _answer(i, b'"error":"broken"'),
    "float-id": lambda i: _answer(i + b".0" if i.isdigit() else b"1.5", b'"result":' + OK),
    "other-type-id": lambda i: _answer(b'"' + i + b'"' if i.isdigit() else b"0", b'"result":' + OK),
    "no-id": lambda i: b'{"jsonrpc":"2.0","result":' + OK + b"}",
    "null-id": lambda i: _answer(b"null", b'"error":{"code":-32700,"message":"Parse error"}'),
    "duplicate-id": lambda i: _answer(b'"nobody","id":' + i, b'"result":' + OK),
    "no-jsonrpc": lambda i: b'{"id":' + i + b',"result":' + OK + b"}",
    "array": lambda i: b"[" + _answer(i, b'"result":' + OK) + b"]",
    "surrogate": lambda i: _answer(i, b'"result":{"content":[{"type":"text","text":"\\ud83d"}]}'),
    "nan": lambda i: _answer(i, b'"result":{"content":[],"structuredContent":{"x":NaN,"y":-Infinity}}'),
    "huge-integer": lambda i: _answer(i, b'"result":{"content":[],"_meta":{"x":' + b"7" * 5000 + b"}}"),
    "deep": lambda i: _answer(i, b'"result":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "bad-utf8": lambda i: _answer(i, b'"result":{"content":[{"type":"text","text":"\xff\xfe"}]}'),
    "nul": lambda i: _answer(i, b'"result":{"content":[{"type":"text","text":"\x00"}]}'),
    "bom": lambda i: b"\xef\xbb\xbf" + _answer(i, b'"result":' + OK),
}
"""Answers to the request whose id is this JSON text, all of them wrong in one way."""


def _garble(session: Session, request: Request, arguments: dict[str, Any]) -> None:
    garbage = GARBAGE[arguments.get("variant", session.options.garbage)]
    request.channel.raw(garbage(encode(request.id)))
