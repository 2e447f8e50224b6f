"""Questions of servers to their callers: requests of handshake servers, and retries at modern ones.

A question goes to the caller of exactly one call, or is declined with an error. One that may belong to several calls
waits until only one is left. Source: specification 2025-11-25, client/*; 2026-07-28, basic/patterns/mrtr.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from mcp_hub import aio
from mcp_hub.call import OF_REST, Call, CallChannel, CallEnded, Question
from mcp_hub.errors import InvalidParams, RpcError, method_not_found
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import Envelope, id_key, object_bytes, raw_object, read_as
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST, URL_ELICITATION_REQUIRED
from mcp_hub.protocol.shape import questions
from mcp_hub.types import Era, RawJson, RawObject

PARKABLE: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Calls during which a question may be asked (2026-07-28, mrtr "Supported Requests")."""
RETRY: Final = frozenset({"inputResponses", "requestState"})
MOST_QUESTIONS: Final = 256
"""Questions of one server that may be open at once."""
_UNCLEAR: Final = 10.0
_LOOK: Final = 0.02
"""Seconds that a question waits whose call is not known, and between two looks for it."""
_MOST_URLS: Final = 256
"""Elicitations by URL of one server that are remembered; the oldest goes first."""

_FORM: Final = msgspec.Raw(b"{}")
"""The params of an elicitation in the usual mode, as far as capabilities go."""

Asker = tuple[Call, CallChannel]


def with_retry(call: Call) -> RawObject:
    """Parameters for a modern server, with checked `inputResponses` and `requestState`."""
    params = {name: value for name, value in call.params.items() if name not in RETRY}
    if call.input_responses is not None:
        params["inputResponses"] = msgspec.Raw(object_bytes(call.input_responses))
    if call.request_state is not None:
        params["requestState"] = msgspec.Raw(object_bytes(call.request_state))
    return params


class _Unclear(msgspec.Struct):
    """A question held until `until`."""

    since: float
    until: float
    principal: str
    message: Envelope
    take: Callable[[Envelope, Asker | None], None]


class _UnclearQuestions:
    """Questions that came while several sessions of one principal had calls in flight.

    The call that asked waits, and other sessions do not enter: the last one has asked, unless a call was given up.
    `calls` returns those that may have asked at a time, `find` a question's call.
    """

    def __init__(self, calls: Callable[[float], list[Call]], find: Callable[[Envelope], Asker | None]) -> None:
        self._calls = calls
        self._find = find
        self._questions: dict[int | str, _Unclear] = {}
        self._timer: aio.Timer | None = None

    def hold(self, message: Envelope, take: Callable[[Envelope, Asker | None], None]) -> bool:
        """Holds a question until `take` receives it with its call, or without one after a time.

        False if all calls may be waiting, or several principals have some.
        """
        now = anyio.current_time()
        key, calls = message.id_key, self._calls(now)
        is_question = message.method in questions.QUESTIONS and key not in self._questions
        if key is None or not is_question or len(self._questions) + 1 >= min(len(calls), MOST_QUESTIONS):
            return False
        principals = {call.principal for call in calls}
        if len(principals) > 1:
            return False
        self._questions[key] = _Unclear(
            since=now, until=now + _UNCLEAR, principal=principals.pop(), message=message, take=take
        )
        self._look_later()
        return True

    def withdraw(self, params: RawJson) -> None:
        raw = (raw_object(params) or {}).get("requestId")
        if raw is not None:
            self._questions.pop(id_key(bytes(raw)), None)

    def close(self) -> None:
        self._questions.clear()

    def _look_later(self) -> None:
        if self._questions and self._timer is None:
            self._timer = aio.call_later(_LOOK, self._look)

    def _look(self) -> None:
        self._timer = None
        now = anyio.current_time()
        for key, question in list(self._questions.items()):
            calls = self._calls(question.since)
            is_sure = bool(calls) and all(call.principal == question.principal for call in calls)
            asker = self._find(question.message) if is_sure else None
            if asker is not None or not is_sure or now >= question.until:
                del self._questions[key]
                question.take(question.message, asker)
        self._look_later()


