"""One connection to a stdio server: the process, its pipes and the session."""

import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO, TYPE_CHECKING, Final

import anyio
import msgspec
from msgspec.structs import replace

from mcp_hub.aio import Turn
from mcp_hub.errors import StartFailed
from mcp_hub.globs import late
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.framing import UNREADABLE
from mcp_hub.types import LAST_OUTPUT, Cause, Era
from mcp_hub.upstreams.peer import negotiation
from mcp_hub.upstreams.peer.negotiation import PROBE_SECONDS, AnotherProcess, Terms
from mcp_hub.upstreams.peer.peer import Peer, PeerMessages
from mcp_hub.upstreams.peer.server_eras import ANY_ERA, EraWish, ServerEras
from mcp_hub.upstreams.peer.state import LAST_WORDS, Observer, not_settled
from mcp_hub.upstreams.process.child import Child, describe_exit, room_for_server
from mcp_hub.upstreams.process.watchdog import Watchdog
from mcp_hub.wire.files import unread
from mcp_hub.wire.server_pipe import ServerPipe

if TYPE_CHECKING:
    from mcp_hub.sandbox.server import SandboxedStart, ServerSandbox

log = get_logger(__name__)

_STDERR_LINE: Final = 2000
"""Characters kept of one stderr line."""
_STDERR_HEAD: Final = 1 << 18
"""Bytes of a line that are read: a long secret must be complete to be masked."""
_LAST_LINES: Final = 5.0
"""Seconds to read output after the exit: another process may still write."""
_GRACE_EOF: Final = 0.7
_GRACE_TERM: Final = 0.5
"""Seconds to obey end of file, then SIGTERM: the hub has to exit within 2 s."""
_LOOK: Final = 0.05
"""Seconds between two looks whether a process runs already."""
_LOOK_AT_FORM: Final = 0.5
"""Seconds between two checks of an incomplete message; if they are alike, no more is coming."""
_NOTHING_ASKED: Final = 4.0
"""The most seconds between two such checks while no request waits: many servers would take time for nothing."""
_FIRST_ANSWERS: Final = 60.0
_RULE: Final = "MCP over stdio is UTF-8 text with each message on one line. Change how the server writes"
_LOADED: Final = 10.0
"""Seconds after which a silent process counts as running, without knowledge of its reads."""
_WRITE_LIMIT: Final = 64 << 20
"""Bytes that may wait for a server which does not read its input."""
_DEAF: Final = 30.0
"""Seconds after which a server that reads nothing is restarted."""


TakeLines = Callable[[Sequence[bytes]], None]


class StdioSpec(msgspec.Struct, frozen=True):
    """The command and its session's options. `argv[0]` is absolute.

    `output` receives all lines of stderr. `apps`: announce that clients show apps. `is_spare`: the hub made the folder.
    """

    argv: Sequence[str]
    env: dict[str, str]
    cwd: str | None
    era: Era | None = None
    line_limit: int = 32 << 20
    stderr_lines: int = 200
    probe: float = PROBE_SECONDS
    output: TakeLines | None = None
    apps: bool = True
    sandbox: "ServerSandbox | None" = None
    is_spare: bool = False


