"""The state of a run: all that another hub needs to continue it, sealed. Pure.

A seal binds the state to its stream, its caller, the epoch of its writer and the version of the engine, which takes
only trusted bytes.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, Literal, Self

import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, StreamInfo
from mcp_hub.code.steps import CodeCall, CodeRaise
from mcp_hub.errors import RpcError
from mcp_hub.ids import new_call_id
from mcp_hub.masking import hide_head
from mcp_hub.types import OWN, CallId, RawJson

SLEEP: Final = "asyncio.sleep"
_NULL: Final = msgspec.Raw(b"null")
_LONGEST_READ: Final = 64 << 10
_LONGEST_WRITTEN: Final = 1 << 20
"""Bytes of a value that is kept for another hub; a longer one is read again, or unknown."""
_PRINTED: Final = 64 << 10
"""Characters of what a script prints that its result begins with; its stream has all."""
_LABEL: Final = b"mcp-hub code run"
"""Keeps these seals apart from others of the same key."""


class _Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt of a call; `is_sent`: perhaps."""

    stream: CallId
    number: int = 1
    is_sent: bool = False


class _Effect(msgspec.Struct, frozen=True, omit_defaults=True):
    """`writes`: not known as read-only. `repeats`: may be called again. `is_cleared`: the caller agreed."""

    writes: bool = False
    repeats: bool = False
    is_cleared: bool = False


class _Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value or an exception; `order` among all outcomes of the run."""

    order: int
    value: msgspec.Raw = _NULL
    error: CodeRaise | None = None


class InnerCall(msgspec.Struct, omit_defaults=True):
    """A script's call. `id` is the engine's, `key` that of events.

    `tool` is the exported name; empty for a sleep `until` a time in Unix seconds.
    """

    id: int
    tool: str
    arguments: msgspec.Raw
    line: int
    key: CallId
    attempt: _Attempt
    effect: _Effect = _Effect()
    until: float = 0.0
    outcome: _Outcome | None = None

    @classmethod
    def held(cls, call: CodeCall, tool: str, key: CallId, until: float = 0.0) -> Self:
        """A new call, which is not sent yet."""
        arguments = msgspec.Raw(bytes(call.arguments))
        return cls(
            id=call.id, tool=tool, arguments=arguments, line=call.line, key=key, attempt=_Attempt(key), until=until
        )

    @property
    def stream(self) -> CallId:
        """The id of the present attempt."""
        return self.attempt.stream

    @property
    def is_held(self) -> bool:
        """Whether it was surely not sent."""
        return not self.attempt.is_sent and self.outcome is None

    @property
    def is_in_flight(self) -> bool:
        return self.attempt.is_sent and self.outcome is None

    @property
    def answer(self) -> RawJson | CodeRaise:
        """The outcome, for the engine."""
        assert self.outcome is not None
        return self.outcome.value if self.outcome.error is None else self.outcome.error

    @property
    def may_have_acted(self) -> bool:
        """Whether an earlier attempt may have changed something."""
        return self.attempt.number > 1 and self.effect.writes

    def clear(self) -> None:
        """Notes that its caller agreed to it."""
        self.effect = replace(self.effect, is_cleared=True)

    def send(self, *, writes: bool, repeats: bool) -> None:
        """Notes that it may be sent from the next commit on."""
        self.effect = replace(self.effect, writes=writes, repeats=repeats)
        self.attempt = replace(self.attempt, is_sent=True)

    def hold(self, stream: CallId, *, was_sent: bool) -> None:
        """Begins another attempt, which is not sent yet. `was_sent`: the present one, perhaps."""
        self.attempt = _Attempt(stream, self.attempt.number + was_sent)

    def conclude(self, order: int, outcome: RawJson | CodeRaise) -> None:
        """Sets the outcome."""
        if isinstance(outcome, CodeRaise):
            self.outcome = _Outcome(order, error=outcome)
        else:
            self.outcome = _Outcome(order, msgspec.Raw(bytes(outcome)))


class _History(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lost workers, the begin of the output. `may_write`: writing calls may have been sent."""

    crashes: int = 0
    printed: str = ""
    may_write: bool = False


