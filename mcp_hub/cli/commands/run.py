"""`mcp-hub run`: a script over the tools, as a call, or against recorded results without any server."""

import errno
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from mcp_hub.cli import arguments
from mcp_hub.cli.access.following import refuse, run_with_streams, show_for
from mcp_hub.cli.access.hub import Reach, ReachedHub, hub_options, run_with_client, run_with_hub
from mcp_hub.cli.commands.call import check_detached, detached, run_call
from mcp_hub.cli.render.renderers import Show
from mcp_hub.cli.render.results import ShownResult
from mcp_hub.cli.setup import EXIT_TOOL, EXIT_UNAVAILABLE, Output, fail, output_options
from mcp_hub.cli.setup import run as run_loop
from mcp_hub.code.engine import CodeEngine
from mcp_hub.code.signatures import stubs
from mcp_hub.code.source import cleaned
from mcp_hub.code.steps import CodeCall, CodeError, CodeLimits, CodeRaise
from mcp_hub.code.tool import python_names
from mcp_hub.code.values import result_of, value_of
from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.events import Delta, ToolCall, ToolResult
from mcp_hub.files import LARGEST_OF_CLIENTS, LARGEST_OWN, read_file
from mcp_hub.types import RUN_CODE, RawJson

if TYPE_CHECKING:
    from mcp_hub.cli.access.following import StreamAccess

_STREAM: Final = "st_"
_SLEEP: Final = "asyncio.sleep"


