"""`--url`: a hub that runs already, in place of servers that the command starts itself."""

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import anyio
import click
from click.core import ParameterSource

from mcp_hub.cli.render.results import visible, with_code
from mcp_hub.cli.setup import EXIT_CONFIG, EXIT_UNAVAILABLE, fail_with, run_with
from mcp_hub.errors import ConfigError, HubError, InvalidParams, RpcError
from mcp_hub.events import CallEvent, Cancelled, Completed, Failed, InputRequired
from mcp_hub.types import RawJson

if TYPE_CHECKING:
    from mcp_hub.client import HubClient, HubStream

__all__ = ["RemoteHub", "run_with_hub", "url_options"]

_OF_OWN_SERVERS: Final = ("config", "wait")
_CANCELLING: Final = 3.0
"""Seconds in which a hub has to take in that a call is cancelled."""
_TRIES: Final = (0.5, 2.0, 5.0)
"""Seconds after each attempt to answer a question."""
_NOBODY: Final = RpcError("nobody can be asked: the call was made by a command", code=-32601)


def _needs_url(context: click.Context, _: click.Parameter, token: str | None) -> str | None:
    if token is not None and context.params.get("url") is None:
        raise click.UsageError("--token belongs to --url")
    return token


_url = click.option(
    "--url", is_eager=True, metavar="URL", help="Use the running hub at this URL, e.g. http://127.0.0.1:8765."
)
_token = click.option(
    "--token", callback=_needs_url, metavar="TOKEN",
    help="Bearer token for --url. Prefer $MCP_HUB_TOKEN: arguments show up in `ps`.",
)  # fmt: skip


def url_options(command: Callable[..., Any]) -> Any:
    """Adds `--url` and `--token`; gives the command `url` and `token`."""
    return _url(_token(command))


def run_with_hub(url: str, token: str | None, main: Callable[["HubClient"], Awaitable[int]]) -> NoReturn:
    """Runs `main` with a client of the hub at `url` and exits with its code; 2: it will not have us, 3: it cannot."""
    from mcp_hub.client import HubClient

    _check_options()
    try:
        client = HubClient(url, token or os.environ.get("MCP_HUB_TOKEN") or None)
    except ConfigError as exc:
        fail_with(exc)

    async def checked(client: HubClient) -> int:
        try:
            return await main(client)
        except ConfigError as exc:
            click.echo(visible(str(exc)), err=True)
            return EXIT_CONFIG
        except RpcError as error:
            click.echo(visible(with_code(error)), err=True)
            return EXIT_UNAVAILABLE

    run_with(lambda: client, checked)


def _check_options() -> None:
    """Raises `UsageError` for what only means something to servers that the command starts."""
    context = click.get_current_context()
    for name in _OF_OWN_SERVERS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name} is about servers that the command starts itself; it has no use with --url"
            )


class RemoteHub:
    """The hub at the other end, as `mcp-hub call` uses one."""

    def __init__(self, client: "HubClient") -> None:
        self._client = client
        self._doing: Callable[[str], None] = lambda what: None

    async def definition(self, name: str, doing: Callable[[str], None]) -> RawJson:
        """The tool as listed; an empty one for a name that is not: the hub will say what there is instead."""
        self._doing = doing
        await self._client.tools()
        return self._client.definition(name) or b"{}"

    def call(self, name: str, given: RawJson, told: Callable[[str], None]) -> "_Call":
        """A durable call, which outlives a lost connection and is cancelled when the command is interrupted."""
        stream = self._client.stream(name, given)
        stream.on_pause = self._doing
        return _Call(self._client, stream, told)

    async def start(self, name: str, given: RawJson) -> str:
        """Makes a call and leaves it to the hub: the id of its stream. Raises `RpcError`."""
        return await self._client.start(name, given)


class _Call:
    """The events of one call; what its tool asks is answered with an error at once, since nobody else would."""

    def __init__(self, client: "HubClient", events: "HubStream", told: Callable[[str], None]) -> None:
        self._client = client
        self._events = events
        self._told: Callable[[str], None] | None = told
        self._is_over = False

    @property
    def stream(self) -> str | None:
        return self._events.stream

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self._is_over:
                with anyio.move_on_after(_CANCELLING, shield=True), suppress(HubError):
                    await self._events.cancel()
        finally:
            await self._events.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CallEvent:
        try:
            event = await anext(self._events)
        except (HubError, StopAsyncIteration):
            self._is_over = True  # as far as this command goes
            raise
        self._is_over = isinstance(event, Completed | Failed | Cancelled)
        if self._told is not None and self.stream is not None:
            self._told(self.stream)
            self._told = None
        if isinstance(event, InputRequired):
            await self._decline(event.key)
        return event

    async def _decline(self, key: str) -> None:
        """Tries a few times: without an answer the call would wait for minutes."""
        assert self.stream is not None
        for pause in _TRIES:
            try:
                await self._client.answer(self.stream, key, error=_NOBODY)
                return
            except InvalidParams:  # it is not open any more
                return
            except RpcError:
                await anyio.sleep(pause)
