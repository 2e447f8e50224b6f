"""Runs the tools of a `Registry`. An exception becomes a tool error, an `RpcError` a JSON-RPC error."""

import difflib
import functools
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from mcp_hub import events
from mcp_hub.call import Call, CallChannel, Heard
from mcp_hub.config.trust import problem_of_config
from mcp_hub.errors import InvalidParams, RpcError, StartFailed, UnknownEntry, UpstreamUnavailable
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.envelope import one_line, read_as
from mcp_hub.protocol.notifications import FEED
from mcp_hub.protocol.shape.occurrences import not_found
from mcp_hub.types import Cause, Era, JsonObject, Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.functions.events import FAILURES, closed, subscribed
from mcp_hub.upstreams.functions.registry import Context, Progress, Registry, Result, Tool, default_registry
from mcp_hub.upstreams.functions.schemas import plain
from mcp_hub.upstreams.local_source import LocalSource
from mcp_hub.upstreams.supervision.server import OwnedUpstream

log = get_logger(__name__)

_IN_MEMORY: Final = 1 << 20
"""Characters of a text in memory; earlier ones are in a temporary file."""


class _OutputText:
    """The content blocks so far. Consecutive texts join into one block."""

    def __init__(self) -> None:
        self._blocks: list[object] = []
        self._text: _GrowingText | None = None
        """The last block, while it is text that may still grow."""

    def add(self, item: object) -> events.Delta:
        """Adds text or a block; its delta."""
        block = content_block(item)
        if not isinstance(item, str):
            self._text = None
            self._blocks.append(block)
        else:
            if self._text is None:
                self._text = _GrowingText()
                self._blocks.append(self._text)
            self._text.add(item)
        return events.Delta(msgspec.json.encode([block]), index=len(self._blocks) - 1)

    def blocks(self) -> list[object]:
        return [content_block(block.text()) if isinstance(block, _GrowingText) else block for block in self._blocks]

    def close(self) -> None:
        for block in self._blocks:
            if isinstance(block, _GrowingText):
                block.close()


class _GrowingText:
    """Text in pieces; all but its end goes to a temporary file if possible."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._file: IO[bytes] | None = None
        self._stored = 0  # bytes of whole pieces in the file

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= _IN_MEMORY:
            self._size = 0
            with suppress(OSError):  # a full disk: it stays in memory
                self._store("".join(self._pieces).encode("utf-8", "surrogatepass"))

    def _store(self, content: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()
        self._file.seek(self._stored)
        self._file.write(content)
        self._file.flush()
        self._stored += len(content)
        self._pieces.clear()

    def text(self) -> str:
        if self._file is None:
            return "".join(self._pieces)
        self._file.seek(0)
        return self._file.read(self._stored).decode("utf-8", "surrogatepass") + "".join(self._pieces)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _Block(msgspec.Struct):
    type: str


def checked_step(step: events.ToolCall | events.ToolResult) -> events.ToolCall | events.ToolResult:
    """The step, with its JSON on one line. Raises `TypeError` for wrong types or invalid JSON."""
    try:
        match step:
            case events.ToolCall(str(), str(), bytes() | msgspec.Raw() as raw):
                msgspec.json.decode(raw, type=dict[str, object])
                return msgspec.structs.replace(step, arguments=one_line(bytes(raw)))
            case events.ToolResult(str(), bytes() | msgspec.Raw() as raw, bool()):
                msgspec.convert(msgspec.json.decode(raw), list[_Block])
                return msgspec.structs.replace(step, content=one_line(bytes(raw)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    name, member = type(step).__name__, "arguments" if isinstance(step, events.ToolCall) else "content"
    raise TypeError(f"the {member} of a {name} are not what they have to be as JSON: {name}.of(…) encodes them")


def content_block(item: object) -> object:
    """A content block from text or a block-like value. Raises `TypeError`."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    block = plain(item)
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise TypeError(f"expected text or a content block with a type, not {type(item).__name__}")
    return block


THREADS = 32
"""Sync functions of one upstream that run at the same time; others wait."""


def function_upstream(name: str, registry: Registry | Cause) -> OwnedUpstream:
    """The tools of a registry; failed if it gets a `Cause` instead."""
    return _FunctionUpstream(name, registry)


def loaded_upstream(
    name: str, reference: str, folder: str | None = None, env: Mapping[str, str] = os.environ
) -> OwnedUpstream:
    """The upstream for `module` or `module:attribute`; failed if that cannot be loaded."""
    try:
        return _FunctionUpstream(name, load_registry(reference, folder, env))
    except StartFailed as error:
        return _FunctionUpstream(name, error.cause)


