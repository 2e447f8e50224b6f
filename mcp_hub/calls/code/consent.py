"""Decides what a script may call now, and asks. Pure.

Modes: `reads` refuses every tool not known as read-only, `ask` asks the caller, `all` asks nothing.
"""

from collections.abc import Collection, Mapping
from typing import Final, Literal

import msgspec

from mcp_hub.calls.code.state import InnerCall, RunState
from mcp_hub.code.steps import CodeRaise
from mcp_hub.errors import RpcError
from mcp_hub.masking import hide_head, shown
from mcp_hub.protocol.jsonrpc.envelope import raw_object, read_as
from mcp_hub.types import CodeMode, RawJson, plural

Verdict = Literal["go", "ask"] | CodeRaise
"""Whether a call may go, or what is raised in the script."""
READ_ONLY: Final = "read-only"
DESTRUCTIVE: Final = "destructive"
IDEMPOTENT: Final = "idempotent"
ASKS: Final = "asks"
"""The trait of a tool whose rule asks before each call: nothing else has to ask."""
ONCE: Final = "once"
RUN: Final = "run"
NO: Final = "no"
"""Answers of a caller."""
_SHOWN: Final = 2000
"""Characters of arguments in a question; twice as many of long ones with their names."""


def verdict(mode: CodeMode, inner: InnerCall, traits: Collection[str] | None, allowed: Collection[str]) -> Verdict:
    """Whether the call may go now. `traits` None: an unknown tool, which is refused when it is sent."""
    if mode == "off":
        return CodeRaise("PermissionError", f"{inner.tool} was not called: hub.code is off now")
    if traits is None or READ_ONLY in traits or mode == "all" or (mode == "ask" and ASKS in traits):
        return "go"
    if mode == "reads":
        reason = f"{inner.tool} was not called: it is not known as read-only, and hub.code is `reads`"
        return CodeRaise("PermissionError", reason)
    may_go = inner.effect.is_cleared or (DESTRUCTIVE not in traits and grant(inner, traits) in allowed)
    return "go" if may_go else "ask"


def grant(inner: InnerCall, traits: Collection[str]) -> str:
    """The entry of `allowed` for a tool; another tool that gets its name has another one."""
    hints = (READ_ONLY, DESTRUCTIVE, IDEMPOTENT, ASKS)
    return "\n".join([inner.tool, *sorted(trait for trait in traits if trait not in hints)])


def refused(inner: InnerCall, reason: str) -> CodeRaise:
    """The exception at a call that was not sent."""
    return CodeRaise("PermissionError", f"{inner.tool} was not called: {reason}")


def question(inner: InnerCall, state: RunState, lines: str, *, is_destructive: bool) -> RawJson:
    """The params of the elicitation."""
    arguments, calls = shown_arguments(bytes(inner.arguments)), plural(state.ended, "call")
    message = f"A script wants to call {inner.tool} with {arguments}. It has made {calls} so far."
    if lines:
        message += f"\n\n{shown(lines)}"
    answers = {ONCE: "once, with these arguments", RUN: "this tool in this run, any arguments", NO: "no"}
    if is_destructive:
        del answers[RUN]
    return elicitation(message, answers)


def elicitation(message: str, answers: Mapping[str, str]) -> RawJson:
    """The params of an elicitation with a choice among `answers`."""
    choice = {"type": "string", "title": "Allow it?", "enum": list(answers), "enumNames": list(answers.values())}
    schema = {"type": "object", "properties": {"answer": choice}, "required": ["answer"]}
    return msgspec.json.encode({"message": message, "requestedSchema": schema})


def shown_arguments(arguments: bytes) -> str:
    """All arguments, of long ones the begin: what nobody sees nobody can allow."""
    text = arguments.decode("utf-8", "replace")
    if len(text) > _SHOWN and (members := raw_object(arguments)):
        length = _SHOWN // len(members)
        parts = [f"{name}: {_cut(bytes(value).decode('utf-8', 'replace'), length)}" for name, value in members.items()]
        text = ", ".join(parts)
    return _cut(text, 2 * _SHOWN)


def _cut(text: str, limit: int) -> str:
    start = shown(hide_head(text, limit))
    if len(text) <= limit and len(start) <= limit:
        return start
    return f"{start[:limit]}… ({plural(max(len(text) - limit, 1), 'more character')} not shown)"


class _Content(msgspec.Struct):
    answer: str = ""


class _Answer(msgspec.Struct):
    action: str = ""
    content: _Content | None = None


def chosen(outcome: RawJson | RpcError, answers: Collection[str] = (ONCE, RUN)) -> str:
    """The choice of the caller among `answers`; everything that is not clear is `no`."""
    answer = None if isinstance(outcome, RpcError) else read_as(msgspec.Raw(bytes(outcome)), _Answer)
    if answer is None or answer.action != "accept" or answer.content is None:
        return NO
    return answer.content.answer if answer.content.answer in answers else NO
