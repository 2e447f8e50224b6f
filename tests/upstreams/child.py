"""Child processes of a test: each in its own process group, its stderr kept, and surely gone at the end."""

import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import anyio
from anyio.abc import ByteReceiveStream, TaskGroup

from tests.fork_server import forked_pid
from tests.upstreams.launch import argv

WAIT = 240.0
"""Seconds that anything may take unless a test says otherwise."""
ENDS = 60.0
"""Seconds in which a hub that is asked to end has ended, on any machine; how soon it should is for tests of that."""
GRACE = 5.0
"""Seconds for a voluntary exit, after which a process is killed."""


class PeerClosed(Exception):
    """The other side closed its output, or exited, while something was awaited."""


async def until(condition: Callable[[], object], seconds: float = WAIT) -> None:
    """Wait for what only looking can tell: a file of another process, a pid. Raises: `TimeoutError`."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - other processes set no event of ours
            await anyio.sleep(0.01)


class Child:
    """A child process in its own process group; its stderr is kept, and nothing of the group survives `stop`."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        """`env` goes on top of our own environment."""
        self.argv = list(command)
        self.env = {**os.environ, **(env or {})}
        self.cwd = cwd
        self._stderr = bytearray()
        self._stderr_ended = False
        self._changed = anyio.Event()

    async def __aenter__(self) -> Self:
        self.process = await anyio.open_process(self.argv, env=self.env, cwd=self.cwd, start_new_session=True)
        self._tasks: TaskGroup = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._collect_stderr)
        self._tasks.start_soon(self._collect_stdout)
        return self

    async def __aexit__(self, *error: Any) -> None:
        with anyio.CancelScope(shield=True):
            await self.stop()
            await self.process.aclose()
            self._tasks.cancel_scope.cancel()
        # without the error: a task group would wrap it in an ExceptionGroup
        await self._tasks.__aexit__(None, None, None)

    @property
    def pid(self) -> int:
        """That of the hub, if a process that was started for it stands for it."""
        return forked_pid(self.argv, self.process.pid)

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    @property
    def stderr(self) -> str:
        """What it wrote to stderr so far (the last 16 MiB)."""
        return self._stderr.decode("utf-8", "replace")

    async def wait(self, seconds: float = WAIT) -> int:
        """Its exit code. Raises: `TimeoutError`, and it still runs."""
        with anyio.fail_after(seconds):
            return await self.process.wait()

    async def wait_stderr(self, pattern: str, seconds: float = WAIT) -> re.Match[str]:
        """The first match in stderr. Raises: `PeerClosed` when it ended without one, `TimeoutError`."""
        with anyio.fail_after(seconds):
            while not (found := re.search(pattern, self.stderr)):
                if self._stderr_ended:
                    raise PeerClosed(f"{self.argv} ended without {pattern!r} on stderr:\n{self.stderr}")
                await self._changed.wait()
        return found

    async def stop(self, grace: float = GRACE) -> None:
        """Close its stdin, give it `grace` seconds, then kill the whole group. Never raises."""
        if self.process.stdin is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await self.process.stdin.aclose()
        with anyio.move_on_after(grace):
            await self.process.wait()
        self.kill()
        await self.process.wait()

    async def terminate(self, seconds: float = ENDS) -> int:
        """Send SIGTERM to it alone; its exit code. Raises: `AssertionError`, with its stderr, when it takes longer."""
        with suppress(ProcessLookupError):
            self.send_signal(signal.SIGTERM)
        try:
            return await self.wait(seconds)
        except TimeoutError:
            raise AssertionError(f"{self.argv} still runs {seconds} s after SIGTERM:\n{self.stderr}") from None

    async def kill_alone(self) -> None:
        """Send SIGKILL to it and none of its children, and wait for its end."""
        self.send_signal(signal.SIGKILL)
        assert await self.wait() == -signal.SIGKILL

    def send_signal(self, number: int) -> None:
        """Send a signal to it alone. Raises: `ProcessLookupError` once it has ended."""
        if self.process.returncode is not None:
            raise ProcessLookupError(self.process.pid)
        os.kill(self.pid, number)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the whole group, grandchildren included."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    async def _collect_stderr(self) -> None:
        async for chunk in Chunks(self.process.stderr):
            self._stderr += chunk
            del self._stderr[: -(1 << 24)]
            self._notice()
        self._stderr_ended = True
        self._notice()

    async def _collect_stdout(self) -> None:
        """Read it and forget it: nobody may block on a pipe that is not read."""
        async for _ in Chunks(self.process.stdout):
            pass

    def _notice(self) -> None:
        """Wake everybody who waits for something new."""
        self._changed.set()
        self._changed = anyio.Event()


class Chunks:
    """Chunks of a pipe until it ends, is closed or breaks."""

    def __init__(self, stream: ByteReceiveStream | None) -> None:
        assert stream is not None
        self._stream = stream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise StopAsyncIteration from None


class HttpUpstream(Child):
    """The fixture server over HTTP: `async with HttpUpstream("--always-sse", era="modern") as server: server.url`.

    Options as for `argv`. Raises: `PeerClosed`, with its stderr, when it does not start.
    """

    def __init__(self, *options: str, **named: Any) -> None:
        super().__init__(argv(*options, **{"http": 0, **named}))
        self._stdout = bytearray()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        with anyio.move_on_after(WAIT):
            while b"\n" not in self._stdout and not self._is_closed:
                await self._changed.wait()
        if b"\n" not in self._stdout:
            await self.__aexit__()
            raise PeerClosed(f"{self.argv} did not start:\n{self.stderr}")
        return self

    @property
    def url(self) -> str:
        """Of Streamable HTTP."""
        return self._stdout.partition(b"\n")[0].decode()

    async def _collect_stdout(self) -> None:
        async for chunk in Chunks(self.process.stdout):
            self._stdout += chunk
            self._notice()
        self._is_closed = True
        self._notice()
