"""Questions to the user of a call, asked in the way of the caller's era, in rounds of named questions.

In the modern era what was learnt so far travels in a signed `requestState` (2026-07-28 basic/patterns/mrtr).
"""

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel

from rigs.conformance.server.instance import Context, Result, is_modern

Answers = dict[str, Any]
Questions = dict[str, Result]

KINDS: dict[str, tuple[str, type[Any], type[BaseModel]]] = {
    "elicitation/create": ("elicitation", types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": ("sampling", types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": ("roots", types.ListRootsRequest, types.ListRootsResult),
}
"""Per method of a question: the capability it needs, its request and its result."""

KEY = os.urandom(32)


def elicitation(message: str, properties: Result, required: list[str] | None = None) -> Result:
    schema: Result = {"type": "object", "properties": properties}
    if required is not None:
        schema["required"] = required
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(prompt: str, max_tokens: int = 100) -> Result:
    messages = [{"role": "user", "content": {"type": "text", "text": prompt}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": max_tokens}}


def roots() -> Result:
    return {"method": "roots/list", "params": {}}


def text(text: str, *, is_error: bool = False) -> Result:
    """The result of a tool that says this."""
    return {"content": [{"type": "text", "text": text}], **({"isError": True} if is_error else {})}


@dataclass(frozen=True)
class Dialogue:
    """What is asked, and what is made of the answers.

    Each of `rounds` makes its questions from the call's arguments. A dialogue of several questions needs
    `keeps_state`. `is_modest` ones leave out questions that the client cannot answer; any other refuses the call.
    """

    finish: Callable[[Answers], Result]
    rounds: tuple[Callable[[Result], Questions], ...]
    keeps_state: bool = False
    is_modest: bool = False


async def converse(
    context: Context, params: types.CallToolRequestParams | types.GetPromptRequestParams, dialogue: Dialogue
) -> Result:
    """The result of the whole dialogue or, in the modern era, of its next leg.

    Raises: `MCPError` for a client that cannot answer (-32021 to a modern one), refuses to, or sends a `requestState`
    that is not ours (-32602).
    """
    if is_modern(context):
        return _next_leg(context, params, dialogue)
    return dialogue.finish(await _ask_all(context, params.arguments or {}, dialogue))


def _incapable(context: Context, capability: str) -> MCPError:
    code = types.MISSING_REQUIRED_CLIENT_CAPABILITY if is_modern(context) else types.INVALID_REQUEST
    said = f"this needs a client that declares the capability {capability!r}"
    return MCPError(code, said, {"requiredCapabilities": {capability: {}}})


def _asked(context: Context, dialogue: Dialogue, number: int, arguments: Result) -> Questions:
    """The questions of this round that the client can answer. Raises: `MCPError`."""
    questions: Questions = {}
    for key, question in dialogue.rounds[number](arguments).items():
        capability = KINDS[question["method"]][0]
        if getattr(context.session.client_capabilities, capability, None) is not None:
            questions[key] = question
        elif not dialogue.is_modest:
            raise _incapable(context, capability)
    return questions


async def _ask_all(context: Context, arguments: Result, dialogue: Dialogue) -> Answers:
    answers: Answers = {}
    for number in range(len(dialogue.rounds)):
        asked = _asked(context, dialogue, number, arguments)
        errors: list[MCPError] = []
        async with anyio.create_task_group() as tasks:
            for key, question in asked.items():
                tasks.start_soon(_ask, context, key, question, answers, errors)
        if errors:
            raise errors[0]
    return answers


async def _ask(context: Context, key: str, question: Result, answers: Answers, errors: list[MCPError]) -> None:
    _, request, result = KINDS[question["method"]]
    related = ServerMessageMetadata(related_request_id=context.request_id)
    try:
        answer = await context.session.send_request(request.model_validate(question), result, metadata=related)
    except MCPError as error:
        errors.append(error)
    else:
        answers[key] = _plain(answer)


def _next_leg(
    context: Context, params: types.CallToolRequestParams | types.GetPromptRequestParams, dialogue: Dialogue
) -> Result:
    number, answers = _unsealed(params.name, params.request_state) if params.request_state else (0, {})
    given = {key: _plain(answer) for key, answer in (params.input_responses or {}).items()}
    for current in range(number, len(dialogue.rounds)):
        asked = _asked(context, dialogue, current, params.arguments or {})
        answers |= {key: given[key] for key in asked if key in given}
        if missing := {key: question for key, question in asked.items() if key not in answers}:
            state = {"requestState": _sealed(params.name, current, answers)} if dialogue.keeps_state else {}
            return {"resultType": "input_required", "inputRequests": missing, **state}
    return dialogue.finish(answers)


def _plain(answer: BaseModel) -> Result:
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


def _signature(payload: bytes) -> str:
    return hmac.new(KEY, payload, hashlib.sha256).hexdigest()


def _sealed(name: str, number: int, answers: Answers) -> str:
    payload = base64.urlsafe_b64encode(json.dumps([name, number, answers]).encode())
    return f"{payload.decode()}.{_signature(payload)}"


def _unsealed(name: str, state: str) -> tuple[int, Answers]:
    """Round and answers so far. Raises: `MCPError` -32602."""
    payload, _, signature = state.rpartition(".")
    if hmac.compare_digest(signature.encode(), _signature(payload.encode()).encode()):
        owner, number, answers = json.loads(base64.urlsafe_b64decode(payload))
        if owner == name:
            return number, answers
    raise MCPError(types.INVALID_PARAMS, "requestState failed its integrity check")
