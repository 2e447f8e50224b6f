"""Tools written in Python.

    from mcp_hub import Progress, Registry, Result

    registry = Registry()

    @registry.tool
    async def build(target: str) -> AsyncIterator[str | Progress | Result]:
        \"""Build a target.

        Args:
            target: name of the target, as in the Makefile
        \"""
        yield Progress(1, total=2, message="compiling")
        yield "compiled\\n"
        yield Result({"target": target, "ok": True})

`local: my_tools:registry` in `servers.yaml` names it; `local: my_tools` serves the module's functions decorated with
plain `mcp_hub.tool`. Async functions must not block the event loop; others run in worker threads.

`@registry.event` registers an async generator of `Event`s as a type of events (MCP Events).
"""

import inspect
import re
import threading
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType, UnionType
from typing import Final, TypedDict, TypeVar, Unpack, overload

import anyio.from_thread
import msgspec

from mcp_hub import events
from mcp_hub.protocol.eras import LOG_LEVELS
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.functions.schemas import (
    Bind,
    ToolFunction,
    derive_parameters,
    first_paragraph,
    object_schema,
    plain,
)

F = TypeVar("F", bound=ToolFunction)

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_CURSOR: Final = "cursor"
"""The parameter of an event function that is not an argument of the subscription."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a tool. `progress` grows with every report, up to `total` if known."""

    progress: float
    total: float | None = None
    message: str | None = None

    def event(self) -> events.Progressed:
        """The event for the call. Raises `TypeError` for wrong types."""
        for value in (self.progress, self.total):
            if value is not None and not isinstance(value, int | float):
                raise TypeError(f"progress has to be a number, not {value!r}")
        if self.message is None:
            return events.Progressed(self.progress, self.total)
        if not isinstance(self.message, str):
            raise TypeError(f"a progress message has to be text, not {self.message!r}")
        return events.Progressed(self.progress, self.total, {"message": msgspec.Raw(msgspec.json.encode(self.message))})


class Result(msgspec.Struct, frozen=True):
    """A result with more than a return value.

    `content`: text, or a list of texts and content blocks; it and `structured` replace what is made from `value`.
    `is_error` tells the model of a failure; `meta` becomes `_meta`.
    """

    value: object = None
    content: str | Sequence[object] | None = None
    structured: Mapping[str, object] | None = None
    is_error: bool = False
    meta: Mapping[str, object] | None = None


class Event(msgspec.Struct, frozen=True):
    """One occurrence, yielded by an event function; `data` becomes a JSON object.

    `id`: an equal one is delivered once (by default a new one). `time`: when it happened (now). `cursor`: where the
    function continues behind it; it gets that as its parameter `cursor`.
    """

    data: object
    id: str | None = None
    time: datetime | None = None
    cursor: str | None = None


