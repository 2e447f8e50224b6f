"""The public `Hub`: the servers of one configuration."""

import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, Unpack, overload

import anyio
from mcp_types import CallToolResult, Tool

from mcp_hub.aio import Background, running_loop
from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.client.in_process import Application
from mcp_hub.config.load.load import Loaded, find_config, is_named, parse, read
from mcp_hub.errors import ConfigError, ConfigFinding, HubMisuse
from mcp_hub.library.inner import CallFollower, InnerHub, mounted, opened
from mcp_hub.library.stream import (
    OnEvent,
    OnQuestion,
    ToolStream,
    completed,
    encoded_arguments,
    encoded_meta,
    result_model,
    to_end,
    tool_models,
)
from mcp_hub.masking import Secrets
from mcp_hub.protocol.meta import PATH
from mcp_hub.types import RUN_CODE, JsonObject, UpstreamStatus

if TYPE_CHECKING:
    from mcp import Client


Members = Mapping[str, object] | None
"""The members of a JSON object."""
AsgiApplication = Application
"""An application for Starlette, FastAPI and every ASGI server."""

_WAIT: Final = 30.0
_MAPPING: Final = "settings"
"""The name of a configuration that is not a file, in findings."""


def _with_path(meta: Members, path: str | None) -> Members:
    return meta if path is None else {**(meta or {}), PATH: path}


class _CallOptions(TypedDict, total=False):
    on_event: OnEvent | None
    on_question: OnQuestion | None
    meta: Members
    path: str | None


class _Keeper:
    """A task in which a hub is open until `close`, so that any task may open and close it. `inner` None: not open."""

    def __init__(self, context: AbstractAsyncContextManager[InnerHub]) -> None:
        self.inner: InnerHub | None = None
        self.error: Exception | None = None
        self._context = context
        self._opened, self._closing, self._ended = anyio.Event(), anyio.Event(), anyio.Event()
        self._task = Background(self._run)

    async def _run(self) -> None:
        try:
            async with self._context as self.inner:
                self._opened.set()
                await self._closing.wait()
                self.inner = None
        except Exception as error:
            self.error = error
        finally:
            self.inner = None
            self._opened.set()
            self._ended.set()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    async def opened(self) -> InnerHub | None:
        """Waits until it is open, or has failed. Being cancelled closes it."""
        try:
            await self._opened.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._task.stop()
            raise
        return self.inner

    async def close(self) -> None:
        """Waits until it is closed. Being cancelled leaves it closing."""
        self._closing.set()
        await self._ended.wait()


