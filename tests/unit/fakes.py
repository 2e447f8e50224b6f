"""The seams of a call that a test fills in: a channel and a wire that keep what they are sent, an idle server."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import anyio

from mcp_hub.call import Call, CallChannel, Question, Upstream, WaitReason
from mcp_hub.calls.handle import CallHandle, is_known
from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.runner import newest_progress
from mcp_hub.clock import SystemClock
from mcp_hub.errors import method_not_found
from mcp_hub.events import CallEvent, Completed, Ending
from mcp_hub.notices import SharedLists
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import Envelope, Frame, whole
from mcp_hub.sessions.session import Session
from mcp_hub.stores.base import LiveSessions
from mcp_hub.types import RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.wire.base import Requests


class HandClock:
    """A clock that a test moves."""

    def __init__(self, time: float = 1000.0) -> None:
        self.time = time

    def now(self) -> float:
        return self.time


class NotedTimes:
    """The `reasons` of waits in order, None where one has ended; the `signs` of the upstream."""

    def __init__(self) -> None:
        self.reasons: list[WaitReason | None] = []
        self.signs = 0
        self.has_lapsed = False

    def begin_wait(self, reason: WaitReason) -> None:
        self.reasons.append(reason)

    def end_wait(self) -> None:
        self.reasons.append(None)

    def put_off(self, seconds: float) -> AbstractContextManager[None]:
        raise AssertionError("nothing is put off here")

    def touch(self) -> None:
        self.signs += 1

    def suspect(self) -> None:
        raise AssertionError("nothing is doubted here")


class NoQuestions:
    """Questions of which none is withdrawn."""

    count = 0

    def withdraw(self, key: str) -> None:
        raise AssertionError("nothing is withdrawn here")


@dataclass
class Channel:
    """Keeps what it is sent; its readers have caught up unless `is_behind`, its store unless `is_unkept`."""

    sent: list[CallEvent] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)
    is_behind: bool = False
    is_unkept: bool = False
    survives: bool = False
    kept_calls: list[bool] = field(default_factory=list)
    stopping: Ending | None = None
    times: NotedTimes = field(default_factory=NotedTimes)
    questions: NoQuestions = field(default_factory=NoQuestions)

    def send(self, event: CallEvent) -> None:
        self.sent.append(event)

    def ask(self, question: Question) -> str:
        self.asked.append(question)
        return f"q{len(self.asked)}"

    def continuable(self, how: RawJson | None, *, is_firm: bool = False, is_quiet: bool = False) -> None:
        raise AssertionError("nothing can be continued")

    async def until_stored(self, *, whole: bool) -> None:
        self.kept_calls.append(whole)
        if self.is_unkept:
            await anyio.sleep_forever()

    async def drained(self) -> None:
        if self.is_behind:
            await anyio.sleep_forever()


class IdleUpstream(Upstream):
    """A ready server that lists nothing and takes no calls."""

    def __init__(self, name: str) -> None:
        self.name = name

    def begin(self, call: Call, channel: CallChannel) -> None:
        """Never in place."""

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        raise AssertionError(f"{self.name} is not called here")

    async def resume(self, call: Call, channel: CallChannel, how: RawJson) -> Completed:
        raise AssertionError(f"{self.name} is not called here")

    def status(self) -> UpstreamStatus:
        return UpstreamStatus(self.name, UpstreamState.READY)

    def snapshot(self) -> Snapshot | None:
        return None

    def set_log_level(self, level: str) -> None:
        raise AssertionError("no level is set here")

    def session_ended(self, session: str) -> None:
        """Nothing here belongs to a session."""

    async def subscribe(self, uri: str, call: Call) -> None:
        raise method_not_found("resources/subscribe")

    def unsubscribe(self, uri: str, call: Call) -> None:
        """There was nothing to subscribe to."""


class ResponderPort:
    """The part of a hub's port that the delivery of a call needs."""

    is_known = staticmethod(is_known)
    newest_progress = staticmethod(newest_progress)

    def __init__(self) -> None:
        self.pending_input = PendingInput(SystemClock(), 60, lambda record, why: None)

    def hold(self, call: CallHandle, cursor: int) -> str:
        return self.pending_input.hold(call.record, cursor)

    def mark_state(self, call: Call, state: str) -> str:
        return self.pending_input.mark(call, state)

    def exported(self, session: Session, call: Call, result: RawJson) -> RawJson:
        return result

    def is_public(self, *about: object) -> bool:
        return False


class KeptWire:
    """A `ClientWire` that keeps what it is sent, as messages."""

    def __init__(self) -> None:
        self.requests = Requests()
        self.is_congested = False
        self.is_closed = False
        self.sent: list[Any] = []

    def send(self, frame: Frame) -> None:
        self.sent.append(json.loads(whole(frame)))

    def flush(self) -> None: ...

    def soon(self, callback: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_soon(callback)


def enveloped(message: Any) -> Envelope:
    """A JSON-RPC message as a front decodes it."""
    decoded = envelope.decode(json.dumps(message, separators=(",", ":")).encode())
    assert isinstance(decoded, Envelope)
    return decoded


async def unused(call: Call, channel: CallChannel) -> Completed:
    """The handler of a call that is never run."""
    raise AssertionError("this call is not run")


class LoneReplicas:
    """`Replicas` of a hub whose others do nothing."""

    secret: bytes | None = None

    def __init__(self) -> None:
        self.sessions = LiveSessions()
        self.lists = SharedLists()

    @property
    def counts(self) -> Any:
        raise NotImplementedError

    def record(self, name: str) -> Any:
        raise NotImplementedError

    def holdings(self, kind: str) -> Any:
        raise NotImplementedError

    def accounts(self, now: Any, *, is_pending: bool = False) -> Any:
        raise NotImplementedError

    def documents(self, limits: Any, now: Any) -> Any:
        raise NotImplementedError

    def history(self, now: Any) -> Any:
        raise NotImplementedError