class Context:
    """The running call, for a parameter annotated `Context`, which callers do not see.

    Report from the event loop or the tool's worker thread. A thread waits while readers are behind.
    """

    __slots__ = ("_drained", "_is_over", "_loop_thread", "_send")

    def __init__(self, send: Callable[[events.CallEvent], None], drained: Callable[[], Awaitable[None]]) -> None:
        self._send = send
        self._drained = drained
        self._loop_thread = threading.get_ident()
        self._is_over = False

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more.

        A long function in a thread should check it: it cannot be interrupted, and delays the hub's exit.
        """
        return self._is_over

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._emit(Progress(progress, total, message).event())

    def log(self, level: str, data: object, logger: str | None = None) -> None:
        """Send a log message of any JSON value. Raises `ValueError` for an unknown level."""
        if level not in LOG_LEVELS:
            raise ValueError(f"unknown log level {level!r} (known: {', '.join(LOG_LEVELS)})")
        params: JsonObject = {"level": level, "data": plain(data)}
        if logger is not None:
            params["logger"] = logger
        self._emit(events.Log(level, msgspec.json.encode(params)))

    def end(self) -> None:
        """For the hub: drops later reports."""
        self._is_over = True

    def _emit(self, event: events.CallEvent) -> None:
        if self._is_over:
            return
        if threading.get_ident() == self._loop_thread:
            self._send(event)
        else:
            anyio.from_thread.run(self._send_and_drain, event)

    async def _send_and_drain(self, event: events.CallEvent) -> None:
        self._send(event)
        await self._drained()


class Tool(msgspec.Struct, frozen=True):
    """A registered function with its definition."""

    name: str
    function: ToolFunction
    in_thread: bool
    """It is neither a coroutine function nor an async generator, so it may block."""
    bind: Bind
    context: str | None
    """The parameter that the hub fills in, if there is one: the `Context` of a tool, the cursor of an event."""
    definition: bytes
    wraps_result: bool
    """The output schema has "result" as its only property: values that are no such object are put under that key."""


class _ToolOptions(TypedDict, total=False):
    name: str | None
    title: str | None
    description: str | None
    annotations: Mapping[str, object] | None
    output_schema: object


class _EventOptions(TypedDict, total=False):
    name: str | None
    description: str | None
    payload_schema: object


class Registry:
    """The tools and events of one local server, in order of definition."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}
        self._events: dict[str, Tool] = {}

    def __repr__(self) -> str:
        return f"<Registry: {', '.join((*self._tools, *self._events)) or 'empty'}>"

    @classmethod
    def joined(cls, registries: Iterable["Registry"]) -> "Registry":
        """A registry with the tools of all. Raises `ValueError` for a duplicate name."""
        joined = cls()
        for registry in registries:
            for name, tool in registry.tools.items():
                _put(joined._tools, "tool", name, tool)
            for name, source in registry.events.items():
                _put(joined._events, "event", name, source)
        return joined

    @property
    def tools(self) -> Mapping[str, Tool]:
        return MappingProxyType(self._tools)

    @property
    def events(self) -> Mapping[str, Tool]:
        """Event functions by name."""
        return MappingProxyType(self._events)

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, /, **options: Unpack[_ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, /, **options: Unpack[_ToolOptions]) -> F | Callable[[F], F]:
        """Register a function as a tool, unchanged. Name and description default to the function's.

        `annotations` are MCP's hints (`{"readOnlyHint": True}`); `output_schema` is a JSON Schema or a Python type.
        Raises `TypeError` for an unsuitable function, `ValueError` for a bad or taken name.
        """

        def register(function: F) -> F:
            self._add(function, options)
            return function

        return register if function is None else register(function)

    @overload
    def event(self, function: F, /) -> F: ...

    @overload
    def event(self, /, **options: Unpack[_EventOptions]) -> Callable[[F], F]: ...

    def event(self, function: F | None = None, /, **options: Unpack[_EventOptions]) -> F | Callable[[F], F]:
        """Register an async generator of `Event`s as a type of events, unchanged.

        Its parameters are the arguments of a subscription; one that is named `cursor` gets the position to continue
        behind (None: from now on). `payload_schema` is a JSON Schema or a Python type. Raises as `tool`.
        """

        def register(function: F) -> F:
            name = _name(options.get("name"), function, "event")
            _put(self._events, "event", name, _made("event", name, lambda: _make_event(name, function, options)))
            return function

        return register if function is None else register(function)

    def _add(self, function: ToolFunction, options: _ToolOptions) -> None:
        name = _name(options.get("name"), function, "tool")
        _put(self._tools, "tool", name, _made("tool", name, lambda: _make_tool(name, function, options)))


def _name(name: str | None, function: ToolFunction, kind: str) -> str:
    name = name or str(getattr(function, "__name__", ""))
    if not _NAME.fullmatch(name):
        raise ValueError(f"{kind} name {name!r} has to be 1 to 128 letters, digits, '_', '-' or '.'")
    return name


def _made(kind: str, name: str, make: Callable[[], Tool]) -> Tool:
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise TypeError(f'{kind} "{name}": {error}') from error


def _put(functions: dict[str, Tool], kind: str, name: str, function: Tool) -> None:
    if name in functions:
        raise ValueError(f'{kind} "{name}" is defined twice')
    functions[name] = function


_by_module: Final[dict[str, Registry]] = {}


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(**options: Unpack[_ToolOptions]) -> Callable[[F], F]: ...


