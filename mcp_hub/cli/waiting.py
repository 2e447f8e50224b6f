"""Waiting for servers that a command has just started; which of them count as settled, and which as not ready."""

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import anyio

from mcp_hub.types import UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from rich.status import Status

    from mcp_hub.hub import Facade

__all__ = ["all_settled", "has_settled", "not_ready", "settle", "spinner", "starting_text", "wait_until"]


def has_settled(status: UpstreamStatus) -> bool:
    """Whether the server has left `starting` once: what it does on its second try says nothing new."""
    return status.state is not UpstreamState.STARTING or status.restarts > 0


def all_settled(hub: "Facade") -> bool:
    return all(map(has_settled, hub.statuses()))


def not_ready(statuses: Iterable[UpstreamStatus]) -> list[UpstreamStatus]:
    """The enabled servers that are not ready; those that rest until they are needed are none of them."""
    return [s for s in statuses if s.state not in (UpstreamState.READY, UpstreamState.DISABLED) and not s.rests]


async def wait_until(hub: "Facade", is_enough: Callable[[], bool], seconds: float) -> None:
    """Returns when `is_enough`, which is asked whenever a server changed, or when the time is over."""
    with anyio.move_on_after(seconds):
        while True:
            version = hub.catalog.version
            if is_enough():
                return
            await hub.catalog.wait_changed(version)


async def settle(hub: "Facade", seconds: float) -> None:
    """Waits until every server has settled; a terminal on stderr sees which ones are waited for."""
    with spinner() as shown:

        def is_enough() -> bool:
            if shown is not None:
                shown.update(starting_text(hub.statuses()).replace("[", r"\["))  # a name is no markup
            return all_settled(hub)

        await wait_until(hub, is_enough, seconds)


def starting_text(statuses: Iterable[UpstreamStatus]) -> str:
    """`starting git, time …`; empty when nobody is waited for."""
    names = ", ".join(status.server for status in statuses if not has_settled(status))
    return f"starting {names} …" if names else ""


def spinner() -> "AbstractContextManager[Status | None]":
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("starting …")
