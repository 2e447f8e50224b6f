"""Follows calls of the running hub or its store: shows events, finds the exit code."""

import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from mcp_hub.cli.access.answering import url_lines
from mcp_hub.cli.access.hub import Reach, run_at, run_opened, run_with_client, running_place
from mcp_hub.cli.render import results
from mcp_hub.cli.render.output import json_output, say
from mcp_hub.cli.render.renderers import Show, on_terminal, renderer
from mcp_hub.cli.render.results import saved, with_code
from mcp_hub.cli.setup import (
    EXIT_CONFIG,
    EXIT_INTERRUPTED,
    EXIT_TOOL,
    EXIT_UNAVAILABLE,
    Output,
    fail,
    load_config,
    quiet_logs,
)
from mcp_hub.errors import (
    DeadlineExceeded,
    HubRestarted,
    HubStopping,
    RpcError,
    UnknownEntry,
    UnknownStream,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.events import Cancelled, Completed, Failed, InputRequired
from mcp_hub.protocol.shape import results as shape
from mcp_hub.types import Era

if TYPE_CHECKING:
    from mcp_hub.cli.access.local_streams import LocalStream
    from mcp_hub.client import HubStream

    Events = HubStream | LocalStream
    from mcp_hub.cli.access.local_streams import LocalHistory, LocalStreams
    from mcp_hub.client import HubClient
    from mcp_hub.client.hub_client import HubLists
    from mcp_hub.config.load.load import Loaded

    StreamAccess = HubClient | LocalStreams
    HistoryAccess = HubLists | LocalHistory

_T = TypeVar("_T")
_ABSENT = (UpstreamUnavailable, UpstreamLost, DeadlineExceeded, HubStopping, HubRestarted)
Asked = Callable[[InputRequired], Awaitable[str]]
"""Takes care of a question of the tool; returns a note about it."""


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
    """Runs `main` with past calls; exits with its code."""

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
    from mcp_hub.app.limits import STORES

    loaded = load_config(reach.config)
    if not STORES[loaded.settings.hub.store.type].is_lasting:
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


def show_for(output: Output, title: str) -> Show:
    """The renderer for format and stdout."""
    if output.form in ("jsonl", "json"):
        return renderer(output.form, json_output())
    if not sys.stdout.isatty():
        return renderer(output.form, sys.stdout.buffer)
    from rich.console import Console

    return on_terminal(title, Console(), Console(stderr=True), shares_terminal=sys.stderr.isatty())


async def followed(
    events: "Events",
    show: Show,
    ask: Asked,
    *,
    method: str = "tools/call",
    folder: Path | None = None,
    names_stream: bool = False,
) -> int | None:
    """Shows a call's events; returns the exit code, None without an ending.

    Binary content goes to `folder`.
    """
    async for event in events:
        if names_stream:
            show.note(f"stream {events.stream}")
            names_stream = False
        with show.numbered(events.cursor):
            match event:
                case Completed():
                    raw = b"".join(shape.call_result(method, event, Era.HANDSHAKE))
                    outcome = results.ShownResult.of(raw, method, is_saved=folder is not None)
                    show.outcome(outcome)
                    is_saved = folder is None or _save(outcome, folder, show)
                    return EXIT_TOOL if outcome.is_error or not is_saved else 0
                case Failed(error):
                    return refuse(show, error)
                case Cancelled(reason):
                    show.cancelled(reason)
                    return EXIT_INTERRUPTED
                case _:
                    show.event(event)
                    if isinstance(event, InputRequired):
                        show.note(await ask(event))
    return None


def _save(outcome: results.ShownResult, folder: Path, show: Show) -> bool:
    try:
        for message in saved(outcome.blocks, folder):
            show.note(message)
    except OSError as problem:
        say(f"Cannot write {problem.filename or folder}: {problem.strerror}.")
        return False
    return True


def refuse(show: Show, error: RpcError) -> int:
    """Shows an error; returns its exit code."""
    code = exit_code(error)
    message = f"error {error.code}: {error.message}" if code == EXIT_TOOL else error.message
    show.error(error, with_code(error, message))
    for url in results.urls_of(error):
        for line in ("Open this page if you trust it, and call again:", *url_lines(url)):
            show.note(line)
    return code


def exit_code(error: RpcError) -> int:
    """2: unknown tool or stream. 3: no server or hub. 1: any other error."""
    if isinstance(error, UnknownEntry | UnknownStream):
        is_unlisted = "state" in error.about_upstream  # its server is not ready and has never listed its tools
        return EXIT_UNAVAILABLE if is_unlisted else EXIT_CONFIG
    is_absent = isinstance(error, _ABSENT) or error.symbol == "executor_lost"
    return EXIT_UNAVAILABLE if is_absent else EXIT_TOOL
