"""Scripts to the end, with answers that a test gives."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from mcp_hub.code.engine import CodeEngine
from mcp_hub.code.steps import CodeCall, CodeError, CodeLimits, CodeRaise, CodeStep

STUBS = """
from typing import Any, TypedDict
class Issue(TypedDict):
    number: int
    title: str
async def get_issue(*, number: int, repo: str | None = None) -> Issue: ...
async def echo(*, value: Any = ...) -> Any: ...
"""
NAMES = ("get_issue", "echo")

Answer = Callable[[CodeCall], bytes | CodeRaise]


def echoed(call: CodeCall) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(call.arguments).get("value"))


@asynccontextmanager
async def engine(workers: int = 2, idle_stop: float = 60.0) -> AsyncIterator[CodeEngine]:
    code_engine = CodeEngine(workers, idle_stop)
    try:
        yield code_engine
    finally:
        await code_engine.close()


async def run(
    code_engine: CodeEngine,
    code: str,
    answer: Answer = echoed,
    limits: CodeLimits = CodeLimits(),  # noqa: B008  # frozen
    printed: list[str] | None = None,
) -> object:
    """The output of `code`. Raises `CodeError`."""
    session = code_engine.session()
    calls: dict[int, CodeCall] = {}
    try:
        step = await session.start(code, STUBS, NAMES, limits, (printed if printed is not None else []).append)
        while not step.has_ended:
            calls |= {call.id: call for call in step.calls}
            step = await session.feed({number: answer(calls[number]) for number in step.pending})
    finally:
        await session.close()
    return output(step)


async def failure(
    code_engine: CodeEngine, code: str, answer: Answer = echoed, limits: CodeLimits | None = None
) -> CodeError:
    """The error that `code` ends with."""
    try:
        result = await run(code_engine, code, answer, limits or CodeLimits())
    except CodeError as error:
        return error
    raise AssertionError(f"ended with {result!r}")


def output(step: CodeStep) -> object:
    assert step.output is not None
    result: object = msgspec.json.decode(step.output)
    return result