class OpenRequests:
    """The open requests of one handshake server.

    `send` writes a frame, `noted` observes questions, `calls` returns those that may have asked at a time, `find` a
    question's call, `other_call` another of the session. `passes`: methods unknown to the hub for clients of handshake
    sessions.
    """

    def __init__(
        self,
        send: Callable[[bytes], None],
        noted: Callable[[Call, RawJson], None],
        calls: Callable[[float], list[Call]],
        find: Callable[[Envelope], Asker | None],
        other_call: Callable[[Call], Asker | None],
        passes: Callable[[str], bool] | None = None,
    ) -> None:
        self.passes = passes or _no_other
        self._other_call = other_call
        self._send = send
        self._noted = noted
        self._unclear = _UnclearQuestions(calls, find)
        self._open: dict[int | str, tuple[CallChannel, str]] = {}

    def take(self, message: Envelope, asker: Asker | None, *, may_wait: bool = False) -> None:
        """Passes a request to its call's caller, or declines it.

        A question without a call `may_wait`. If its call ends first, another one of the session is asked.
        """
        if asker is not None and isinstance(message.params, msgspec.Raw):
            self._noted(asker[0], message.params)
        elif asker is None and may_wait and self._unclear.hold(message, self._take_held):
            return
        id_, key = message.usable_id, message.id_key
        if id_ is None or key is None:
            return
        method = message.method
        params = message.params if isinstance(message.params, msgspec.Raw) else msgspec.Raw(b"{}")
        params = params if raw_object(params) is not None else msgspec.Raw(b"{}")
        reason = self._refusal(key, method, params, asker)
        if reason is not None or asker is None:
            self._send(envelope.error_frame(id_, (reason or _nobody(method)).encoded()))
            return
        call, channel = asker
        self._open[key] = channel, ""

        def answered(outcome: RawJson | RpcError) -> None:
            self._open.pop(key, None)
            if isinstance(outcome, CallEnded) and may_wait and (next_asker := self._other_call(call)) is not None:
                self.take(message, next_asker, may_wait=True)
            elif isinstance(outcome, RpcError):
                self._send(envelope.error_frame(id_, outcome.encoded()))
            else:
                self._send(envelope.result_frame(id_, outcome))

        name = channel.ask(Question(method, params, answered))
        if key in self._open:
            self._open[key] = channel, name

    def _take_held(self, message: Envelope, asker: Asker | None) -> None:
        self.take(message, asker, may_wait=asker is not None)

    def _refusal(self, key: int | str, method: str, params: RawJson, asker: Asker | None) -> RpcError | None:
        is_passed = method not in questions.QUESTIONS and self.passes(method)
        if not is_passed and method not in questions.QUESTIONS:
            return method_not_found(f"This client does not support the method {hide_head(method, 100)}.")
        if asker is None or not (is_passed or asker[0].method in PARKABLE):
            return _nobody(method)
        if is_passed and (asker[0].is_program or asker[0].session.startswith(OF_REST)):
            return method_not_found(f"This client does not support the method {hide_head(method, 100)}.")
        if key in self._open:
            return RpcError("A request with this id is still being answered.", code=INVALID_REQUEST)
        if len(self._open) >= MOST_QUESTIONS:
            return RpcError(f"{MOST_QUESTIONS} requests of this server are already open.")
        call, _ = asker
        lack = call.lack(method, params)
        if lack is None:
            return None
        # a mode that the client lacks is a wrong member (2025-11-25, client/elicitation "Error Handling")
        has_other_mode = method == questions.ELICIT and call.lack(method, _FORM) is None
        return (InvalidParams if has_other_mode else method_not_found)(f"{method}: {lack}")

    def withdraw(self, params: RawJson) -> None:
        """Withdraws a request (`notifications/cancelled`)."""
        self._unclear.withdraw(params)
        raw = (raw_object(params) or {}).get("requestId")
        question = self._open.pop(id_key(bytes(raw)), None) if raw is not None else None
        if question is not None:
            channel, key = question
            channel.questions.withdraw(key)

    def close(self) -> None:
        self._unclear.close()
        for channel, key in list(self._open.values()):
            channel.questions.withdraw(key)


def _no_other(method: str) -> bool:
    return False


def _nobody(method: str) -> RpcError:
    return RpcError(
        f"{method}: there is nobody to ask, because it does not belong to the call of one client.", code=INVALID_REQUEST
    )


class _Elicitation(msgspec.Struct):
    elicitationId: str


class _Error(msgspec.Struct):
    class Data(msgspec.Struct):
        elicitations: list[_Elicitation]

    data: Data


class Elicitations:
    """The URL elicitations of one server by session, which alone learns of the completion (2025-11-25,
    client/elicitation "Completion Notifications").
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def note_question(self, call: Call, params: RawJson) -> None:
        if b'"elicitationId"' in bytes(params) and (elicitation := read_as(params, _Elicitation)) is not None:
            self._keep(call, elicitation.elicitationId)

    def refused(self, call: Call, error: RpcError) -> None:
        """Notes a call that failed with -32042."""
        if error.code == URL_ELICITATION_REQUIRED and (refusal := read_as(error.encoded(), _Error)) is not None:
            for elicitation in refusal.data.elicitations:
                self._keep(call, elicitation.elicitationId)

    def finished(self, params: RawJson) -> str | None:
        """The session for `notifications/elicitation/complete`, once."""
        elicitation = read_as(params, _Elicitation)
        return self._sessions.pop(elicitation.elicitationId, None) if elicitation is not None else None

    def _keep(self, call: Call, id_: str) -> None:
        if call.era is Era.HANDSHAKE:
            self._sessions[id_] = call.session
            if len(self._sessions) > _MOST_URLS:
                self._sessions.popitem(last=False)