class Hub:
    """One MCP hub in this program: `async with Hub.from_config(…) as hub`, or `await Hub.open(…)` until `close`.

    One task enters and leaves the block, any task opens and closes otherwise. Any task of its event loop may use the
    hub; elsewhere, and under trio, methods raise `HubMisuse`. `warnings`: findings of the configuration.
    """

    def __init__(self, loaded: Loaded, *, env: Mapping[str, str], profile: str | None, wait: float) -> None:
        """Use `from_config` or `open`."""
        self.warnings = loaded.warnings
        self._loaded = loaded
        self._env = env
        self._profile = profile
        self._wait = wait
        self._secrets = Secrets()
        self._inner: InnerHub | None = None
        self._exit: AsyncExitStack | _Keeper | None = None
        self._owner: tuple[object, int | None] = None, None

    @classmethod
    def from_config(
        cls,
        config: str | os.PathLike[str] | Mapping[str, object] | None = None,
        *,
        profile: str | None = None,
        wait: float = _WAIT,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """A hub that is not open yet.

        `config`: a path or a mapping; None searches the usual places. `profile` restricts servers and tools. Servers
        may take `wait` seconds to start. `env` replaces `os.environ`. Raises `ConfigError`.
        """
        env = os.environ if env is None else env
        if isinstance(config, Mapping):
            loaded = parse(json.dumps(config, default=str), _MAPPING, env, Path.cwd())
        else:
            name = None if config is None else os.fspath(config)
            file = find_config(name, Path.cwd(), env)
            loaded = read(file, env, is_named=is_named(name, file, Path.cwd(), env))
        if profile is not None and profile not in loaded.settings.profiles:
            names = ", ".join(loaded.settings.profiles) or "none"
            message = f'There is no profile "{profile}". Configured: {names}.'
            raise ConfigError(ConfigFinding("unknown_profile", message, str(loaded.path)))
        return cls(loaded, env=env, profile=profile, wait=wait)

    @classmethod
    async def open(
        cls,
        config: str | os.PathLike[str] | Mapping[str, object] | None = None,
        *,
        profile: str | None = None,
        wait: float = _WAIT,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """A hub that is open until `close`; arguments as of `from_config`. Raises as `async with`."""
        hub = cls.from_config(config, profile=profile, wait=wait, env=env)
        hub._begin(None)
        with hub._secrets.owning():
            keeper = hub._exit = _Keeper(opened(hub._loaded, hub._env, hub._profile, hub._wait))
        try:
            hub._inner = await keeper.opened()
        finally:
            if hub._inner is None:
                hub._forget()
        if keeper.error is not None:
            raise keeper.error
        return hub

    async def close(self) -> None:
        """Ends calls and stops the servers of a hub that `open` made; in any task, idempotent. Raises `HubMisuse` for
        one that a block has opened, and what the hub failed with.
        """
        keeper = self._exit
        if keeper is None:
            return
        if not isinstance(keeper, _Keeper):
            raise HubMisuse("hub_other_task", "An `async with` has opened this hub. Leave the block to close it.")
        if not keeper.has_ended:  # as it has once its loop is over
            self._check_loop()
            self._inner = None
            await keeper.close()
        if self._exit is keeper:
            self._forget()
            if keeper.error is not None:
                raise keeper.error

    def __repr__(self) -> str:
        return f"<Hub: {', '.join(self._loaded.settings.servers)} ({'closed' if self._inner is None else 'open'})>"

    async def __aenter__(self) -> Self:
        """Starts the servers without waiting. Raises `HubMisuse` if open, `ConfigError` if others may write its
        folders.
        """
        self._begin(lambda: anyio.get_current_task().id)
        self._exit = stack = AsyncExitStack()
        try:
            with self._secrets.owning():
                context = opened(self._loaded, self._env, self._profile, self._wait)
                self._inner = await stack.enter_async_context(context)
        except BaseException:
            self._forget()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Ends calls and stops the servers. Raises `HubMisuse` in another task, or if not open."""
        if self._exit is None:
            raise HubMisuse("hub_not_open", "This hub is not open, so it cannot be closed.")
        self._check_loop()
        if isinstance(self._exit, _Keeper) or anyio.get_current_task().id != self._owner[1]:
            message = "Close the hub in the task that opened it, in one `async with`, or use Hub.open and close()."
            raise HubMisuse("hub_other_task", message)
        self._inner = None
        try:
            return await self._exit.__aexit__(kind, error, trace)
        finally:
            self._forget()

    def servers(self) -> list[UpstreamStatus]:
        return self._running().statuses()

    @overload
    async def list_tools(self, *, raw: Literal[False] = False) -> list[Tool]: ...

    @overload
    async def list_tools(self, *, raw: Literal[True]) -> list[bytes]: ...

    async def list_tools(self, *, raw: bool = False) -> list[Tool] | list[bytes]:
        """Every tool, once the servers are ready or have failed. `raw`: as JSON."""
        raws = await self._running().tools()
        return raws if raw else tool_models(raws)

    @overload
    async def search(self, query: str, *, limit: int = 5, raw: Literal[False] = False) -> list[tuple[Tool, Hit]]: ...

    @overload
    async def search(self, query: str, *, limit: int = 5, raw: Literal[True]) -> list[tuple[bytes, Hit]]: ...

    async def search(
        self, query: str, *, limit: int = 5, raw: bool = False
    ) -> list[tuple[Tool, Hit]] | list[tuple[bytes, Hit]]:
        """Tools that fit a query in plain words, best first, with score and weakness. `raw`: as JSON."""
        raws = await self._running().search(query, limit)
        return raws if raw else [(tool, hit) for definition, hit in raws for tool in tool_models([definition])]

    @overload
    async def call_tool(
        self, name: str, arguments: Members = None, *, raw: Literal[False] = False, **options: Unpack[_CallOptions]
    ) -> CallToolResult: ...

    @overload
    async def call_tool(
        self, name: str, arguments: Members = None, *, raw: Literal[True], **options: Unpack[_CallOptions]
    ) -> bytes: ...

    async def call_tool(
        self,
        name: str,
        arguments: Members = None,
        *,
        on_event: OnEvent | None = None,
        on_question: OnQuestion | None = None,
        meta: Members = None,
        path: str | None = None,
        raw: bool = False,
    ) -> CallToolResult | bytes:
        """Calls a tool and waits for its result; `is_error`: the tool itself failed.

        `on_event` gets progress, partial output and log messages. `on_question` answers the server; without it
        questions are declined. `meta` becomes `_meta`. `path`: a JSON path, for the result to be what it selects.
        `raw`: as JSON. Cancelling the task cancels the call. Raises
        `RpcError`, `CallCancelled`, `ModelMismatch`.
        """
        encoded, added = encoded_arguments(arguments), encoded_meta(_with_path(meta, path))
        with self._secrets.owning():
            call = await self._running().begin(name, encoded, added, asks=on_question is not None)
        try:
            text = call.result(completed(await to_end(call, on_event, on_question)))
        finally:
            call.close()
        return text if raw else result_model(name, text)

    def stream_tool(
        self, name: str, arguments: Members = None, *, asks: bool = False, meta: Members = None, path: str | None = None
    ) -> ToolStream:
        """Calls a tool as a durable stream of events. `asks`: questions are events, and wait for `ToolStream.answer`;
        else they are declined. `path` as in `call_tool`.
        """
        encoded, added = encoded_arguments(arguments), encoded_meta(_with_path(meta, path))

        async def begin() -> CallFollower:
            with self._secrets.owning():
                return await self._running().begin_stream(name, encoded, added, asks=asks)

        return ToolStream(begin, name)

    @overload
    async def run_code(
        self, code: str, *, again: bool = False, raw: Literal[False] = False, **options: Unpack[_CallOptions]
    ) -> CallToolResult: ...

    @overload
    async def run_code(
        self, code: str, *, again: bool = False, raw: Literal[True], **options: Unpack[_CallOptions]
    ) -> bytes: ...

    async def run_code(
        self, code: str, *, again: bool = False, raw: bool = False, **options: Unpack[_CallOptions]
    ) -> CallToolResult | bytes:
        """Runs a script over the tools (docs/code.md), once the servers are ready or have failed.

        `again`: although the same one runs, or has just ended. Options and errors are those of `call_tool`; raises
        `UnknownEntry` where `hub.code` is off.
        """
        arguments = {"code": code, "again": True} if again else {"code": code}
        return await (
            self.call_tool(RUN_CODE, arguments, raw=True, **options)
            if raw
            else self.call_tool(RUN_CODE, arguments, **options)
        )

    def resume(self, id: str, *, after: int = 0) -> ToolStream:
        """Follows a stream after event number `after`, also in another process."""

        async def begin() -> CallFollower:
            with self._secrets.owning():
                return await self._running().follow(id, after)

        return ToolStream(begin, id)

    async def list_events(self) -> list[JsonObject]:
        """The types of events, once the servers are ready or have failed."""
        return await self._running().event_types()

    def events(
        self, name: str, arguments: Members = None, *, after: str | None = None
    ) -> AsyncGenerator[JsonObject, None]:
        """Events of a type, each with `eventId`, `timestamp`, `data` and the `cursor` behind it, from now on or `after`
        a cursor, also of another process. `truncated`: some may be missing before it. Raises `RpcError`.
        """
        return self._running().events(name, encoded_arguments(arguments), after)

    def asgi(self) -> AsgiApplication:
        """The HTTP front as an ASGI application for any mount: `/mcp`, `/sse`, `/v1`, health, metrics. 503 while not
        open.
        """
        return mounted(self._running, self._secrets.owning)

    def connect(self, **options: Any) -> "Client":
        """A client of the official SDK, in process: `async with hub.connect() as client`.

        `options` are those of `mcp.Client`. The hub must stay open.
        """
        from mcp_hub.library.sdk_client import client_on  # the SDK's client costs a second that other programs save

        return client_on(self._running, self._secrets.owning, options)

    def _running(self) -> InnerHub:
        inner = self._exit.inner if isinstance(self._exit, _Keeper) else self._inner
        if inner is None or self._inner is None:
            raise HubMisuse("hub_not_open", "The hub is not open. Use it inside `async with hub`, or after Hub.open.")
        self._check_loop()
        return inner

    def _begin(self, task: Callable[[], int] | None) -> None:
        loop = running_loop()
        if loop is None:
            message = (
                "The hub runs on asyncio only. Under trio, run it in a thread with asyncio, or connect to its URL."
            )
            raise HubMisuse("hub_needs_asyncio", message)
        if self._exit is not None:
            raise HubMisuse("hub_open_already", "This hub is already open. Use it, or make another one.")
        self._owner = loop, None if task is None else task()
        self._secrets.learn(self._loaded.secrets)

    def _check_loop(self) -> None:
        loop = running_loop()
        if loop is not None and loop is not self._owner[0]:
            raise HubMisuse("hub_other_loop", "The hub is open in another event loop. Use it there, or by its URL.")

    def _forget(self) -> None:
        self._inner = self._exit = None
        self._owner = None, None
        self._secrets.forget()
