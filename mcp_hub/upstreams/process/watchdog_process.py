"""The hub's end of the guard process (`watchdog_program`): starting it, telling it of sessions, ending it."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from mcp_hub.upstreams.process import watchdog_program
from mcp_hub.upstreams.process.child import open_pidfd, wait_for_exit

_END: Final = 0.5
"""Seconds for a guard to end once its pipe is closed: it looks twice whether anything is left."""


def can_watch() -> bool:
    """Whether there is an interpreter to run the guard with: a frozen program is none. Windows has no sessions."""
    return sys.platform != "win32" and bool(sys.executable) and not getattr(sys, "frozen", False)


class WatchdogProcess:
    """A running guard. It has a session of its own, no descriptor but the pipe, and neither mark nor secret of ours.

    Its environment names no hub, also where this hub is a server of another one: that one must not kill it, since it
    is what ends our own servers.
    """

    def __init__(self, instance: str, lines: str = "") -> None:
        """`lines` as for `tell`: it has them from its first moment. Takes as long as a fork does.

        Raises: `OSError`.
        """
        read, self._pipe = os.pipe()  # close-on-exec: nobody but us has the write end
        try:
            os.set_blocking(self._pipe, False)
            first = f"{instance}\n{lines}".encode()
            told = os.write(self._pipe, first)
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(watchdog_program.__file__)), "--hub", str(os.getpid())],
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                close_fds=True,
                cwd="/",
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                start_new_session=True,
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(read)
        self.pid = self._popen.pid
        self._pidfd = open_pidfd(self.pid)
        self.tell(first[told:].decode())  # thousands of sessions are more than a pipe holds

    @property
    def is_running(self) -> bool:
        """Reaps it if it is not."""
        return self._popen.poll() is None

    def tell(self, lines: str) -> bool:
        """Sends lines to the watchdog; False if it has ended or does not read any more."""
        data = lines.encode()
        try:
            return os.write(self._pipe, data) == len(data)
        except OSError:
            return False

    async def wait(self) -> None:
        """Returns when it has ended."""
        if self._pidfd is not None:
            await wait_for_exit(self.pid, self._pidfd)
            return
        pause = 0.01
        while self.is_running:
            await anyio.sleep(pause)
            pause = min(2 * pause, 1.0)

    def discard(self) -> None:
        """Kills and reaps it at once: it ended already, or is of no use."""
        with suppress(OSError):
            self._popen.send_signal(signal.SIGKILL)
        self._popen.wait()
        self._close()

    async def stop(self) -> None:
        """Closes the pipe: it ends by itself when nothing is left. Shielded, and bounded by `_END`."""
        os.close(self._pipe)
        self._pipe = -1
        with anyio.CancelScope(shield=True), anyio.move_on_after(_END):
            await self.wait()
        self.discard()

    def _close(self) -> None:
        for descriptor in (self._pipe, self._pidfd):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self._pipe, self._pidfd = -1, None
