"""Models of raw JSON, with the protocol's members alone, and raw JSON of Python values."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from mcp_types import CallToolResult, Tool
from msgspec import Raw
from pydantic import BaseModel, ValidationError

from mcp_hub.errors import ModelMismatch, RpcError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head

log = get_logger(__name__)

Answer = Mapping[str, object] | BaseModel | None
"""The answer to a question: the result object of its method. None declines."""

_DECLINED: Final = b'{"action":"decline"}'
_REJECTED: Final = -1
"""The code for a question that a user has rejected (specification 2025-11-25, client/sampling "Error Handling")."""


def tool_models(raws: Sequence[bytes]) -> list[Tool]:
    """Invalid definitions are logged and left out."""
    tools = []
    for raw in raws:
        try:
            tools.append(Tool.model_validate_json(raw))
        except ValidationError as error:
            log.warning("tool_left_out", definition=hide_head(raw, 200), reason=_first(error))
    return tools


def result_model(name: str, raw: bytes) -> CallToolResult:
    """Raises `ModelMismatch`."""
    try:
        return CallToolResult.model_validate_json(raw)
    except ValidationError as error:
        raise ModelMismatch(
            f'the result of tool "{name}" does not fit mcp_types.CallToolResult: {_first(error)}. '
            "Use raw=True to get the result as the server sent it"
        ) from None


def encoded_arguments(arguments: Mapping[str, object] | None) -> bytes:
    """Raises `TypeError` for a value that JSON cannot carry."""
    return msgspec.json.encode({} if arguments is None else dict(arguments), enc_hook=_plain)


def encoded_meta(meta: Mapping[str, object] | None) -> dict[str, Raw]:
    """Raises `TypeError`, too."""
    return {name: Raw(msgspec.json.encode(value, enc_hook=_plain)) for name, value in (meta or {}).items()}


def encoded_answer(method: str, answer: Answer) -> Raw | RpcError:
    """The result that answers a question, or an error. Raises `TypeError`."""
    if answer is not None:
        return Raw(msgspec.json.encode(answer if isinstance(answer, BaseModel) else dict(answer), enc_hook=_plain))
    if method == "elicitation/create":
        return Raw(_DECLINED)
    return RpcError(f"{method} was declined", code=_REJECTED)


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    raise TypeError(f"JSON cannot carry a {type(value).__name__}")


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
