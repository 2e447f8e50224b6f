"""Where the commands about streams find them: at a hub that runs (`--url`), or in the store on this machine."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NoReturn, Protocol

import click

from mcp_hub.cli.access.following import Events
from mcp_hub.cli.access.remote import run_with_hub
from mcp_hub.cli.render.results import visible, with_code
from mcp_hub.cli.setup import EXIT_CONFIG, EXIT_UNAVAILABLE, fail, load_config, quiet_logs, run_with
from mcp_hub.errors import EventsGone, InvalidParams, RpcError, StoreError, UpstreamUnavailable

if TYPE_CHECKING:
    from mcp_hub.protocol.rest.streams import StreamStatus

__all__ = ["StreamAccess", "StreamEvents", "run_with_streams"]


class StreamEvents(Events, Protocol):
    """Events behind a cursor, which is the number of the one that came last."""

    cursor: int
    on_pause: Callable[[str], None]


class StreamAccess(Protocol):
    """The streams of one hub, or of the hubs of one store. Methods raise `RpcError`."""

    async def streams(self, most: int) -> list["StreamStatus"]: ...

    async def status(self, stream: str) -> "StreamStatus": ...

    def resume(self, stream: str, after: int) -> AbstractAsyncContextManager[StreamEvents]: ...

    async def cancel(self, stream: str) -> "StreamStatus": ...


def run_with_streams(
    url: str | None,
    token: str | None,
    config: str | None,
    main: Callable[[StreamAccess], Awaitable[int]],
    stream: str | None = None,
) -> NoReturn:
    """Runs `main` and exits with its code; with 2 for what it cannot find or use, with 3 where nobody answers.

    `stream` is the one that it is about.
    """

    async def checked(access: StreamAccess) -> int:
        try:
            return await main(access)
        except (RpcError, StoreError) as error:
            place = f"{stream}: " if isinstance(error, InvalidParams | EventsGone) else ""
            said = with_code(error) if isinstance(error, RpcError) else f"{error} [store_unavailable]"
            click.echo(visible(f"{place}{said}"), err=True)
            return EXIT_CONFIG if place else EXIT_UNAVAILABLE

    if url is not None:
        run_with_hub(url, token, checked)
    loaded = load_config(config)
    if loaded.settings.hub.store.type == "memory":
        fail(
            "store_in_memory",
            "hubs of this configuration keep streams in memory (hub.store): ask the one that runs, with --url",
            EXIT_CONFIG,
        )
    quiet_logs(0)
    from mcp_hub.cli.access.local_streams import open_streams

    try:
        run_with(lambda: open_streams(loaded), checked)
    except UpstreamUnavailable as error:  # the store
        click.echo(visible(with_code(error)), err=True)
        raise SystemExit(EXIT_UNAVAILABLE) from None