class _FunctionUpstream(LocalSource):
    def __init__(self, name: str, registry: Registry | Cause) -> None:
        super().__init__(name)
        self._registry = registry
        # of its own: slow tools must not use up the threads that the rest of the hub works in
        self._threads = anyio.CapacityLimiter(THREADS)

    def status(self) -> UpstreamStatus:
        if isinstance(self._registry, Cause):
            return UpstreamStatus(self.name, UpstreamState.FAILED, self._registry.reason, code=self._registry.code)
        return UpstreamStatus(self.name, UpstreamState.READY, era=Era.HANDSHAKE)

    def snapshot(self) -> Snapshot | None:
        if isinstance(self._registry, Cause):
            return None
        lists = {Kind.TOOL: tuple(tool.definition for tool in self._registry.tools.values())}
        capabilities: JsonObject = {"tools": {}, "logging": {}}
        if sources := self._registry.events.values():
            lists[Kind.EVENT] = tuple(source.definition for source in sources)
            capabilities["events"] = {}
        return Snapshot(self.name, Era.HANDSHAKE, lists, capabilities=capabilities)

    async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
        registry = self._registry
        if isinstance(registry, Cause) or call.method != FEED or heard is None:
            return await super().ask(call, heard)
        name = read_as(call.params.get("name", b""), str)
        if name is None or (source := registry.events.get(name)) is None:
            raise not_found("event", f'server "{self.name}" does not have this event')
        return await subscribed(self.name, source, call.params, heard)

    async def call(self, call: Call, channel: CallChannel) -> events.Completed:
        """Runs a tool. Exceptions and wrong arguments become results with `isError`."""
        tool, arguments = self._target(call)
        try:
            bound = tool.bind(arguments)
        except InvalidParams as error:
            return _failure(str(error))
        try:
            value = await self._run(tool, bound, channel)
            return events.Completed(encode_result(value, tool.wraps_result))
        except FAILURES as error:  # the boundary to user code
            cause = _cause(error)
            if isinstance(cause, RpcError):
                raise cause from None
            log.exception("tool_failed", upstream=self.name, tool=tool.name, call_id=call.id)
            text = f"the tool tried to exit the process ({cause})" if isinstance(cause, SystemExit) else str(cause)
            return _failure(text or type(cause).__name__)

    def _target(self, call: Call) -> tuple[Tool, bytes]:
        if isinstance(self._registry, Cause):
            code, reason = self._registry
            data = {"server": self.name, "state": UpstreamState.FAILED.value, "reason": reason, "code": code}
            raise UpstreamUnavailable(f'server "{self.name}" did not start: {reason}', data={"upstream": data})
        name = self.tool_of(call)
        if (tool := self._registry.tools.get(name)) is None:
            nearest = difflib.get_close_matches(name, self._registry.tools)
            hint = f" Did you mean {', '.join(nearest)}?" if nearest else ""
            raise UnknownEntry(f'server "{self.name}" does not have a tool "{name}".{hint}')
        return tool, _arguments(call.params)

    async def _run(self, tool: Tool, arguments: dict[str, object], channel: CallChannel) -> object:
        context = Context(channel.send, channel.drained)
        if tool.context is not None:
            arguments[tool.context] = context
        try:
            outcome: object
            if tool.in_thread:
                work = functools.partial(_in_thread, tool.function, arguments)
                outcome = await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
            else:
                outcome = tool.function(**arguments)
            if isinstance(outcome, AsyncGenerator):
                return await _drive(outcome, channel)
            return await outcome if isinstance(outcome, Awaitable) else outcome
        finally:
            context.end()


def _in_thread(function: Callable[..., object], arguments: Mapping[str, object]) -> object:
    try:
        return function(**arguments)
    except GeneratorExit as error:  # a task that waits for it would be closed
        raise RuntimeError(str(error) or "GeneratorExit") from error


def encode_result(value: object, wraps_result: bool) -> bytes:
    """A `CallToolResult`. Raises `TypeError` or `ValueError` for what JSON cannot carry."""
    result = value if isinstance(value, Result) else Result(value)
    content, structured = _convert(result.value, wraps_result)
    if result.structured is not None:
        structured = plain(result.structured)
        content = [content_block(_text(structured))]
    if result.content is not None:
        content = [
            content_block(item) for item in ([result.content] if isinstance(result.content, str) else result.content)
        ]
    meta = plain(result.meta)
    parts = {"content": content, "structuredContent": structured, "isError": result.is_error, "_meta": meta}
    return msgspec.json.encode({name: part for name, part in parts.items() if part is not None})


