"""SIGINT, SIGTERM and Ctrl-Break end a serving hub; SIGHUP reloads it.

A closed terminal sends SIGHUP, too: it ends the hub, unless started with `nohup`.
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
    """The signals so far; `stopped` is set by the first that ends the hub."""

    def __init__(self, was_hung_up: Callable[[], bool]) -> None:
        self.stopped = anyio.Event()
        self._reload = anyio.Event()
        self._was_hung_up = was_hung_up

    def receive(self, number: signal.Signals) -> None:
        """Takes a signal."""
        if number == _HANGUP and not self._was_hung_up():
            self._reload.set()
            return
        if not self.stopped.is_set():
            log.info("hub_stopping", signal=number.name)
        self.stopped.set()

    async def reload_wanted(self) -> None:
        """Waits for SIGHUP; several since the last call count once."""
        await self._reload.wait()
        self._reload = anyio.Event()


class _EarlyHangup:
    def __init__(self) -> None:
        self.is_on = False
        self.has_come = False
        self.terminal: int | None = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        self.has_come = True


_early_hangup = _EarlyHangup()


def hold_hangups() -> None:
    """Keeps a SIGHUP during the start for `received_signals`."""
    is_main = threading.current_thread() is threading.main_thread()
    if _HANGUP is not None and is_main and signal.getsignal(_HANGUP) is signal.SIG_DFL:  # an ignored one stays ignored
        _early_hangup.is_on, _early_hangup.terminal = True, _terminal()
        signal.signal(_HANGUP, _early_hangup.receive)


@asynccontextmanager
async def received_signals() -> AsyncIterator[Signals]:
    """Takes signals until the block ends."""
    was_held, _early_hangup.is_on = _early_hangup.is_on, False
    terminal = _early_hangup.terminal if was_held else _terminal()
    signals = Signals(lambda: terminal is not None and not _answers(terminal))
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_receive, signals)
            if _HANGUP is not None and was_held and _early_hangup.has_come:
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
    """Receives signals in the main thread."""
    receiver = plain_receiver if sys.platform == "win32" else anyio.open_signal_receiver
    with receiver(*numbers) as received:
        yield received


@contextmanager
def plain_receiver(*numbers: signal.Signals) -> Iterator[AsyncIterator[signal.Signals]]:
    """Receives signals by handlers of Python, for Windows; 16 may wait."""
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
    """A handle on the terminal; None without one, or if SIGHUP is ignored."""
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
