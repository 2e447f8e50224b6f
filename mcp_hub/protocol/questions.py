"""Interim; the final module of this name is being written."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.protocol.envelope import object_bytes, raw_object
from mcp_hub.types import Era, JsonObject, RawJson, RawObject

QUESTIONS = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})


@dataclass(frozen=True, slots=True)
class InputRequests:
    requests: dict[str, tuple[str, RawJson]]
    state: str | None


def can_answer(capabilities: JsonObject, version: str, method: str, params: RawJson) -> str | None:
    name = method.partition("/")[0]
    return None if name in capabilities else f"the client did not declare {name}"


def for_era(method: str, params: RawJson, source: Era, version: str, elicitation_id: str) -> RawJson:
    return params


def input_required_result(wanted: Mapping[str, tuple[str, RawJson]], state: str | None) -> RawJson:
    result: JsonObject = {"resultType": "input_required"}
    result["inputRequests"] = {
        key: {"method": method, "params": msgspec.Raw(bytes(params))} for key, (method, params) in wanted.items()
    }
    if state is not None:
        result["requestState"] = state
    return object_bytes(result)


def take_retry(params: RawObject) -> tuple[RawObject | None, str | None]:
    responses, state = params.pop("inputResponses", None), params.pop("requestState", None)
    try:
        return (
            raw_object(responses) if responses is not None else None,
            msgspec.json.decode(state, type=str) if state is not None else None,
        )
    except msgspec.DecodeError as exc:
        raise InvalidParams(f"params.requestState: {exc}") from None


def input_requests(result: RawJson) -> InputRequests | None:
    members = raw_object(result) or {}
    if members.get("resultType") != msgspec.Raw(b'"input_required"'):
        return None
    found = msgspec.json.decode(members.get("inputRequests", b"{}"), type=dict[str, dict[str, msgspec.Raw]])
    state = msgspec.json.decode(members["requestState"], type=str) if "requestState" in members else None
    if not found and state is None:
        raise RpcError("upstream asked for nothing")
    return InputRequests(
        {
            k: (msgspec.json.decode(v["method"], type=str), v.get("params", msgspec.Raw(b"{}")))
            for k, v in found.items()
        },
        state,
    )
