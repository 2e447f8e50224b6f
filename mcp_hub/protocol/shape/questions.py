"""Questions of servers: who can answer, and their form in each version.

Source: specification 2025-11-25, client/{elicitation,sampling,roots}; 2026-07-28, basic/patterns/mrtr.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.masking import hide_head
from mcp_hub.methods import is_foreign
from mcp_hub.protocol.capabilities import missing
from mcp_hub.protocol.definitions.messages import repaired_params
from mcp_hub.protocol.eras import era_of, is_at_least
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.meta import PROGRESS_TOKEN
from mcp_hub.protocol.shape.results import is_complete
from mcp_hub.types import Era, JsonObject, RawJson, RawObject

Question = tuple[str, RawJson]
"""Method and params."""

ELICIT: Final = "elicitation/create"
_SAMPLE: Final = "sampling/createMessage"
QUESTIONS: Final[Mapping[str, str]] = {ELICIT: "elicitation", _SAMPLE: "sampling", "roots/list": "roots"}
"""The requests that a client may get, and the capability that each takes."""

_ACTIONS: Final[Mapping[bytes, str]] = {b'"accept"': "accept", b'"decline"': "decline", b'"cancel"': "cancel"}

MAX_QUESTIONS: Final = 64
"""Questions in one result; each is a dialogue, so a caller sees a handful at most."""
MAX_STATE: Final = 65_536
"""Characters of a `requestState`, which travels with each retry."""

_WITHELICITATION: Final = "2025-06-18"
_WITH_MODES: Final = "2025-11-25"
_RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
_ONE_HOP: Final = (PROGRESS_TOKEN, _RELATED_TASK)
"""`_meta` keys that mean something to the two ends of one connection only."""
_ASKS: Final = re.compile(rb'"input_required"')
_NULL: Final = msgspec.Raw(b"null")

_string = msgspec.json.Decoder(str).decode


def capability_for(method: str, params: RawJson) -> JsonObject:
    """The client capability that the question needs. Raises `KeyError`."""
    members = raw_object(params) or {}
    if method == ELICIT:
        return {"elicitation": {_mode(members): {}}}
    if method == _SAMPLE and any(members.get(name, _NULL) != _NULL for name in ("tools", "toolChoice")):
        return {"sampling": {"tools": {}}}
    return {QUESTIONS[method]: {}}


def can_answer(capabilities: JsonObject, version: str, method: str, params: RawJson) -> str | None:
    """None if the client may be asked, else why not."""
    if method not in QUESTIONS:
        if is_foreign(method) and era_of(version) is Era.HANDSHAKE:
            return None
        return f"no client can be asked for {hide_head(method, 100)}"
    if method == ELICIT and not is_at_least(version, _WITHELICITATION):
        return f"protocol version {version} has no elicitation"
    lack = missing(capability_for(method, params), capabilities)
    return None if lack is None else f"the client did not declare {hide_head(lack, 100)}"


def unasked(error: RpcError) -> str | None:
    """The question in the Python SDK's `NoBackChannelError`, else None."""
    if error.raw is None or "no back-channel" not in error.message:
        return None
    return next((method for method in QUESTIONS if method in error.message), None)


def for_version(method: str, params: RawJson, version: str, elicitation_id: str) -> RawJson:
    """The question's params for a client of `version`, without progress token and task.

    A URL elicitation needs `elicitation_id`.
    """
    members = raw_object(params)
    if members is None or method not in QUESTIONS:
        return params
    members_kept = {name: value for name, value in repaired_params(method, members).items() if name != "task"}
    meta = raw_object(members_kept.get("_meta", msgspec.UNSET)) or {}
    if any(name in meta for name in _ONE_HOP):
        meta = {name: value for name, value in meta.items() if name not in _ONE_HOP}
        members_kept["_meta"] = msgspec.Raw(object_bytes(meta))
    if method == ELICIT:
        members_kept = _elicitation_for(members_kept, version, elicitation_id)
    return params if members_kept == members else object_bytes(members_kept)


def _elicitation_for(members: RawObject, version: str, elicitation_id: str) -> RawObject:
    if era_of(version) is Era.MODERN:
        return {name: value for name, value in members.items() if name != "elicitationId"}
    if _mode(members) == "url":
        return {"elicitationId": msgspec.Raw(object_bytes(elicitation_id)), **members}
    if not is_at_least(version, _WITH_MODES):
        return {name: value for name, value in members.items() if name != "mode"}
    return members