class RunState(msgspec.Struct, omit_defaults=True):
    """A run. `names`: exported names of tools in `code`, by Python name.

    `allowed`: grants for tools that may be called with any arguments. `calls`, `writes`, `ended` and `outcomes` are
    counts.
    """

    code: str
    names: dict[str, str] = {}
    snapshot: bytes = b""
    inner: dict[int, InnerCall] = {}
    allowed: list[str] = []
    calls: int = 0
    writes: int = 0
    ended: int = 0
    outcomes: int = 0
    history: _History = _History()

    @property
    def unfed(self) -> list[InnerCall]:
        """Calls with an outcome, in the order of those."""
        concluded = [(inner.outcome.order, inner) for inner in self.inner.values() if inner.outcome is not None]
        return [inner for _, inner in sorted(concluded, key=lambda pair: pair[0])]

    @property
    def in_flight(self) -> list[InnerCall]:
        return [inner for inner in self.inner.values() if inner.is_in_flight]

    @property
    def held(self) -> list[InnerCall]:
        return [inner for inner in self.inner.values() if inner.is_held]

    def claim(self) -> None:
        """Notes that from the next commit on writing calls may be sent."""
        self.history = replace(self.history, may_write=True)

    def unsend(self) -> None:
        """Holds writing calls again; none was sent before `claim`."""
        if self.history.may_write:
            return
        self.writes = 0
        for inner in self.in_flight:
            if inner.effect.writes:
                inner.hold(inner.stream, was_sent=False)

    def take(self, snapshot: bytes, calls: Sequence[CodeCall], wall: float) -> list[InnerCall]:
        """Makes a step of the engine part of the state; the new calls, which are held."""
        self.snapshot = snapshot
        begun = [self._held(call, wall) for call in calls]
        self.inner |= {inner.id: inner for inner in begun}
        self.calls += sum(bool(inner.tool) for inner in begun)
        return begun

    def _held(self, call: CodeCall, wall: float) -> InnerCall:
        if call.name != SLEEP:
            return InnerCall.held(call, self.names.get(call.name, call.name), new_call_id())
        seconds = msgspec.json.decode(call.arguments, type=dict[str, float]).get("seconds", 0.0)
        return InnerCall.held(call, "", new_call_id(), wall + seconds)

    def send(self, inner: InnerCall, *, writes: bool = False, repeats: bool = True) -> None:
        """Notes that it may be sent from the next commit on."""
        inner.send(writes=writes, repeats=repeats)
        self.writes += writes

    def conclude(self, inner: InnerCall, outcome: RawJson | CodeRaise) -> None:
        """Sets the outcome of a call, and numbers it behind all earlier outcomes."""
        self.outcomes += 1
        inner.conclude(self.outcomes, outcome)
        self.ended += bool(inner.tool)

    def allow(self, grant: str) -> None:
        """Allows a tool with any arguments."""
        if grant not in self.allowed:
            self.allowed.append(grant)

    def forget(self, fed: Sequence[InnerCall]) -> None:
        """Drops calls whose outcome the engine has."""
        for inner in fed:
            del self.inner[inner.id]

    def count_crash(self) -> int:
        """Counts a lost worker; how many there were."""
        self.history = replace(self.history, crashes=self.history.crashes + 1)
        return self.history.crashes

    def note_printed(self, text: str) -> None:
        if len(self.history.printed) < _PRINTED:
            self.history = replace(self.history, printed=hide_head(self.history.printed + text, _PRINTED, "…\n"))


class _Sealed(msgspec.Struct):
    epoch: int
    engine: str
    seal: str
    run: msgspec.Raw


def sealed(state: RunState, call: Call, epoch: int, engine: str, key: bytes) -> bytes:
    """The encoded state of the run that is `call`, written in `epoch`."""
    run = msgspec.json.encode(_without_long(state))
    return msgspec.json.encode(_Sealed(epoch, engine, _seal(run, call, epoch, engine, key), msgspec.Raw(run)))


def _without_long(state: RunState) -> RunState:
    """The state without long values, whose calls count as sent and unanswered."""
    unanswered = {inner.id: replace(inner, outcome=None) for inner in state.inner.values() if _is_long(inner)}
    return replace(state, inner={**state.inner, **unanswered}) if unanswered else state


def _is_long(inner: InnerCall) -> bool:
    limit = _LONGEST_READ if inner.effect.repeats else _LONGEST_WRITTEN
    return inner.outcome is not None and len(inner.outcome.value) > limit


def unsealed(raw: RawJson, row: StreamInfo, call: Call, engine: str, key: bytes) -> RunState:
    """The state, for the owner that `row` names. Raises `RpcError` (`code_not_resumable`)."""
    try:
        box = msgspec.json.decode(raw, type=_Sealed)
        run = bytes(box.run)
        # an owner reads what an earlier epoch wrote
        is_ours = box.epoch < row.epoch and hmac.compare_digest(box.seal, _seal(run, call, box.epoch, box.engine, key))
        if not is_ours:
            raise not_resumable("its state has not the seal of this deployment")
        if box.engine != engine:
            raise not_resumable(f"it was written by another engine ({box.engine or 'none'}, here {engine or 'none'})")
        return msgspec.json.decode(run, type=RunState)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError) as problem:
        raise not_resumable(f"its state cannot be read: {problem}") from None


def not_resumable(reason: str) -> RpcError:
    """The error of a run that no hub can continue."""
    message = f"The script cannot be continued: {reason}. Its calls so far are in `data.calls`."
    return RpcError(message, symbol="code_not_resumable", data={"outcome": "unknown"})


class _Record(msgspec.Struct):
    state: _Sealed = msgspec.field(name="how")
    call: msgspec.Raw = _NULL


def writes_of(continuation: bytes | None) -> Literal["", "soon", "perhaps"]:
    """Whether a run with this record may have called writing tools, or was about to; its seal is not checked."""
    try:
        record = msgspec.json.decode(continuation or b"", type=_Record)
        state = msgspec.json.decode(record.state.run, type=RunState)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return "perhaps"
    return "perhaps" if state.history.may_write else "soon" if state.writes else ""


def likeness_of(continuation: bytes | None) -> str:
    """The likeness of the run with this last record; empty for something else. Its seal is not checked."""
    try:
        record = msgspec.json.decode(continuation or b"", type=_Record)
        code = msgspec.json.decode(record.state.run, type=RunState).code
        return likeness(msgspec.json.decode(record.call, type=Call), code)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""


def likeness(call: Call, code: str) -> str:
    """A digest shared by runs of one caller's same code."""
    arguments = None if call.upstream == OWN else call.params  # of a script that is a tool
    same = call.principal, call.profile, call.directory, call.upstream, code, arguments
    return "code:" + hashlib.sha256(msgspec.json.encode(same, order="sorted")).hexdigest()


def _seal(run: bytes, call: Call, epoch: int, engine: str, key: bytes) -> str:
    caller = call.principal, call.profile, call.session, call.upstream
    seal = hashlib.blake2b(key=key[:64], digest_size=32, person=_LABEL)
    seal.update(msgspec.json.encode([call.id, caller, epoch, engine]) + b"\n")
    seal.update(run)
    return seal.hexdigest()