@dataclass(slots=True)
class StdioConnection:
    """A child process and its session; a `Connection`. `make_spec` resolves the command."""

    name: str
    make_spec: Callable[[], StdioSpec | Awaitable[StdioSpec]]
    eras: ServerEras
    watchdog: Watchdog
    turn: Turn | None = None
    wish: EraWish = ANY_ERA
    spec: StdioSpec = field(init=False)
    stderr: deque[str] = field(default_factory=deque)
    child: Child | None = None
    peer: Peer | None = None
    lost_session = False  # the session is the process

    @property
    def notes(self) -> Sequence[str]:
        return self.spec.sandbox.notes if self.spec.sandbox is not None else ()

    def successor(self) -> None:
        """None: a process takes over no session."""

    @property
    def pid(self) -> int | None:
        return self.child.pid if self.child is not None else None

    @property
    def can_retry(self) -> bool:
        """False for a process that could not be started."""
        return self.child is not None

    async def open(self, tasks: anyio.abc.TaskGroup, observer: Observer | None = None) -> Peer:
        """Starts the process and settles the era."""
        spec = self.make_spec()
        self.spec = spec if isinstance(spec, StdioSpec) else await spec
        terms = await self.eras.terms(self.wish, self.spec.era)
        try:
            return await self._negotiated(tasks, terms, observer)
        except AnotherProcess as exc:
            if exc.is_spent:
                self.eras.guess(Era.HANDSHAKE)
            raise
        except StartFailed as exc:
            is_guess = bool(self.eras.guesses)
            self._forget_eras()
            if is_guess and Era.MODERN in self.eras.known_eras.speaks:
                raise AnotherProcess(*exc.cause) from None
            raise

    def _forget_eras(self) -> None:
        if not self.wish.is_only:
            self.eras.forget()

    async def _negotiated(self, tasks: anyio.abc.TaskGroup, terms: Terms, observer: Observer | None) -> Peer:
        start = await self._sandboxed()
        if start is None:
            return await self._started(tasks, terms, observer, None)
        async with start.first():
            return await self._started(tasks, terms, observer, start)

    async def _started(
        self, tasks: anyio.abc.TaskGroup, terms: Terms, observer: Observer | None, start: "SandboxedStart | None"
    ) -> Peer:
        limit, turn = self.spec.line_limit, self.turn

        def connect(messages: PeerMessages, peer: Peer) -> ServerPipe:
            return ServerPipe(messages, line_limit=limit, write_limit=_WRITE_LIMIT, patience=_DEAF, turn=turn)

        with room_for_server(), ExitStack() as until_opened:
            self.child = child = self._spawn(start)
            if start is not None:
                until_opened.callback(start.launch.close)
            stdin, stdout, stderr = child.hand_over()
            until_opened.callback(stderr.close)
            self.peer = peer = Peer(self.name, connect, not_settled(apps=self.spec.apps), observer)
            pipe = peer.wire
            assert isinstance(pipe, ServerPipe)
            await pipe.open(stdout, stdin)
            until_opened.pop_all()
        drained = anyio.Event()
        tasks.start_soon(self._read_stderr, stderr, drained)
        tasks.start_soon(self._watch, child, peer, pipe, drained)
        if start is not None:
            await start.begin(tasks)
        is_settled = anyio.Event()
        tasks.start_soon(self._watch_form, peer, pipe, is_settled)
        try:
            await negotiation.negotiate(peer, replace(terms, probe=self.spec.probe, alive=partial(_runs, pipe, stdin)))
        except AnotherProcess:
            raise
        except StartFailed as exc:
            raise type(exc)(*await self.last_words(exc.cause)) from None
        is_settled.set()
        return peer

    async def _sandboxed(self) -> "SandboxedStart | None":
        spec = self.spec
        if spec.sandbox is None:
            return None
        return await spec.sandbox.begin(spec.argv, spec.env, spec.cwd or os.sep, is_spare=spec.is_spare)

    def _spawn(self, start: "SandboxedStart | None") -> Child:
        spec = self.spec
        if start is None:
            return self.watchdog.spawn(spec.argv, spec.env, spec.cwd)
        with start.launch as launch:
            return self.watchdog.spawn(launch.argv, launch.env, spec.cwd, launch.descriptors)

    async def _watch(self, child: Child, peer: Peer, pipe: ServerPipe, drained: anyio.Event) -> None:
        """Ends the session after the exit, once the output is read."""
        returncode = await child.wait()
        code, reason = "crashed" if returncode else "ended", describe_exit(returncode)
        with anyio.move_on_after(_LAST_LINES):
            before = -1
            while pipe.bytes_read != before:
                before = pipe.bytes_read
                with anyio.move_on_after(LAST_WORDS):
                    await drained.wait()
                    await peer.ending.closed.wait()
                if peer.ending.closed.is_set():
                    break
        peer.ending.explain(Cause(code, self._with_output(reason)))
        pipe.close(reason, code)

    async def _watch_form(self, peer: Peer, pipe: ServerPipe, is_settled: anyio.Event) -> None:
        """Ends the session if nothing readable comes before the first response."""
        form: str | None = None
        size, pause = -1, _LOOK_AT_FORM
        with anyio.move_on_after(_FIRST_ANSWERS):
            while not pipe.is_closed:
                await anyio.sleep(pause)
                pause = _LOOK_AT_FORM if pipe.requests.pending else min(2 * pause, _NOTHING_ASKED)
                if not pipe.requests.pending or pipe.bytes_read != size:
                    form, size = None, pipe.bytes_read
                    continue
                framing, before = peer.callers.strays.framing, form
                form = framing if framing in UNREADABLE and not is_settled.is_set() else pipe.unfinished
                if form is not None and before == form:
                    peer.callers.strays.take_form(form)
                    reason = "nothing that it writes can be read"
                    peer.ending.explain(Cause("not_mcp", self._with_output(reason)))
                    pipe.close(reason, "not_mcp")

    async def _read_stderr(self, stderr: IO[bytes], drained: anyio.Event) -> None:
        self.stderr = deque(maxlen=self.spec.stderr_lines)
        output = self.spec.output or _dropped
        partial_line = b""
        try:
            while True:
                await anyio.wait_readable(stderr)
                try:
                    chunk = os.read(stderr.fileno(), 65536)
                except BlockingIOError:
                    continue
                if not chunk:
                    break
                *lines, partial_line = (partial_line + chunk).split(b"\n")
                output(lines)
                for line in lines[-self.spec.stderr_lines :]:
                    self._keep(line)
                partial_line = partial_line[:_STDERR_HEAD]
        finally:
            self._keep(partial_line)
            output([partial_line])
            stderr.close()
            drained.set()

    def _keep(self, line: bytes) -> None:
        text = hide_head(line.rstrip(), _STDERR_LINE)
        if text:
            log.debug("upstream_stderr", upstream=self.name, line=text)
            self.stderr.append(text)

    async def last_words(self, cause: Cause) -> Cause:
        """The cause with the last output; waits a moment for an exit code."""
        cause = await self._last_words(cause)
        return cause if self.spec.sandbox is None else await self.spec.sandbox.explained(cause)

    async def _last_words(self, cause: Cause) -> Cause:
        peer = self.peer
        if cause.code == "start_timeout":
            self._forget_eras()
        if peer is not None and (peer.ending.closed.is_set() or not peer.wire.can_send):
            await peer.ending.last_words()
            if peer.ending.explained.is_set():
                return peer.ending.cause or cause
        is_other = cause.code == "start_timeout" and peer is not None and bool(peer.callers.strays.lines)
        return Cause("not_mcp" if is_other else cause.code, self._with_output(cause.reason))

    def _with_output(self, reason: str) -> str:
        framing = self.peer.callers.strays.framing if self.peer is not None else None
        if framing is not None:
            reason = f"{reason}: it writes {framing}, but {_RULE}"
        return with_output(reason, [*(self.peer.callers.strays.lines if self.peer else ()), *self.stderr])

    async def close(self) -> None:
        """Ends the process group. Shielded and bounded."""
        if self.peer is not None:
            if self.peer.messages.is_interactive:
                self.eras.put_interactive()
            self.peer.wire.close()
        if self.child is not None:
            with suppress(ProcessLookupError):
                await self.child.close(_GRACE_EOF, _GRACE_TERM)


