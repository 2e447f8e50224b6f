"""Questions of servers to their callers: requests of handshake servers, `input_required` results of modern ones.

A question goes to the caller of exactly one call or is declined with a clear error; the server's call continues in
both cases. Source: specification 2025-11-25, client/*; 2026-07-28, basic/patterns/mrtr.
"""

from collections.abc import Callable, Mapping
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel, CallHandler, Question
from mcp_hub.errors import MethodNotFound, RpcError
from mcp_hub.events import Completed
from mcp_hub.protocol import questions
from mcp_hub.protocol.jsonrpc.envelope import (
    Envelope,
    error_frame,
    id_key,
    object_bytes,
    raw_object,
    result_frame,
    usable_id,
)
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST
from mcp_hub.types import JsonObject, RawJson, RawObject

__all__ = ["MOST_QUESTIONS", "PARKABLE", "RETRY", "OpenRequests", "check", "declined", "follow_up", "with_retry"]

PARKABLE: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Calls during which a question may be asked (2026-07-28, mrtr "Supported Requests")."""
_ROUNDS: Final = 10
"""Times that a modern server may ask in one call."""
RETRY: Final = frozenset({"inputResponses", "requestState"})
MOST_QUESTIONS: Final = 256
"""Questions of one server that may be open at once."""

Asker = tuple[Call, CallChannel]


def with_retry(call: Call) -> RawObject:
    """The params for a modern server, with what the hub itself says of a retry (2026-07-28, basic/patterns/mrtr).

    What a client of another era wrote under those names is left out: nobody has looked whose state that is.
    """
    params = {name: value for name, value in call.params.items() if name not in RETRY}
    if call.input_responses is not None:
        params["inputResponses"] = msgspec.Raw(object_bytes(call.input_responses))
    if call.request_state is not None:
        params["requestState"] = msgspec.Raw(object_bytes(call.request_state))
    return params


class OpenRequests:
    """The requests that one handshake server has open. `send` writes a frame to it."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._open: dict[int | str, tuple[CallChannel, str]] = {}

    def take(self, message: Envelope, asker: Asker | None) -> None:
        """Passes a request on to the caller of the call that it belongs to, or declines it."""
        id_ = usable_id(message.id)
        if id_ is None:
            return
        method = str(message.method)
        params = message.params if isinstance(message.params, msgspec.Raw) else msgspec.Raw(b"{}")
        reason = self._refusal(id_, method, params, asker)
        if reason is not None or asker is None:
            self._send(error_frame(id_, (reason or _nobody(method)).encoded()))
            return
        _, channel = asker
        key = id_key(id_)
        self._open[key] = channel, ""

        def answered(outcome: RawJson | RpcError) -> None:
            self._open.pop(key, None)
            if isinstance(outcome, RpcError):
                self._send(error_frame(id_, outcome.encoded()))
            else:
                self._send(result_frame(id_, outcome))

        name = channel.ask(Question(method, params, answered))
        if key in self._open:
            self._open[key] = channel, name

    def _refusal(self, id_: bytes, method: str, params: RawJson, asker: Asker | None) -> RpcError | None:
        if method not in questions.QUESTIONS:
            return MethodNotFound(f"this client has no method {method[:100]}")
        if asker is None or asker[0].method not in PARKABLE:
            return _nobody(method)
        if id_key(id_) in self._open:
            return RpcError("a request with this id is still being answered", code=INVALID_REQUEST)
        if len(self._open) >= MOST_QUESTIONS:
            return RpcError(f"{MOST_QUESTIONS} requests of this server are open already")
        call, _ = asker
        lack = questions.can_answer(call.capabilities, call.version, method, params)
        return MethodNotFound(f"{method}: {lack}") if lack is not None else None

    def withdraw(self, params: RawJson) -> None:
        """The server cancels one of its requests (`notifications/cancelled`)."""
        raw = (raw_object(params) or {}).get("requestId")
        found = self._open.pop(id_key(bytes(raw)), None) if raw is not None else None
        if found is not None:
            channel, key = found
            channel.withdraw(key)

    def close(self) -> None:
        """The server is gone; nobody waits for the answers."""
        for channel, key in list(self._open.values()):
            channel.withdraw(key)


def _nobody(method: str) -> RpcError:
    """A question outside any call, or with calls of several clients in flight."""
    return RpcError(f"{method}: nobody to ask; it belongs to no single client's call", code=INVALID_REQUEST)


async def follow_up(call: Call, channel: CallChannel, handler: CallHandler, done: Completed) -> Completed:
    """For a handshake client: what `done` asks for is asked, the call retried with it, until there is a result.

    Raises `RpcError` when the client refuses, lacks the capability, or is asked too often.
    """
    for rounds in range(1, _ROUNDS + 1):
        wanted = questions.input_requests(done.result)
        if wanted is None:
            return done
        if rounds == _ROUNDS:
            break
        responses = await _ask_all(call, channel, wanted.requests) if wanted.requests else None
        call = msgspec.structs.replace(call, input_responses=responses, request_state=wanted.state)
        done = await handler(call, channel)
    raise RpcError(
        f'upstream "{call.upstream}" asked for input {_ROUNDS} times in one call',
        data=_about(call, {"rounds": _ROUNDS}),
    )


async def _ask_all(call: Call, channel: CallChannel, wanted: Mapping[str, tuple[str, RawJson]]) -> RawObject:
    """The client's answers by key; all questions are open at once."""
    for method, params in wanted.values():
        check(call, method, params)
    outcomes: dict[str, RawJson | RpcError] = {}
    news = anyio.Event()

    def answered_as(key: str) -> Callable[[RawJson | RpcError], None]:
        def answered(outcome: RawJson | RpcError) -> None:
            outcomes[key] = outcome
            if len(outcomes) == len(wanted) or isinstance(outcome, RpcError):
                news.set()

        return answered

    asked: list[str] = []
    try:
        for key, (method, params) in wanted.items():
            asked.append(channel.ask(Question(method, params, answered_as(key))))
        await news.wait()
    finally:
        for name in asked:
            channel.withdraw(name)
    for key, outcome in outcomes.items():
        if isinstance(outcome, RpcError):
            raise declined(call, wanted[key][0], outcome)
    return {key: msgspec.Raw(bytes(value)) for key, value in outcomes.items() if not isinstance(value, RpcError)}


def check(call: Call, method: str, params: RawJson) -> None:
    """Raises `RpcError` for what the caller cannot be asked."""
    lack = questions.can_answer(call.capabilities, call.version, method, params)
    if lack is not None:
        raise RpcError(f"upstream asked for {method}, but {lack}", data=_about(call, {"question": method}))


def declined(call: Call, method: str, error: RpcError) -> RpcError:
    """A modern server cannot receive an error answer: the call fails with it."""
    about = {"question": method, "error": msgspec.Raw(bytes(error.encoded()))}
    return RpcError(f"the client answered {method} with an error: {error.message}", data=_about(call, about))


def _about(call: Call, what: Mapping[str, object]) -> JsonObject:
    return {"upstream": {"server": call.upstream}, **what}
