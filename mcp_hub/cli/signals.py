"""What signals mean to a hub that serves: SIGINT and SIGTERM end it, SIGHUP has it read its configuration again.

SIGHUP is also what a terminal sends when it is closed. Then the terminal cannot be asked anything any more, and the hub
ends, as every program that somebody has started there, unless it was started so that it survives that (`nohup`).
"""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import structlog

__all__ = ["Signals", "received_signals"]

log = structlog.get_logger(__name__)


class Signals:
    """Those that came. `stopped` is set by the first that ends the hub; further ones do no harm."""

    def __init__(self, was_hung_up: Callable[[], bool]) -> None:
        self.stopped = anyio.Event()
        self._reload = anyio.Event()
        self._was_hung_up = was_hung_up

    def receive(self, number: signal.Signals) -> None:
        """One more."""
        if number == signal.SIGHUP and not self._was_hung_up():
            self._reload.set()
            return
        if not self.stopped.is_set():
            log.info("hub_stopping", signal=number.name)
        self.stopped.set()

    async def reload_wanted(self) -> None:
        """Waits for a SIGHUP; those that come before the next call of this count as one."""
        await self._reload.wait()
        self._reload = anyio.Event()


@asynccontextmanager
async def received_signals() -> AsyncIterator[Signals]:
    """Signals are taken from here on, until the end of the block."""
    terminal = _terminal()
    signals = Signals(lambda: terminal is not None and not _answers(terminal))
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_receive, signals)
            yield signals
            tasks.cancel_scope.cancel()
    finally:
        if terminal is not None:
            os.close(terminal)


async def _receive(signals: Signals, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
        task_status.started()
        async for number in received:
            signals.receive(number)


def _terminal() -> int | None:
    """A handle on the terminal that the process belongs to; None without one, and if its end is to be survived."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return None
    try:
        return os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _answers(terminal: int) -> bool:
    try:
        os.tcgetpgrp(terminal)
    except OSError:
        return False
    return True