def _dropped(lines: Sequence[bytes]) -> None:
    """Nobody reads it."""


async def _runs(pipe: ServerPipe, stdin: IO[bytes]) -> None:
    """Returns once the process has read or written something."""
    highest, end = 0, anyio.current_time() + _LOADED
    while not pipe.bytes_read:
        await anyio.sleep(_LOOK)
        waiting = unread(stdin)
        if waiting is None:
            if anyio.current_time() >= end:
                return
        elif waiting < max(highest, 1):
            return
        else:
            highest = waiting


_SHOWN: Final = 5
"""Lines of output behind a reason."""
_FRAME: Final = " |+-\t"
"""Python draws these before the lines of an exception group."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_EXCEPTION: Final = late(
    r"(?:Uncaught )?[a-z_][\w.$]*(?:error|exception)(?: \[\w+\])?: .+"
    r"|(?:error|fatal|panic|Exception in thread \"[^\"]*\"|thread '[^']*' panicked at).*: .+"
    r"|npm (?:error|ERR!) code \w+",
    re.IGNORECASE,
)


def with_output(reason: str, lines: Sequence[str]) -> str:
    """The exception, the reason and the last lines of the output."""
    exception = exception_of(lines)
    head = reason if exception is None else f"{exception} ({reason})"
    return f"{head}{LAST_OUTPUT}{' | '.join(lines[-_SHOWN:])}" if lines else head


def exception_of(lines: Sequence[str]) -> str | None:
    """The last line that looks like an exception."""
    exception, traceback = None, None  # the depth of the traceback whose exception is still to come
    for line in lines:
        drawn = line.removeprefix("stdout: ")
        text, depth = drawn.strip(_FRAME), len(drawn) - len(drawn.lstrip(_FRAME))
        if text.endswith(_TRACEBACK):
            traceback = depth
        elif traceback is not None and text and depth <= traceback:
            exception, traceback = text, None
        elif traceback is None and _EXCEPTION.fullmatch(text):
            exception = text
    return exception
