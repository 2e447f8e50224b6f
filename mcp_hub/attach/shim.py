"""The shim relays whole lines between a client on stdin and stdout and its hub.

When the hub dies, it joins another one, which takes up the open requests; after three failures it starts the client's
own.
"""

import os
import select
import sys
import time

from mcp_hub.attach import hello
from mcp_hub.attach.join import NotJoined
from mcp_hub.attach.open_requests import UnansweredRequests, answer_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_hub.attach.join import HubPipes
    from mcp_hub.attach.open_requests import Id

_PORTION = 1 << 16
"""Bytes read at a time: for many more, each read allocates memory of the system."""
_WAITING = 1 << 20
"""Bytes that may wait for a hub that does not read; then the client waits, too."""
_LONGEST = 1 << 26
"""Bytes of an incomplete line; the hub's limit is half of that by default."""
_USUAL = (True, False)
"""Lines of the client are read, and none waits."""
_END = ord("\n")
_NEXT_CONTROL = b"\n" + hello.CONTROL
_TRIES = 3
_UNAVAILABLE = 3
_SHORT = 10.0
"""Seconds: a hub that is lost sooner counts as a failure."""
_PAUSES = (0.0, 0.2, 1.0)


class Shim:
    """One client. `join` joins a hub with these streams; `private` starts the client's own."""

    def __init__(
        self,
        pipes: "HubPipes",
        join: "Callable[[str], HubPipes]",
        private: "Callable[[], HubPipes] | None",
        warn: "Callable[[str], None]",
        client: tuple[int, int] = (0, 1),
    ) -> None:
        self._join = join
        self._private = private
        self._warn = warn
        self._read, self._write = client
        self._pending = UnansweredRequests()
        self._from_client = _Lines()
        self._from_hub = _Lines()
        self._state = _State()
        self._use(pipes, set())

    def run(self) -> None:
        """Returns when the client or, after it, the hub has closed the connection. Raises `OSError` of stdout."""
        state = self._state
        while True:
            if state.pipes is None:
                if not self._wait_for_client():
                    return
                self._rejoin()
            assert state.pipes is not None
            if state.waiting or state.polled != _USUAL:
                state.poll_for(self._read, self._write)
            is_usual = state.polled == _USUAL and not state.expected
            if not (self._pass_on(state.pipes) if is_usual else self._take_what_is_there()):
                return

    def _pass_on(self, hub: "HubPipes") -> bool:
        """One function, because caches are cold after a sleep."""
        poll, client, read, write, pending = self._state.poll, self._read, os.read, os.write, self._pending
        while True:
            for file, _ in poll():
                data = read(file, _PORTION)
                if file == client:
                    if not data or data[-1] != _END or self._from_client.size:
                        self._take_from_client(data)
                        return True
                    try:
                        sent = write(hub.write, data)
                    except OSError:
                        self._ask(data)
                        return True
                    pending.asked(data)
                    if sent < len(data):
                        self._state.waiting.extend(data[sent:])
                        return True
                elif not data or data[-1] != _END or self._from_hub.size or data.find(hello.CONTROL) >= 0:
                    return self._take_from_hub(data)
                else:
                    pending.answered(data)
                    sent = write(self._write, data)
                    if sent < len(data):
                        self._tell(data[sent:])

    def _take_what_is_there(self) -> bool:
        """False once the connection has ended."""
        state = self._state
        for file, _ in state.poll():
            if file == self._read:
                self._take_from_client(os.read(file, _PORTION))
            elif file == self._write:
                return False  # the client is gone: nobody reads the answers
            elif state.pipes is None:
                break  # it was lost
            elif file == state.pipes.write:
                self._flush()
            elif not self._take_from_hub(os.read(file, _PORTION)):
                return False
        return True

    # -- the client --------------------------------------------------------------------------------------------------

    def _take_from_client(self, data: bytes) -> None:
        if not data:
            if self._from_client.size:  # its last line, which it has not ended
                self._ask(self._from_client.whole(b"\n"))
            self._state.end()
            self._flush()
        elif lines := self._from_client.whole(data):
            self._ask(lines)

    def _ask(self, lines: bytes) -> None:
        if self._has_sent(lines):
            self._pending.asked(lines)
        else:
            self._pending.keep(lines)

    def _wait_for_client(self) -> bool:
        """Waits for a line, unless requests are open."""
        if sys.platform == "win32":
            raise NotImplementedError
        if self._state.has_ended:
            return self._pending.is_open or self._pending.has_kept  # it asked before it closed its side
        if self._state.is_stopping and not self._pending.is_open:
            poll = select.poll()
            poll.register(self._read, select.POLLIN)
            poll.poll()
            self._take_from_client(os.read(self._read, _PORTION))
            return not self._state.has_ended
        return True

    def _tell(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._write, data) :]

    # -- the hub -----------------------------------------------------------------------------------------------------

    def _has_sent(self, data: bytes) -> bool:
        """Sends data; False if the hub gets none of it."""
        state = self._state
        if state.pipes is None:
            return False
        if not state.waiting:
            try:
                data = data[os.write(state.pipes.write, data) :]
            except BlockingIOError:
                pass
            except OSError:
                return False  # it is gone, which is read next
        if data:
            state.waiting.extend(data)
        return True

    def _flush(self) -> None:
        state = self._state
        if state.pipes is None:
            return
        try:
            while state.waiting:
                del state.waiting[: os.write(state.pipes.write, state.waiting)]
        except BlockingIOError:
            return
        except OSError:
            state.waiting.clear()
            return
        if state.has_ended:
            state.shut()

    def _take_from_hub(self, data: bytes) -> bool:
        """False once both sides have closed."""
        if not data:
            self._state.lose()
            return not self._state.has_shut
        lines = self._from_hub.whole(data)
        if has_control(lines) or self._state.expected:
            lines = b"".join(line for line in lines.splitlines(keepends=True) if self._is_for_client(line))
        if lines:
            self._pending.answered(lines)
            self._tell(lines)
        return True

    def _is_for_client(self, line: bytes) -> bool:
        """False for control lines and repeated responses."""
        if line.startswith(hello.STREAM):
            self._pending.runs_as(line)
        elif line == hello.STOPPING:
            self._state.stop()
        if line.startswith(hello.CONTROL):
            return False
        if self._state.expected and (key := answer_id(line)) in self._state.expected and key is not None:
            self._state.expected.discard(key)
            return False
        return True

    # -- another hub -------------------------------------------------------------------------------------------------

    def _use(self, pipes: "HubPipes", expected: "set[Id]") -> None:
        self._state.begin(pipes, expected)
        self._from_hub = _Lines()

    def _rejoin(self) -> None:
        if self._state.losses > _TRIES:
            self._warn("the client's own hub has ended, too. Look for the reason with: mcp-hub doctor")
            raise SystemExit(_UNAVAILABLE)
        streams = self._pending.streams()
        for pause in _PAUSES[min(self._state.losses, _TRIES) :]:
            time.sleep(pause)
            self._state.fail()
            try:
                pipes = self._join(streams)
            except NotJoined as problem:
                self._warn(str(problem))
                continue
            self._resume(pipes, takes_streams=pipes.fields.get("resumes") == "1")
            return
        if self._private is None:
            self._warn("the background hub ended three times in a row [not_attached]")
            raise SystemExit(_UNAVAILABLE)
        self._warn("the client gets a hub of its own")
        self._state.fail()
        self._resume(self._private())

    def _resume(self, pipes: "HubPipes", *, takes_streams: bool = False) -> None:
        again = self._pending.again(takes_streams)
        self._use(pipes, again.known)
        self._tell(b"".join(again.errors))
        self._has_sent(b"".join(again.lines))
        unsent = self._pending.kept()
        self._ask(unsent)
        self._flush()