def _mode(members: RawObject) -> str:
    """The default is `form` (2025-11-25, client/elicitation "Elicitation Requests")."""
    try:
        return _string(members.get("mode", b'"form"'))
    except (msgspec.DecodeError, RecursionError):
        return "form"


class _InputRequiredResult(msgspec.Struct, frozen=True):
    """A modern server's questions by its keys, a state to return, or both."""

    requests: dict[str, Question]
    state: str | None


def input_required_result(questions: Mapping[str, Question], request_state: str | None) -> RawJson:
    """The result that asks a modern client; needs questions or a state."""
    result: JsonObject = {"resultType": "input_required"}
    if questions:
        result["inputRequests"] = input_members(questions)
    if request_state is not None:
        result["requestState"] = request_state
    return object_bytes(result)


def input_members(questions: Mapping[str, Question]) -> JsonObject:
    """`InputRequests`; params must be in modern form."""
    return {
        key: {"method": method, "params": msgspec.Raw(bytes(params))} for key, (method, params) in questions.items()
    }


def may_ask(result: RawJson) -> bool:
    """A fast check before `input_requests`."""
    return not is_complete(result) and _ASKS.search(result) is not None


def input_requests(result: RawJson) -> _InputRequiredResult | None:
    """The input that a result asks for. Raises `RpcError` if malformed or too much."""
    members = raw_object(result) or {}
    if bytes(members.get("resultType", b"")) != b'"input_required"':
        return None
    requests = members.get("inputRequests", _NULL)
    raws = raw_object(requests) if requests != _NULL else {}
    if raws is None:
        raise RpcError("the server asked for input in a way that cannot be read: inputRequests is not an object")
    if len(raws) > MAX_QUESTIONS:
        raise RpcError(f"the server asked for {len(raws)} inputs at once, more than {MAX_QUESTIONS}")
    try:
        state = _state(members)
    except ValueError as problem:
        raise RpcError(f"the server asked for input in a way that cannot be read: {problem}") from None
    if not raws and state is None:
        raise RpcError("the server asked for input without saying which")
    return _InputRequiredResult({key: _question(key, raw) for key, raw in raws.items()}, state)


def _question(key: str, raw: msgspec.Raw) -> Question:
    members = raw_object(raw) or {}
    try:
        method = _string(members.get("method", b""))
    except (msgspec.DecodeError, RecursionError):
        raise RpcError(f"the server asked for input in a way that cannot be read: {hide_head(key, 100)!r}") from None
    if method not in QUESTIONS:
        raise RpcError(f"the server asked for {hide_head(method, 100)!r}, which no client can be asked for")
    params = members.get("params", msgspec.Raw(b"{}"))
    if not _is_object(params):
        raise RpcError(f"the server asked for {method} with params that are not an object")
    return method, params


def action_of(method: str, outcome: RawJson | RpcError) -> str | None:
    """An elicitation's action; None for other questions, errors and unknown actions."""
    if method != ELICIT or isinstance(outcome, RpcError):
        return None
    return _ACTIONS.get(bytes((raw_object(outcome) or {}).get("action", b"")))


def take_retry(params: RawObject) -> tuple[RawObject | None, str | None]:
    """Removes `inputResponses` and `requestState` (at most `MAX_STATE` characters). Raises `InvalidParams`."""
    try:
        state = _state(params)
    except ValueError as problem:
        raise InvalidParams(f"params.{problem}") from None
    answers = params.pop("inputResponses", _NULL)
    params.pop("requestState", None)
    if answers == _NULL:
        return None, state
    responses = raw_object(answers)
    if responses is None:
        raise InvalidParams("params.inputResponses must be an object")
    for key, response in responses.items():
        if not _is_object(response):
            raise InvalidParams(f"params.inputResponses: the response to {hide_head(key, 100)!r} must be an object")
    return responses, state


def _state(members: RawObject) -> str | None:
    """Raises `ValueError`."""
    raw = members.get("requestState", _NULL)
    if raw == _NULL:
        return None
    try:
        state = _string(raw)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("requestState must be a string") from None
    if len(state) > MAX_STATE:
        raise ValueError(f"requestState is longer than {MAX_STATE} characters")
    return state


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"