@click.command()
@click.argument("script", metavar="FILE|-")
@click.argument("loose", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--again", is_flag=True, help="Run the script although the same one runs, or has just ended.")
@click.option("--dry", metavar="FILE|STREAM", help="Call no tool: answer calls by recorded results, or those of a run.")
@click.option("--json", "as_lines", is_flag=True, help="Print JSON lines.")
@output_options(lambda options: "jsonl" if options["as_lines"] else "text")
@click.option("--detach", is_flag=True, help="Start the script in the running hub, print its stream id and exit.")
@hub_options
def run(
    script: str,
    loose: Sequence[str],
    again: bool,
    dry: str | None,
    as_lines: bool,
    output: Output,
    detach: bool,
    reach: Reach,
) -> None:
    """Run the script in FILE, or on stdin, over the tools of the hub.

    It is a call of the tool run_code (docs/code.md): the hub has to allow scripts by hub.code. Its output comes as it
    prints it, and its last expression is the result. Of a script that is a tool, main is called with each KEY=VALUE.
    With --dry no server is started, and a call without a record ends the script.
    """
    check_detached(detach, reach, output)
    if dry is not None and detach:
        raise click.UsageError("--dry makes no call. Drop --detach.")
    code = _with_main(script, _read(script), arguments.split_pairs(loose))
    if dry is not None:
        _run_dry(code, dry, output, reach)
        return
    encoded = msgspec.json.encode({"code": code, **({"again": True} if again else {})})

    async def arguments_now() -> RawJson:
        return encoded

    async def ran(hub: ReachedHub) -> int:
        if hub.app is not None:  # the servers of this command begin to start now, and any tool may be called
            await hub.settle()
        return await run_call(hub, RUN_CODE, arguments_now, output, is_verbose=reach.verbose > 0)

    if detach:
        run_with_client(reach, lambda client: detached(client, RUN_CODE, arguments_now, output, None))
    run_with_hub(reach, ran)


def _read(script: str) -> str:
    """The text of the script; its size is for the hub to judge. Raises `UsageError`."""
    source = "standard input" if script == "-" else script
    try:
        content = sys.stdin.buffer.read(LARGEST_OWN + 1) if script == "-" else read_file(script, LARGEST_OWN).data
        if len(content) > LARGEST_OWN:
            raise OSError(errno.EFBIG, f"larger than {LARGEST_OWN} bytes")
        return content.decode("utf-8-sig")
    except OSError as problem:
        raise click.UsageError(f"{source} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{source} is not UTF-8 text. Save it as UTF-8.") from None


def _with_main(script: str, text: str, pairs: dict[str, str]) -> str:
    """The text, with a call of its `main` if it is that of a tool. Raises `UsageError`."""
    if "async def main" not in text:
        if pairs:
            raise click.UsageError("KEY=VALUE are arguments of async def main(…), which the script does not have.")
        return text
    from mcp_hub.upstreams.scripts.source import is_tool, read_script

    if not is_tool(text):
        if pairs:
            raise click.UsageError("KEY=VALUE are arguments of main, and the script does not end with functions.")
        return text
    tool = read_script("script", text)
    if tool.fault:
        raise click.UsageError(f"{script}:{tool.line}: {tool.fault}")
    composed = arguments.compose({}, pairs, msgspec.json.encode(tool.definition))
    try:
        return tool.call(msgspec.json.decode(composed, type=dict[str, object]))
    except InvalidParams as problem:
        raise click.UsageError(f"{script}: {problem}") from None


# -- recorded results


class _Record(msgspec.Struct):
    """A call that is answered; without `arguments` whatever they are. `result`: a value, or that of a tool."""

    tool: str
    arguments: dict[str, object] | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")


class _Result(msgspec.Struct):
    content: list[object]


class _Records:
    """Answers calls. Records of equal calls are taken in order, and the last one again and again."""

    def __init__(self, records: Sequence[_Record]) -> None:
        self.names = python_names(record.tool for record in records)
        self._records = list(records)

    def answer(self, call: CodeCall) -> RawJson | CodeRaise | None:
        """The answer of a call, None without a record."""
        passed = msgspec.json.decode(call.arguments)
        fitting = [
            record
            for record in self._records
            if self.names[record.tool] == call.name and record.arguments in (None, passed)
        ]
        if not fitting:
            return None
        record = fitting[0]
        if sum(item.arguments == record.arguments for item in fitting) > 1:
            self._records = [item for item in self._records if item is not record]
        try:
            msgspec.json.decode(record.result, type=_Result)
        except msgspec.ValidationError:
            return record.result  # a value
        return value_of(record.result, str(call.id))


def _run_dry(code: str, source: str, output: Output, reach: Reach) -> None:
    if not source.startswith(_STREAM):
        records = _recorded(source)
        raise SystemExit(run_loop(partial(_dry, code, records, output)))

    async def of_run(access: "StreamAccess") -> int:
        show = show_for(output, source)
        try:
            records = await _of_stream(access, source)
        except RpcError as error:
            return refuse(show, error)
        finally:
            show.close()
        return await _dry(code, records, output)

    run_with_streams(reach, of_run, source)


def _recorded(name: str) -> list[_Record]:
    try:
        lines = read_file(Path(name), LARGEST_OF_CLIENTS).data.splitlines()
    except OSError as problem:
        raise click.UsageError(f"--dry: {name} cannot be read: {problem.strerror}.") from None
    records: list[_Record] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            records.append(msgspec.json.decode(line, type=_Record))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            form = '{"tool": "NAME", "arguments": {…}, "result": …}'
            raise click.UsageError(f"--dry: {name}:{number} is not {form}: {problem}") from None
    return records


async def _of_stream(access: "StreamAccess", stream: str) -> list[_Record]:
    """The calls of a run that have a result. Raises `RpcError`."""
    calls: dict[str, ToolCall] = {}
    records: list[_Record] = []
    if not (await access.status(stream)).has_ended:
        raise InvalidParams(f"The run {stream} has not ended. Wait for it: mcp-hub resume {stream}")
    async with access.resume(stream, 0) as events:
        async for event in events:
            if isinstance(event, ToolCall):
                calls[event.call] = event
            elif isinstance(event, ToolResult) and (call := calls.pop(event.call, None)) is not None:
                result = {"content": msgspec.Raw(bytes(event.content)), "isError": event.is_error}
                arguments_ = msgspec.json.decode(call.arguments, type=dict[str, object])
                records.append(_Record(call.name, arguments_, msgspec.Raw(msgspec.json.encode(result))))
    return records


async def _dry(code: str, records: Sequence[_Record], output: Output) -> int:
    """Runs the script; returns the exit code."""
    show, engine = show_for(output, "script"), CodeEngine(workers=1)
    try:
        raw = await _result(engine, code, _Records(records), show)
        if raw is None:
            return EXIT_TOOL
        outcome = ShownResult.of(raw)
        show.outcome(outcome)
        return EXIT_TOOL if outcome.is_error else 0
    except CodeError as error:
        show.close()
        if error.kind == "unavailable":
            fail("code_unavailable", str(error), EXIT_UNAVAILABLE)
        head = (f"line {error.line}: " if error.line else "") + (f"{error.exception}: " if error.exception else "")
        show.error(RpcError(str(error)), f"{head}{error}" + (f"\n    {error.source}" if error.source else ""))
        return EXIT_TOOL
    finally:
        show.close()
        await engine.close()


async def _result(engine: CodeEngine, code: str, records: _Records, show: Show) -> RawJson | None:
    """The result of a script; None after a call without a record. Raises `CodeError`."""
    names = dict.fromkeys(records.names.values(), b"{}")
    session = engine.session()
    try:
        step = await session.start(cleaned(code), stubs(names), set(names), CodeLimits(), partial(_printed, show))
        pending: dict[int, CodeCall] = {}
        while not step.has_ended:
            pending |= {call.id: call for call in step.calls}
            answers: dict[int, RawJson | CodeRaise] = {}
            for id_ in step.pending:
                answer = _answered(pending.pop(id_), records, show)
                if answer is None:
                    return None
                answers[id_] = answer
            step = await session.feed(answers)
        return result_of(step.output or b"null", lambda handle: None)
    finally:
        await session.close()


def _printed(show: Show, text: str) -> None:
    show.event(Delta(msgspec.json.encode([{"type": "text", "text": text}])))


def _answered(call: CodeCall, records: _Records, show: Show) -> RawJson | CodeRaise | None:
    called = f"line {call.line}: {call.name} {bytes(call.arguments).decode()}"
    show.event(ToolCall(str(call.id), call.name, call.arguments, call.line))
    show.note(called)
    if call.name == _SLEEP:
        return b"null"
    answer = records.answer(call)
    if answer is None:
        show.error(RpcError(called), f"no record has this call: {called}")
    elif isinstance(answer, CodeRaise):
        show.event(ToolResult.of(str(call.id), answer.message, is_error=True))
    else:
        show.event(ToolResult.of(str(call.id), bytes(answer).decode()))
    return answer