def load_registry(reference: str, folder: str | None = None, env: Mapping[str, str] = os.environ) -> Registry:
    """The registry `module:attribute`; for `module` alone, the functions decorated with plain `tool`.

    Appends `folder` to `sys.path`; others must not be able to write files there. Raises `StartFailed`.
    """
    module_name, colon, attribute = reference.partition(":")
    if not module_name or (colon and not attribute):
        raise _not_found(reference, "Write it as module:attribute, for example my_tools:registry.")
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)
    target = _imported(module_name, reference, folder, env)
    if not attribute:
        return _decorated(module_name, reference)
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise _not_found(reference, f"module {module_name} does not have {attribute}.")
        target = getattr(target, part)
    if not isinstance(target, Registry):
        raise _not_found(reference, f"it has to name a Registry, not a {type(target).__name__}.")
    return target


def _not_found(reference: str, detail: str) -> StartFailed:
    return StartFailed("registry_not_found", f'local "{reference}": {detail}')


def _decorated(module_name: str, reference: str) -> Registry:
    try:
        registry = default_registry(module_name)
    except ValueError as error:
        raise _not_found(reference, str(error)) from None
    if not (registry.tools or registry.events):
        detail = f"module {module_name} does not have tools. Decorate functions with mcp_hub.tool, or name a Registry, "
        raise _not_found(reference, f"{detail}for example {module_name}:registry.")
    return registry


def _imported(module_name: str, reference: str, folder: str | None, env: Mapping[str, str]) -> object:
    try:
        importlib.invalidate_caches()  # the file may be newer than the last look into its folder
        if folder is not None:
            _check_files(module_name, reference, folder, env)
        return importlib.import_module(module_name)
    except StartFailed:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            reason = (
                f'local "{reference}": module {module_name} needs {error.name}, which is not installed. Install it.'
            )
            raise StartFailed("module_not_found", reason) from error
        reason = f'local "{reference}": module {error.name} was not found.'
        raise StartFailed("module_not_found", reason, tuple(dict.fromkeys(sys.path))) from error
    except FAILURES as error:  # the boundary to user code
        problem = f"{type(error).__name__}: {error}"
        raise StartFailed("import_failed", f'local "{reference}": importing {module_name} raised {problem}') from error


def _check_files(module_name: str, reference: str, folder: str, env: Mapping[str, str]) -> None:
    """Raises `StartFailed` for a file that others may write."""
    parts = module_name.split(".")
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        file = spec.origin if spec is not None and spec.has_location else None
        if file is None or not Path(os.path.abspath(file)).is_relative_to(os.path.abspath(folder)):
            continue
        if (problem := problem_of_config(os.stat(file), env, path=file)) is not None:
            raise StartFailed("module_untrusted", f'local "{reference}": {file} {problem}')


async def _drive(generator: AsyncGenerator[object, None], channel: CallChannel) -> Result:
    transcript = _OutputText()
    final: Result | None = None
    try:
        async for item in generator:
            match item:
                case Result():
                    final = item
                case Progress():
                    channel.send(item.event())
                case events.ToolCall() | events.ToolResult():
                    channel.send(checked_step(item))
                case _:
                    channel.send(transcript.add(item))
            await channel.drained()
            await anyio.lowlevel.checkpoint()  # a generator that never waits must not keep the loop, or escape a cancel
        return Result(content=transcript.blocks()) if final is None else final
    finally:
        transcript.close()
        await closed(generator)


def _arguments(params: Mapping[str, msgspec.Raw]) -> bytes:
    raw = bytes(params.get("arguments", b"{}")).strip()
    if raw == b"null":
        return b"{}"
    if not raw.startswith(b"{"):
        raise InvalidParams("The arguments of a tool have to be an object.")
    return raw


def _convert(value: object, wraps_result: bool) -> tuple[list[object], object]:
    converted = plain(value)
    content = [] if converted is None else [content_block(_text(converted))]
    if wraps_result and not (isinstance(converted, dict) and set(converted) == {"result"}):
        return content, {"result": converted}
    return content, converted if isinstance(converted, dict) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _failure(text: str) -> events.Completed:
    text = text.encode(errors="backslashreplace").decode()  # a lone surrogate cannot be encoded
    return events.Completed(encode_result(Result(content=text, is_error=True), wraps_result=False))


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
