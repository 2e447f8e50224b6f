"""Python functions as an upstream: what they return, raise and report."""

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping

import anyio
import msgspec
import pytest
import structlog.testing

from mcp_hub import events
from mcp_hub.errors import InvalidParams, RpcError, UnknownEntry
from mcp_hub.examples import jobs
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.functions.registry import Context, Registry, Result
from mcp_hub.upstreams.functions.upstream import function_upstream
from tests.unit.upstreams.function_calls import Recorder, request, run, text

pytestmark = pytest.mark.anyio

Logged = list[MutableMapping[str, object]]
NEW = {"type": "x-new", "y": 1}


@pytest.fixture(autouse=True)
def logged() -> Iterator[Logged]:
    with structlog.testing.capture_logs() as entries:
        yield entries


def refused(result: JsonObject, *texts: str) -> None:
    """It is a tool error that says all of this."""
    assert result["isError"] is True
    assert all(own in result["content"][0]["text"] for own in texts)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("hello", text("hello")),
        (None, text()),
        (7, text("7")),
        ([1, "a"], text('[1,"a"]')),
        ({"a": 1}, {**text('{"a":1}'), "structuredContent": {"a": 1}}),
        (Result({"a": 1}, is_error=True), {**text('{"a":1}', is_error=True), "structuredContent": {"a": 1}}),
        (Result(content="said"), text("said")),
        (Result(content=["a", NEW]), {"content": [{"type": "text", "text": "a"}, NEW], "isError": False}),
        (Result(structured={"a": 1}), {**text('{"a":1}'), "structuredContent": {"a": 1}}),
        (Result({"a": 1}, content="one"), {**text("one"), "structuredContent": {"a": 1}}),
        (Result("x", meta={"k": 1}), {**text("x"), "_meta": {"k": 1}}),
    ],
)
async def test_return_value_becomes_a_result(value: object, expected: JsonObject) -> None:
    async def give() -> object:
        return value

    assert await run(give) == expected
    assert await run(lambda: value) == expected


@pytest.mark.parametrize(
    ("value", "structured"),
    [
        ([1], {"result": [1]}),
        ("a", {"result": "a"}),
        (None, {"result": None}),
        ({"a": 1}, {"result": {"a": 1}}),
        ({"result": 1}, {"result": 1}),
    ],
)
async def test_value_is_wrapped_when_the_output_schema_says_so(value: object, structured: JsonObject) -> None:
    result = await run(lambda: value, output_schema=list[int])
    assert result["structuredContent"] == structured


async def test_sync_function_runs_in_another_thread_and_may_return_a_coroutine() -> None:
    seen: list[int] = []

    async def inner() -> str:
        return "inner"

    def outer() -> object:
        seen.append(threading.get_ident())
        return inner()

    assert await run(outer) == text("inner") and seen != [threading.get_ident()]


def boom() -> None:
    raise ValueError("no such city: Atlantis")


async def boom_async() -> None:
    raise ValueError("no such city: Atlantis")


async def boom_late() -> AsyncIterator[str]:
    yield "partial"
    raise ValueError("no such city: Atlantis")


async def boom_in_group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(boom_async)


@pytest.mark.parametrize("function", [boom, boom_async, boom_late, boom_in_group])
async def test_exception_is_a_tool_error_with_its_own_text(function: Callable[..., object], logged: Logged) -> None:
    assert await run(function) == text("no such city: Atlantis", is_error=True)
    assert [(entry["event"], entry["tool"], entry["call_id"]) for entry in logged] == [("tool_failed", "tool", "st_1")]


def fail(error: BaseException) -> Callable[[], None]:
    def tool() -> None:
        raise error

    return tool


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError(), "KeyError"),
        (StopIteration(), "StopIteration"),
        (SystemExit(3), "the tool tried to exit the process (3)"),
        (GeneratorExit("early"), "early"),
        (BaseExceptionGroup("two", [SystemExit(3), KeyError()]), "two (2 sub-exceptions)"),
        (ValueError("lone \ud800"), "lone \\ud800"),
    ],
)
async def test_odd_exceptions_are_tool_errors_too(error: BaseException, message: str) -> None:
    refused(await run(fail(error)), message)