def has_control(lines: bytes) -> bool:
    return lines.startswith(hello.CONTROL) or lines.find(_NEXT_CONTROL) >= 0


class _Lines:
    """Cuts input into whole lines; keeps `size` bytes of an incomplete one."""

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def whole(self, data: bytes) -> bytes:
        end = data.rfind(b"\n") + 1
        if not end and self.size + len(data) <= _LONGEST:
            self._parts.append(data)
            self.size += len(data)
            return b""
        end = end or len(data)  # longer than any line may be: the hub says so
        if self._parts or end < len(data):
            self._parts.append(data[:end])
            lines = b"".join(self._parts)
            self._parts = [data[end:]] if end < len(data) else []
            self.size = len(data) - end
            return lines
        return data


def _empty_poll() -> "Callable[[], list[tuple[int, int]]]":
    if sys.platform == "win32":
        raise NotImplementedError
    return select.poll().poll


class _State:
    """The connection to the current hub. `losses` counts early losses in a row."""

    __slots__ = (
        "has_ended",
        "has_shut",
        "is_stopping",
        "expected",
        "losses",
        "pipes",
        "poll",
        "polled",
        "since",
        "waiting",
    )

    def __init__(self) -> None:
        self.pipes: HubPipes | None = None
        self.has_ended = False
        self.has_shut = False
        self.is_stopping = False
        self.losses = 0
        self.since = 0.0
        self.expected: set[Id] = set()
        self.waiting = bytearray()
        self.poll = _empty_poll()
        self.polled: tuple[bool, bool] | None = None

    def begin(self, pipes: "HubPipes", expected: "set[Id]") -> None:
        """Begins a connection. The client already has the `expected` responses."""
        self.pipes, self.is_stopping, self.polled, self.expected = pipes, False, None, expected
        self.since = time.monotonic()
        self.waiting.clear()

    def end(self) -> None:
        self.has_ended, self.polled = True, None

    def shut(self) -> None:
        self.has_shut, self.polled = True, None
        if self.pipes is not None:
            self.pipes.end()

    def stop(self) -> None:
        self.is_stopping = True

    def fail(self) -> None:
        self.losses += 1

    def lose(self) -> None:
        if self.pipes is not None:
            self.pipes.close()
        self.pipes = None
        if time.monotonic() - self.since > _SHORT or self.is_stopping:
            self.losses = 0

    def poll_for(self, client: int, output: int) -> None:
        """Polls `output` once the client's input has ended."""
        if sys.platform == "win32":
            raise NotImplementedError
        reads, writes = not self.has_ended and len(self.waiting) < _WAITING, bool(self.waiting)
        if (reads, writes) != self.polled:
            assert self.pipes is not None
            poll = select.poll()
            poll.register(self.pipes.read, select.POLLIN)
            if writes:
                poll.register(self.pipes.write, select.POLLOUT)
            if reads:
                poll.register(client, select.POLLIN)
            if self.has_ended:
                poll.register(output, 0)
            self.poll, self.polled = poll.poll, (reads, writes)
