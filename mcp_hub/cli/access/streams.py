"""Streams for the commands about them: at the running hub of `--url`, or in the store on this machine."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn

from mcp_hub.cli.access.hub import run_with_url
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.results import with_code
from mcp_hub.cli.setup import EXIT_CONFIG, EXIT_UNAVAILABLE, fail, load_config, quiet_logs, run_with
from mcp_hub.errors import EventsGone, InvalidParams, RpcError, StoreError, UpstreamUnavailable

if TYPE_CHECKING:
    from mcp_hub.cli.access.local_streams import LocalStreams
    from mcp_hub.client import HubClient

    StreamAccess = HubClient | LocalStreams


def run_with_streams(
    url: str | None,
    token: str | None,
    config: str | None,
    main: Callable[["StreamAccess"], Awaitable[int]],
    stream: str | None = None,
) -> NoReturn:
    """Runs `main` and exits with its code: 2 for a stream that cannot be found or used, 3 where nobody answers.

    `stream` is the one that it is about.
    """

    async def checked(access: "StreamAccess") -> int:
        try:
            return await main(access)
        except (RpcError, StoreError) as error:
            place = f"{stream}: " if isinstance(error, InvalidParams | EventsGone) else ""
            said = with_code(error) if isinstance(error, RpcError) else f"{error} [store_unavailable]"
            say(f"{place}{said}")
            return EXIT_CONFIG if place else EXIT_UNAVAILABLE

    if url is not None:
        run_with_url(url, token, checked)
    loaded = load_config(config)
    if loaded.settings.hub.store.type == "memory":
        fail(
            "store_in_memory",
            "Hubs of this configuration keep streams in memory (hub.store). Ask the running hub, with --url.",
            EXIT_CONFIG,
        )
    quiet_logs(0)
    from mcp_hub.cli.access.local_streams import open_streams

    try:
        run_with(lambda: open_streams(loaded), checked)
    except UpstreamUnavailable as error:  # the store
        say(with_code(error))
        raise SystemExit(EXIT_UNAVAILABLE) from None
