"""Streams and past calls, from the running hub or its store."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NoReturn, TypeVar

from mcp_hub.cli.access.hub import Reach, run_at, run_opened, run_with_client, running_place
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.results import with_code
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, fail, load_config, quiet_logs
from mcp_hub.errors import UpstreamUnavailable

if TYPE_CHECKING:
    from mcp_hub.cli.access.local_streams import LocalHistory, LocalStreams
    from mcp_hub.client import HubClient
    from mcp_hub.client.lists import HubLists
    from mcp_hub.config.load.load import Loaded

    StreamAccess = HubClient | LocalStreams
    HistoryAccess = HubLists | LocalHistory

_T = TypeVar("_T")


def run_with_streams(
    reach: Reach, main: Callable[["StreamAccess"], Awaitable[int]], stream: str | None = None
) -> NoReturn:
    """Runs `main` with the hub or the store; exits with its code."""
    if reach.url is not None:
        run_with_client(reach, main, stream)
    if (target := running_place(reach)) is not None:
        run_at(reach, *target, main, stream)
    loaded = _with_store(reach)
    from mcp_hub.cli.access.local_streams import open_streams

    _run_on_store(lambda: open_streams(loaded), main, stream)


def run_with_history(
    reach: Reach, main: Callable[["HistoryAccess"], Awaitable[int]], call: str | None = None
) -> NoReturn:
    """Runs `main` with the past calls; exits with its code."""

    async def of_hub(client: "HubClient") -> int:
        return await main(client.lists)

    if reach.url is not None:
        run_with_client(reach, of_hub, call)
    if (target := running_place(reach)) is not None:
        run_at(reach, *target, of_hub, call, operates=True)
    loaded = _with_store(reach)
    from mcp_hub.cli.access.local_streams import open_past_calls

    _run_on_store(lambda: open_past_calls(loaded), main, call)


def _with_store(reach: Reach) -> "Loaded":
    """The configuration. Exits with 2 if its store is in memory."""
    loaded = load_config(reach.config)
    if loaded.settings.hub.store.type == "memory":
        message = f"Hubs of {loaded.path} keep calls in memory (hub.store), and none serves HTTP. Name one with --url."
        fail("store_in_memory", message)
    quiet_logs(0)
    return loaded


def _run_on_store(
    opened: Callable[[], AbstractAsyncContextManager[_T]], main: Callable[[_T], Awaitable[int]], subject: str | None
) -> NoReturn:
    try:
        run_opened(opened, main, subject)
    except UpstreamUnavailable as error:  # the store
        say(with_code(error))
        raise SystemExit(EXIT_UNAVAILABLE) from None
