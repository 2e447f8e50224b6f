"""Reads secret values from programs such as `op read op://…`. Programs run without a shell, input or terminal.

The process group ends with its program. At the time limit all descendants end; else daemons may stay.
"""

import math
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Final

import anyio
import msgspec

from mcp_hub.attach.system import set_blocking
from mcp_hub.clock import Clock, SystemClock
from mcp_hub.config.findings import DataPath, path_text, quoted
from mcp_hub.config.load.secrets import secrets_of_server
from mcp_hub.config.schema.fields import problems_of
from mcp_hub.config.schema.servers import CommandLookup, Lookup, ServerSettings
from mcp_hub.errors import StartFailed
from mcp_hub.masking import Mask, hide_tail, learn
from mcp_hub.upstreams.process import commands
from mcp_hub.upstreams.process.child import Child, describe_exit, room_for_server
from mcp_hub.upstreams.process.watchdog import Watchdog

Argv = tuple[str, ...]
SECONDS: Final = 10.0
"""Within which a program gives its value."""
LARGEST: Final = 64 * 1024
"""Bytes of a value, as of a file."""
_SHARED: Final = 10.0
"""Seconds in which starting servers share the output of one run."""
_REFUSALS, _PERIOD = 10, 60.0
"""Most runs for refused values within the period, in seconds."""
_MOST: Final = 256
"""Commands whose outputs are remembered."""
_GRACE: Final = 0.2
_ERRORS: Final = 3 * LARGEST
"""Bytes of stderr that are kept: a value in it must be complete to be masked."""
_SHOWN: Final = 300
"""Characters of it that an error has."""
_PORTION: Final = 1 << 16
_ADVICE: Final = "Install it, or write its whole path; the hub searches the folders of its PATH and the usual ones"


class _Command(msgspec.Struct):
    """A program's last outcome, and the servers that have it."""

    turn: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    outcome: str | StartFailed | None = None
    at: float = 0.0
    users: set[str] = msgspec.field(default_factory=set)
    had_value: bool = False
    refusals: deque[float] = msgspec.field(default_factory=partial(deque, maxlen=_REFUSALS))

    def serves(self, server: str, arrived: float, since: float) -> bool:
        """Whether the last run serves a server that asked at `arrived`."""
        if self.at >= arrived:
            return self.outcome is not None
        if since == math.inf and len(self.refusals) == _REFUSALS and arrived - self.refusals[0] < _PERIOD:
            return isinstance(self.outcome, str)
        is_recent = self.at >= max(since, arrived - _SHARED)
        return is_recent and server not in self.users and isinstance(self.outcome, str)


class CommandOutputs:
    """The outputs of a configuration's commands, run in its folder; each runs once for all who ask."""

    def __init__(
        self, watchdog: Watchdog, clock: Clock, env: Mapping[str, str], folder: str, *, seconds: float = SECONDS
    ) -> None:
        self._watchdog = watchdog
        self._clock = clock
        self._env = env
        self._folder = folder
        self._seconds = seconds
        self._commands: dict[Argv, _Command] = {}

    async def read(self, argv: Argv, server: str, since: float = math.inf) -> str:
        """The output for a start of the server, masked from then on. Raises `StartFailed`.

        Shares a run in progress, or one not before `since` that this server has not used. Without `since` the server
        refused its value: at most ten runs a minute.
        """
        arrived = self._clock.now()
        command = self._commands.setdefault(argv, _Command())
        async with command.turn:
            if not command.serves(server, arrived, since):
                if since == math.inf:
                    command.refusals.append(arrived)
                await self._run(command, argv)
            command.users |= {server} - {""}
            outcome = command.outcome
        self._forget_oldest()
        if isinstance(outcome, str):
            return outcome
        assert outcome is not None
        raise StartFailed(outcome.code, outcome.brief, can_retry=outcome.can_retry)

    def _forget_oldest(self) -> None:
        idle = (argv for argv, command in self._commands.items() if not command.turn.locked())
        for argv in list(islice(idle, max(0, len(self._commands) - _MOST))):
            del self._commands[argv]

    async def _run(self, command: _Command, argv: Argv) -> None:
        try:
            output = await self._output(argv)
            learn([output])
            command.outcome, command.had_value = output, True
        except StartFailed as exc:
            command.outcome = StartFailed(exc.code, exc.brief, can_retry=command.had_value)
        command.at, command.users = self._clock.now(), set()

    async def _output(self, argv: Argv) -> str:
        name = f'program "{argv[0]}"'
        try:
            program = commands.resolve(argv[0], self._env.get("PATH"), str(Path.home()), self._folder, self._env)
            with room_for_server():
                child = self._watchdog.spawn((program, *argv[1:]), self._env, self._folder, leaves_daemons=True)
        except StartFailed as exc:
            if exc.code == "command_not_found":
                raise StartFailed("lookup_failed", f"{name} was not found. {_ADVICE}") from None
            raise StartFailed("lookup_failed", f"{name} cannot be run: {exc.brief}") from None
        child.stdin.close()
        stdout, stderr = _Output(child.stdout, LARGEST + 1), _Output(child.stderr, _ERRORS, is_tail=True)
        try:
            code = await _ended(child, (stdout, stderr), self._seconds)
        finally:
            await self._close(child)
        errors = _last_words(bytes(stderr.data), bytes(stdout.data))
        if len(stdout.data) > LARGEST:
            raise StartFailed("lookup_failed", f"{name} writes more than {LARGEST} bytes, which are no value{errors}")
        if code is None:
            message = f"{name} gave no value within {self._seconds:g} s, and was ended{errors}"
            raise StartFailed("lookup_failed", message)
        if code:
            raise StartFailed("lookup_failed", f"{name} {describe_exit(code)}{errors}")
        try:
            text = re.sub(r"\r?\n\Z", "", stdout.data.decode())
        except UnicodeDecodeError:
            raise StartFailed("lookup_failed", f"{name} writes no UTF-8 text") from None
        if not text.strip():
            raise StartFailed("lookup_failed", f"{name} writes nothing to its standard output{errors}")
        if "\0" in text:
            raise StartFailed("lookup_failed", f"{name} writes a NUL, which no value can have")
        return text

    async def _close(self, child: Child) -> None:
        if child.returncode is None:
            await child.close(0.0, _GRACE)
            return
        self._watchdog.release(child)
        child.stdout.close()
        child.stderr.close()


