"""Calls that wait while a modern client gathers input, each under a sealed `requestState` for one retry.

Source: specification 2026-07-28, basic/patterns/mrtr "Server Requirements": bound to principal, request and time.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Final

import msgspec

from mcp_hub.call import Call
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.owners import unconfirmed_call
from mcp_hub.clock import Clock
from mcp_hub.errors import InvalidParams, StoreUnavailable
from mcp_hub.types import CallId, RawObject

_MARK: Final = "hub1."
_UPSTREAM: Final = "up1."
_BOND: Final = 32
"""Hexadecimal digits: 128 bits."""
_MOST: Final = 1024
"""Waiting calls; beyond it the oldest is cancelled."""


def _new_key() -> bytes:
    return secrets.token_bytes(32)


def _new_nonce() -> str:
    return secrets.token_urlsafe(12)


class _PendingCall(msgspec.Struct, frozen=True):
    """A waiting call; its client has seen events up to `after`. `name` identifies this wait."""

    record: CallRecord
    after: int
    name: str
    until: float
    keys: frozenset[str] = frozenset()

    @property
    def is_answered(self) -> bool:
        return bool(self.keys) and not self.keys & self.record.questions.open.keys()

    def answer(self, responses: RawObject) -> None:
        for key, response in responses.items():
            self.record.questions.answer(key, response)


class PendingInput:
    """The waiting calls. `cancel` gets a call that nobody can retry. `has_replicas`: replicas get each other's retries.

    `key` seals states. It may raise `StoreUnavailable`, and so may all methods then.
    """

    def __init__(
        self,
        clock: Clock,
        seconds: float,
        cancel: Callable[[CallRecord, str], None],
        key: Callable[[], bytes] = _new_key,
        *,
        has_replicas: bool = False,
    ) -> None:
        self._has_replicas = has_replicas
        self._clock = clock
        self._seconds = seconds
        self._cancel = cancel
        self._new_key = key
        self._pending: OrderedDict[str, _PendingCall] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    def hold(self, record: CallRecord, cursor: int) -> str:
        """Keeps the call for one retry with the returned `requestState`.

        Raises `RpcError` (`store_unavailable`) without a key; the call is cancelled.
        """
        self._sweep()
        nonce = _new_nonce()
        try:
            state = self._state(record.call, nonce)
        except StoreUnavailable:
            self._cancel(record, "its client cannot come back: the store does not answer")
            raise unconfirmed_call(record.call.upstream, None) from None
        until, keys = self._clock.now() + self._seconds, frozenset(record.questions.open)
        self._pending[record.call.id] = _PendingCall(record, after=cursor, name=nonce, until=until, keys=keys)
        self._pending.move_to_end(record.call.id)
        if len(self._pending) > _MOST:
            _, oldest = self._pending.popitem(last=False)
            self._cancel(oldest.record, "too many calls wait for input")
        return state

    def seal(self, call: Call) -> str:
        """The `requestState` of a call at another replica."""
        return self._state(call, _new_nonce())

    def _state(self, call: Call, nonce: str) -> str:
        return f"{_MARK}{call.id}.{nonce}.{self._seal(call, nonce)}"

    def fetch(self, state: str, call: Call) -> _PendingCall:
        """The retried call; a state opens it once. Raises `InvalidParams`."""
        self._sweep()
        id_, nonce, seal = _parts(state)
        pending = self._pending.get(id_)
        is_named = pending is not None and hmac.compare_digest(_bytes(pending.name), _bytes(nonce))
        if not is_named or not self._is_sealed(call, id_, nonce, seal):
            raise InvalidParams(
                "params.requestState is unknown: it was used, has expired or belongs to another request",
                symbol="unknown_state",
            )
        return self._pending.pop(id_)

    def elsewhere(self, state: str, call: Call) -> CallId | None:
        """The call, if it may wait at another replica."""
        id_, nonce, seal = _parts(state)
        may_be = self._has_replicas and id_ not in self._pending and self._is_sealed(call, id_, nonce, seal)
        return CallId(id_) if may_be else None

    def mark(self, call: Call, state: str) -> str:
        """A server's own `requestState`, bound to this client."""
        return f"{_UPSTREAM}{self._bond(call, state)}.{state}"

    def unmark(self, call: Call, state: str) -> str:
        """The server's state. Raises `InvalidParams` for another client's or server's."""
        original = state.removeprefix(_UPSTREAM).partition(".")[2]
        if not hmac.compare_digest(_bytes(self.mark(call, original)), _bytes(state)):
            raise InvalidParams(
                "params.requestState was not given by this server to this client", symbol="unknown_state"
            )
        return original

    def _bond(self, call: Call, state: str) -> str:
        who = msgspec.json.encode([call.principal, call.upstream])
        return hmac.new(self._key, who + _bytes(state), hashlib.sha256).hexdigest()[:_BOND]

    @cached_property
    def _key(self) -> bytes:
        return self._new_key()

    def _sweep(self) -> None:
        now = self._clock.now()
        while self._pending and next(iter(self._pending.values())).until <= now:
            _, pending = self._pending.popitem(last=False)
            if not pending.is_answered:
                self._cancel(pending.record, "the client did not come back with its input")

    def _is_sealed(self, call: Call, id_: str, nonce: str, seal: str) -> bool:
        return hmac.compare_digest(_bytes(self._seal(call, nonce, id_)), _bytes(seal))

    def _seal(self, call: Call, nonce: str, id_: str | None = None) -> str:
        fields = [id_ or call.id, nonce, call.principal, call.upstream, call.method, _digest(call)]
        return hmac.new(self._key, msgspec.json.encode(fields), hashlib.sha256).hexdigest()


def is_pending(state: str) -> bool:
    """Whether a `requestState` claims to be the hub's."""
    return state.startswith(_MARK)


def _parts(state: str) -> tuple[str, str, str]:
    id_, _, remainder = state.removeprefix(_MARK).partition(".")
    nonce, _, seal = remainder.partition(".")
    return id_, nonce, seal


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(call: Call) -> str:
    params = {key: _content(raw) for key, raw in call.params.items()}
    return hashlib.sha256(msgspec.json.encode(params, order="sorted")).hexdigest()


def _content(raw: msgspec.Raw) -> object:
    """The value, or its bytes."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return [bytes(raw)]