async def test_rpc_error_is_an_error_answer() -> None:
    async def grouped() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refuse)

    async def refuse() -> None:
        raise RpcError("not today", code=77, data={"k": 1})

    for function in (refuse, grouped, fail(RpcError("not today", code=77, data={"k": 1}))):
        with pytest.raises(RpcError) as caught:
            await run(function)
        assert (caught.value.code, caught.value.message, caught.value.data) == (77, "not today", {"k": 1})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": float("nan")}, "the value.a is nan, which JSON cannot carry"),
        (object(), "a object has no JSON form"),
        ("\ud800", "surrogates not allowed"),
        (Result(content=[3]), "expected text or a content block with a type, not int"),
    ],
)
async def test_value_that_json_cannot_carry_is_a_tool_error(value: object, message: str) -> None:
    refused(await run(lambda: value), message)


async def test_wrong_arguments_are_a_tool_error_and_the_function_does_not_run() -> None:
    ran: list[int] = []

    def work(n: int) -> None:
        ran.append(n)

    refused(await run(work, {"n": "many", "m": 1}), "- n: ", "- m: unknown argument (known: n)")
    assert not ran


async def test_context_reports_from_the_loop_and_from_a_thread() -> None:
    def report(context: Context, n: int) -> bool:
        context.progress(n, total=3, message="m")
        context.log("warning", {"cache": "miss"}, logger="db")
        return context.cancelled

    async def report_async(context: Context, n: int) -> bool:
        return report(context, n)

    for function in (report, report_async):
        channel = Recorder()
        assert await run(function, {"n": 1}, channel) == text("false")
        progress, log = channel.sent
        assert progress == events.Progressed(1, 3, {"message": msgspec.Raw(b'"m"')})
        assert isinstance(log, events.Log) and log.level == "warning"
        assert json.loads(bytes(log.params)) == {"level": "warning", "logger": "db", "data": {"cache": "miss"}}


async def test_unknown_log_level_is_the_authors_error() -> None:
    async def work(context: Context) -> None:
        context.log("loud", "x")

    refused(await run(work), "unknown log level 'loud' (known: debug, ")


async def test_only_known_tools_and_tool_calls_are_answered() -> None:
    upstream = function_upstream("local", jobs.registry)
    for call, error, message in [
        (request("run_jobs"), UnknownEntry, 'server "local" .*"run_jobs".*run_job'),
        (request("x"), UnknownEntry, 'server "local" .*"x".$'),
        (request(7), InvalidParams, "name of the tool has to be a string"),
        (request("wait", [1]), InvalidParams, "arguments of a tool have to be an object"),
        (request("wait", method="prompts/get"), RpcError, "has tools only"),
    ]:
        with pytest.raises(error, match=message):
            await upstream.call(call, Recorder())


async def test_absent_and_null_arguments_are_none() -> None:
    registry = Registry()
    registry.tool(name="f")(lambda n=4: n)
    null = request("f")
    null.params["arguments"] = msgspec.Raw(b" null ")
    for call in (request("f"), null):
        completed = await function_upstream("local", registry).call(call, Recorder())
        assert json.loads(bytes(completed.result)) == text("4")


async def test_other_examples_answer() -> None:
    upstream = function_upstream("jobs", jobs.registry)
    counted = await upstream.call(request("count_words", {"text": "a b\nc"}), Recorder())
    assert json.loads(bytes(counted.result))["structuredContent"] == {"words": 3, "lines": 2, "characters": 5}
    waited = await upstream.call(request("wait", {"seconds": 0}), Recorder())
    assert json.loads(bytes(waited.result)) == text("waited 0 s")
