"""The state of a run: all that another hub needs to continue it, sealed. Pure.

A seal binds the state to its stream, its caller, the epoch of its writer and the version of the engine, which takes
only trusted bytes.
"""

import hashlib
import hmac
from collections.abc import Iterator
from typing import Final

import msgspec

from mcp_hub.call import Call, StreamInfo
from mcp_hub.code.engine import CodeRaise
from mcp_hub.errors import RpcError
from mcp_hub.types import CallId, RawJson

SLEEP: Final = "asyncio.sleep"
_LABEL: Final = b"code-run\n"
"""Keeps these seals apart from others of the same key."""


class InnerCall(msgspec.Struct, omit_defaults=True):
    """A call that a script waits for. `id` is the engine's, `key` that of events, `stream` the present attempt's.

    `tool` is the exported name; empty for a sleep `until` a time in Unix seconds. `writes`: it is not known as
    read-only. `repeats`: it may be sent again. `is_cleared`: the caller agreed to it. `is_sent`: it may have been sent.
    `order` is that of its outcome among all: `value` or `error`.
    """

    id: int
    tool: str
    arguments: msgspec.Raw
    line: int
    key: CallId
    stream: CallId
    writes: bool = False
    repeats: bool = False
    is_cleared: bool = False
    is_sent: bool = False
    attempt: int = 1
    until: float = 0.0
    order: int = 0
    value: msgspec.Raw = msgspec.Raw(b"null")
    error: CodeRaise | None = None

    @property
    def has_outcome(self) -> bool:
        return self.order > 0

    @property
    def answer(self) -> RawJson | CodeRaise:
        """The outcome, for the engine."""
        return self.value if self.error is None else self.error

    def again(self, stream: CallId) -> None:
        """Begins another attempt."""
        self.stream = stream
        self.attempt += 1


class RunState(msgspec.Struct, omit_defaults=True):
    """A run. `names` has the exported names of the tools that occur in `code`, by Python name.

    `allowed`: tools that may be called with any arguments in this run. `calls`, `writes`, `done` and `outcomes` are
    counts; `crashes` those of workers.
    """

    code: str
    names: dict[str, str] = {}
    snapshot: bytes = b""
    inner: dict[int, InnerCall] = {}
    allowed: list[str] = []
    calls: int = 0
    writes: int = 0
    done: int = 0
    outcomes: int = 0
    crashes: int = 0

    @property
    def unfed(self) -> list[InnerCall]:
        """Calls with an outcome, in the order of those."""
        return sorted((inner for inner in self.inner.values() if inner.has_outcome), key=lambda inner: inner.order)

    @property
    def in_flight(self) -> Iterator[InnerCall]:
        return (inner for inner in self.inner.values() if inner.is_sent and not inner.has_outcome)

    @property
    def held(self) -> list[InnerCall]:
        """Calls that were surely not sent."""
        return [inner for inner in self.inner.values() if not (inner.is_sent or inner.has_outcome)]


class _Sealed(msgspec.Struct):
    epoch: int
    engine: str
    seal: str
    run: msgspec.Raw


def sealed(state: RunState, call: Call, epoch: int, engine: str, key: bytes) -> bytes:
    """The encoded state of the run that is `call`, written in `epoch`."""
    run = msgspec.json.encode(state)
    return msgspec.json.encode(_Sealed(epoch, engine, _seal(run, call, epoch, engine, key), msgspec.Raw(run)))


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
    message = f"The script cannot be continued: {reason}. Its calls so far are in `data.calls`."
    return RpcError(message, symbol="code_not_resumable", data={"outcome": "unknown"})


class _Kept(msgspec.Struct):
    """What is read of a `StreamInfo.continuation`."""

    how: _Sealed


def writes_of(continuation: bytes | None) -> bool:
    """Whether a run with this last record may have called writing tools; its seal is not looked at."""
    try:
        kept = msgspec.json.decode(continuation or b"", type=_Kept)
        return bool(msgspec.json.decode(kept.how.run, type=RunState).writes)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return True


def likeness(call: Call, code: str) -> str:
    """A digest of what runs of the same code of the same caller have in common."""
    same = call.principal, call.profile, call.upstream, code
    return "code:" + hashlib.sha256(msgspec.json.encode(same)).hexdigest()


def _seal(run: bytes, call: Call, epoch: int, engine: str, key: bytes) -> str:
    caller = call.principal, call.profile, call.session, call.upstream
    bound = msgspec.json.encode([call.id, caller, epoch, engine])
    return hmac.new(key, _LABEL + bound + b"\n" + run, hashlib.sha256).hexdigest()
