"""Waits for servers that a command has just started."""

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from mcp_hub.app.readiness import all_settled, has_settled, wait_until
from mcp_hub.types import UpstreamStatus

if TYPE_CHECKING:
    from rich.status import Status

    from mcp_hub.hub import HubPort


async def settle(hub: "HubPort", seconds: float, look: Callable[[list[UpstreamStatus]], None] | None = None) -> None:
    """Waits until every server has settled; a terminal on stderr shows which ones have not.

    `look` is called with the states whenever they change.
    """
    with _spinner() as shown:

        def is_enough() -> bool:
            statuses = hub.statuses()
            if shown is not None:
                shown.update(starting_text(statuses).replace("[", r"\["))  # a name is not markup
            if look is not None:
                look(statuses)
            return all_settled(hub)

        await wait_until(hub, is_enough, seconds)


def starting_text(statuses: Iterable[UpstreamStatus]) -> str:
    """`starting git, time …`; empty when all have settled."""
    names = ", ".join(status.server for status in statuses if not has_settled(status))
    return f"starting {names} …" if names else ""


def _spinner() -> "AbstractContextManager[Status | None]":
    """A spinner on stderr for the length of the block; None where stderr is not a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("starting …")