class _Output:
    """The first `limit` bytes, with `is_tail` the last."""

    def __init__(self, pipe: IO[bytes], limit: int, *, is_tail: bool = False) -> None:
        self.data = bytearray()
        self._pipe = pipe
        self._limit = limit
        self._is_tail = is_tail
        set_blocking(pipe.fileno(), False)

    async def follow(self, full: Callable[[], None]) -> None:
        while True:
            await anyio.wait_readable(self._pipe)
            if not self.take():
                return
            if not self._is_tail and len(self.data) >= self._limit:
                full()
                return

    def take(self) -> bool:
        try:
            portion = os.read(self._pipe.fileno(), _PORTION)
        except BlockingIOError:
            return False
        self.data += portion
        if len(self.data) > self._limit:
            if self._is_tail:
                del self.data[: -self._limit]
            else:
                del self.data[self._limit :]
        return bool(portion)


async def _ended(child: Child, outputs: Sequence[_Output], seconds: float) -> int | None:
    """The exit code; None at a limit."""
    with anyio.move_on_after(seconds) as scope:
        async with anyio.create_task_group() as tasks:
            for output in outputs:
                tasks.start_soon(output.follow, scope.cancel)
            await child.wait()
            tasks.cancel_scope.cancel()
    for output in outputs:
        for _ in range(_ERRORS // 4096):
            if not output.take():
                break
    return None if scope.cancel_called else child.returncode


def _last_words(errors: bytes, output: bytes) -> str:
    text, value = errors.decode("utf-8", "replace").strip(), output.decode("utf-8", "replace")
    lines = {value.strip(), *(line.strip() for line in value.splitlines()[:_MOST])}
    tail = hide_tail(Mask({line for line in lines if line})(text), _SHOWN, "…") if text else ""
    return f" and says: {' | '.join(tail.splitlines())}" if tail else ""


async def outputs_once(argvs: Collection[Argv], env: Mapping[str, str], folder: str) -> dict[Argv, str | StartFailed]:
    """The output of each command, all run together."""
    outputs: dict[Argv, str | StartFailed] = {}
    clock = SystemClock()
    async with Watchdog(clock, may_adopt=False) as watchdog:
        reader = CommandOutputs(watchdog, clock, env, folder)

        async def read(argv: Argv) -> None:
            try:
                outputs[argv] = await reader.read(argv, "")
            except StartFailed as exc:
                outputs[argv] = exc

        async with anyio.create_task_group() as tasks:
            for argv in argvs:
                tasks.start_soon(read, argv)
    return outputs


def commands_of(name: str, server: ServerSettings) -> dict[CommandLookup, DataPath]:
    """A server's commands with the path of their first use."""
    paths: dict[CommandLookup, DataPath] = {}
    for key, parts in server.command_texts.items():
        for part in parts:
            if isinstance(part, tuple):
                paths.setdefault(part, ("servers", name, *key))
    return paths


def with_outputs(name: str, server: ServerSettings, outputs: Mapping[Lookup, str]) -> ServerSettings:
    """The server with outputs, masked from now on. Raises `StartFailed` for unsendable ones."""
    filled = server.filled(outputs)
    learn({*outputs.values(), *secrets_of_server(filled)})
    headers = {header: value.get_secret_value() for header, value in filled.headers.items()}
    bearer = filled.bearer.get_secret_value() if filled.bearer is not None else None
    for flaw in problems_of(filled.url, headers, bearer) if filled.url is not None else ():
        programs = {lookup[0]: None for lookup, path in commands_of(name, server).items() if path[2] == flaw.key}
        message = f"the output of program {', '.join(map(quoted, programs))} cannot be sent: {flaw.message}"
        raise StartFailed("lookup_failed", f"{path_text(('servers', name, flaw.key))}: {message}", can_retry=False)
    return filled