def tool(function: F | None = None, /, **options: Unpack[_ToolOptions]) -> F | Callable[[F], F]:
    """Register a function, as `Registry.tool` does, for servers that name its module or a package around it."""

    def register(function: F) -> F:
        registry = _by_module.setdefault(function.__module__, Registry())
        return registry.tool(**options)(function)

    return register if function is None else register(function)


@overload
def event(function: F, /) -> F: ...


@overload
def event(**options: Unpack[_EventOptions]) -> Callable[[F], F]: ...


def event(function: F | None = None, /, **options: Unpack[_EventOptions]) -> F | Callable[[F], F]:
    """Register an event function, as `Registry.event` does, for servers that name its module or a package around it."""

    def register(function: F) -> F:
        registry = _by_module.setdefault(function.__module__, Registry())
        return registry.event(**options)(function)

    return register if function is None else register(function)


def default_registry(module: str) -> Registry:
    """The tools and events of a module and its submodules. Raises `ValueError` for a duplicate name."""
    registries = [registry for name, registry in _by_module.items() if f"{name}.".startswith(f"{module}.")]
    return registries[0] if len(registries) == 1 else Registry.joined(registries)


def _make_tool(name: str, function: ToolFunction, options: _ToolOptions) -> Tool:
    if not inspect.isroutine(function):
        raise TypeError(f"expected a function, not {function!r}")
    if inspect.isgeneratorfunction(function):
        raise TypeError("a generator has to be async: write `async def`")
    hints = _hints(function)
    context = _context_parameter(hints)
    schema, bind = derive_parameters(function, hints, context)
    output_schema = _output_schema(options.get("output_schema"))
    definition = {
        "name": name,
        "title": options.get("title"),
        "description": options.get("description") or first_paragraph(inspect.getdoc(function)),
        "annotations": options.get("annotations"),
        "inputSchema": schema,
        "outputSchema": output_schema,
    }
    return Tool(
        name=name,
        function=function,
        in_thread=not (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)),
        bind=bind,
        context=context,
        definition=msgspec.json.encode(plain({key: part for key, part in definition.items() if part is not None})),
        wraps_result=output_schema is not None and set(output_schema.get("properties", ())) == {"result"},
    )


def _make_event(name: str, function: ToolFunction, options: _EventOptions) -> Tool:
    if not inspect.isasyncgenfunction(function):
        raise TypeError("an event function has to be `async def` with `yield Event(…)`")
    hints = _hints(function)
    cursor = _CURSOR if _CURSOR in inspect.signature(function).parameters else None
    schema, bind = derive_parameters(function, hints, cursor)
    description = options.get("description") or first_paragraph(inspect.getdoc(function))
    payload = _output_schema(options.get("payload_schema"))
    definition = {
        "name": name,
        **({} if description is None else {"description": description}),
        "delivery": ["push"],
        "inputSchema": schema,
        "payloadSchema": {"type": "object"} if payload is None else payload,
    }
    return Tool(
        name=name, function=function, in_thread=False, bind=bind, context=cursor,
        definition=msgspec.json.encode(plain(definition)), wraps_result=False,
    )  # fmt: skip


def _hints(function: ToolFunction) -> JsonObject:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"an annotation cannot be evaluated: {error}") from error


def _context_parameter(hints: Mapping[str, object]) -> str | None:
    parameters = [name for name, hint in hints.items() if name != "return" and _is_context(hint)]
    if len(parameters) > 1:
        raise TypeError(f"more than one parameter is a Context: {', '.join(parameters)}")
    return parameters[0] if parameters else None


def _is_context(hint: object) -> bool:
    is_choice = typing.get_origin(hint) in (typing.Annotated, typing.Union, UnionType)
    return hint is Context or (is_choice and Context in typing.get_args(hint))


def _output_schema(output: object) -> JsonObject | None:
    if output is None:
        return None
    schema = dict(output) if isinstance(output, Mapping) else object_schema(output)
    if schema.get("type") != "object":
        raise TypeError('an output schema has to have "type": "object"')
    return schema
