"""The signals of a hub that serves: SIGINT and SIGTERM end it, SIGHUP makes it reload its configuration.

A terminal sends SIGHUP, too, when it is closed. Then it does not answer any more, and the hub ends, unless it was
started with `nohup`. Windows has no SIGHUP, and Ctrl-Break ends the hub, too.
"""

import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import Final

import anyio
import anyio.abc

from mcp_hub.aio import entrance
from mcp_hub.attach.system import NO_TERMINAL
from mcp_hub.logs import get_logger

log = get_logger(__name__)

_HANGUP: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
_BREAK: Final[signal.Signals | None] = getattr(signal, "SIGBREAK", None)
"""Ctrl-Break of Windows."""
_WANTED: Final = (signal.SIGINT, signal.SIGTERM, *filter(None, (_BREAK, _HANGUP)))
_WAITING: Final = 16


class Signals:
    """The signals received so far. The first that ends the hub sets `stopped`; further ones change nothing."""

    def __init__(self, was_hung_up: Callable[[], bool]) -> None:
        self.stopped = anyio.Event()
        self._reload = anyio.Event()
        self._was_hung_up = was_hung_up

    def receive(self, number: signal.Signals) -> None:
        """Takes in a signal."""
        if number == _HANGUP and not self._was_hung_up():
            self._reload.set()
            return
        if not self.stopped.is_set():
            log.info("hub_stopping", signal=number.name)
        self.stopped.set()

    async def reload_wanted(self) -> None:
        """Waits for a SIGHUP; those that come before the next call of this count as one."""
        await self._reload.wait()
        self._reload = anyio.Event()


class _Held:
    """Whether SIGHUP came while the hub started; `terminal` as `_terminal` returned it at the beginning."""

    def __init__(self) -> None:
        self.is_on = False
        self.has_come = False
        self.terminal: int | None = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        self.has_come = True


_held = _Held()


def hold_hangups() -> None:
    """Remembers SIGHUP for `received_signals` from now on: it does not end a hub that still starts."""
    is_main = threading.current_thread() is threading.main_thread()
    if _HANGUP is not None and is_main and signal.getsignal(_HANGUP) is signal.SIG_DFL:  # an ignored one stays ignored
        _held.is_on, _held.terminal = True, _terminal()
        signal.signal(_HANGUP, _held.receive)


@asynccontextmanager
async def received_signals() -> AsyncIterator[Signals]:
    """Signals are taken from here on, until the end of the block."""
    was_held, _held.is_on = _held.is_on, False
    terminal = _held.terminal if was_held else _terminal()
    signals = Signals(lambda: terminal is not None and not _answers(terminal))
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_receive, signals)
            if _HANGUP is not None and was_held and _held.has_come:
                signals.receive(_HANGUP)
            yield signals
            tasks.cancel_scope.cancel()
    finally:
        if terminal is not None:
            os.close(terminal)


async def _receive(signals: Signals, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with signal_receiver(*_WANTED) as received:
        task_status.started()
        async for number in received:
            signals.receive(number)


@contextmanager
def signal_receiver(*numbers: signal.Signals) -> Iterator[AsyncIterator[signal.Signals]]:
    """These signals as they come, within the block, which the main thread runs."""
    receiver = plain_receiver if sys.platform == "win32" else anyio.open_signal_receiver
    with receiver(*numbers) as received:
        yield received


@contextmanager
def plain_receiver(*numbers: signal.Signals) -> Iterator[AsyncIterator[signal.Signals]]:
    """As `signal_receiver`, by handlers of Python: the event loop of Windows takes no signals. 16 may wait."""
    sender, received = anyio.create_memory_object_stream[signal.Signals](_WAITING)
    enter = entrance()

    def send(number: int) -> None:
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError):
            sender.send_nowait(signal.Signals(number))

    def handle(number: int, frame: FrameType | None) -> None:
        enter(send, number)

    with sender, received:
        before = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield received
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _terminal() -> int | None:
    """A handle on the terminal of the process; None without one, and if the process ignores SIGHUP."""
    if _HANGUP is None or signal.getsignal(_HANGUP) is signal.SIG_IGN:
        return None
    try:
        return os.open("/dev/tty", os.O_RDONLY | NO_TERMINAL)
    except OSError:
        return None


def _answers(terminal: int) -> bool:
    if sys.platform != "win32":
        try:
            os.tcgetpgrp(terminal)
        except OSError:
            return False
    return True
