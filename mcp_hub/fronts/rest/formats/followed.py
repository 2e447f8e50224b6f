"""The calls of one request: followed together, answered in order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import anyio
import msgspec
from msgspec import UNSET, Raw

from mcp_hub.aio import Bell
from mcp_hub.errors import HubError
from mcp_hub.formats.records import McpResult, ModelCall
from mcp_hub.formats.results import error_result
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.http.response import KEEP_ALIVE, HttpResponse
from mcp_hub.fronts.rest.follow import kind_of
from mcp_hub.fronts.rest.info import outcome
from mcp_hub.fronts.rest.problem import Problem, problem_for
from mcp_hub.hub import StreamHandle
from mcp_hub.protocol import sse
from mcp_hub.protocol.rest.calls import CallsAnswer, ModelCallState
from mcp_hub.types import JsonObject

Write = Callable[[Sequence[ModelCall], Mapping[str, McpResult]], list[JsonObject]]

_BATCH: Final = 256
"""Events of all calls that are written at once."""


class FollowedCall:
    """A call with a stream, or refused with a `problem`."""

    def __init__(self, call: ModelCall, stream: StreamHandle | None, problem: Problem | None) -> None:
        self.call = call
        self.stream = stream
        self.problem = problem
        self.cursor = 0
        self._following: Following | None = None
        self._ending: bytes | None = None

    @property
    def is_followed(self) -> bool:
        """Whether more events may come."""
        return self._following is not None

    def follow(self, bell: Bell) -> None:
        """Begins with the first event."""
        if self.stream is None:
            return
        self.cursor = self.stream.info.first - 1
        try:
            self._following = Following(self.stream, self.cursor, bell)
        except HubError as error:
            self.problem = problem_for(error)

    def next_lines(self, limit: int) -> list[bytes]:
        """The next events without waiting; an early end sets `problem`."""
        following = self._following
        if following is None:
            return []
        try:
            lines = following.next_lines(limit)
        except HubError as error:  # such as events that were let go
            self.problem = problem_for(error)
            self.close()
            return []
        self.cursor = following.cursor
        if following.closed:
            self._ending = lines[-1] if lines else None
            self.close()
        return lines

    def close(self) -> None:
        if self._following is not None:
            self._following.close()
            self._following = None

    async def result(self) -> McpResult | None:
        """The result or error; None while it continues."""
        stream = self.stream
        if stream is not None and stream.info.has_ended:
            try:
                ending = await stream.ending() if self._ending is None else self._ending
                result: McpResult = msgspec.json.decode(outcome(stream.id, ending))
            except HubError as error:
                self.problem = problem_for(error)
            else:
                self.problem = None
                return result
        elif stream is not None:
            return None
        return error_result(str(self.problem))

    def state(self) -> ModelCallState:
        """The call's state, for programs."""
        problem = UNSET if self.problem is None else Raw(self.problem.encoded())
        if self.stream is None:
            return ModelCallState(self.call.id, self.call.name, "refused", problem=problem)
        return ModelCallState(
            id=self.call.id, name=self.call.name, status=self.stream.info.status, stream=self.stream.id, problem=problem
        )


class FollowedCalls:
    """The calls of one request, to be closed. `write` makes messages of ended calls."""

    def __init__(self, calls: Sequence[FollowedCall], write: Write) -> None:
        self._calls = calls
        self._write = write
        self._bell = Bell()
        self._share = max(_BATCH // max(len(calls), 1), 1)
        for followed in calls:
            followed.follow(self._bell)

    @property
    def is_over(self) -> bool:
        return not any(followed.is_followed for followed in self._calls)

    @property
    def is_quiet(self) -> bool:
        """Whether each call has only start and ending."""
        return all(followed.cursor <= (1 if followed.is_followed else 2) for followed in self._calls)

    def close(self) -> None:
        """The calls continue."""
        for followed in self._calls:
            followed.close()
            if followed.stream is not None:
                followed.stream.let_go()

    async def lines(self, seconds: float) -> list[tuple[FollowedCall, list[bytes]]]:
        """The next events; empty after `seconds`, or when over."""
        until = anyio.current_time() + seconds
        while True:
            batches = [(followed, lines) for followed in self._calls if (lines := followed.next_lines(self._share))]
            if batches or self.is_over or not await self._bell.wait(max(until - anyio.current_time(), 0)):
                return batches

    async def answer(self) -> CallsAnswer:
        """Messages of ended calls, and every call's state."""
        results = {
            followed.call.id: result for followed in self._calls if (result := await followed.result()) is not None
        }
        ended = [followed.call for followed in self._calls if followed.call.id in results]
        messages = self._write(ended, results)
        return CallsAnswer(messages, [followed.state() for followed in self._calls])

    async def send(self, response: HttpResponse, lines: Iterable[tuple[FollowedCall, list[bytes]]] = ()) -> None:
        """Sends `lines`, taken last, and the rest of all streams. Raises `ClientGone`."""
        await response.start()
        reported = {followed for followed in self._calls if not followed.is_followed and followed.problem is not None}
        refused = b"".join(_problem(followed) for followed in self._calls if followed in reported)
        events = refused + _events(lines)
        while not self.is_over:
            await response.write(events or sse.COMMENT)
            events = _events(await self.lines(KEEP_ALIVE))
            for followed in self._calls:
                if followed.problem is not None and followed not in reported:
                    reported.add(followed)
                    events += _problem(followed)
        answer = await self.answer()
        await response.end(events + b"event: closed\ndata: %b\n\n" % msgspec.json.encode(answer))


def _events(lines: Iterable[tuple[FollowedCall, list[bytes]]]) -> bytes:
    parts = []
    for followed, call_lines in lines:
        assert followed.stream is not None
        label, stream = msgspec.json.encode(followed.call.id), followed.stream.id.encode()
        first = followed.cursor - len(call_lines) + 1
        for seq, line in enumerate(call_lines, first):
            head = b"id: %b:%d\n" % (stream, seq)
            parts.append(head + _event(kind_of(line), label, line))
    return b"".join(parts)


def _problem(followed: FollowedCall) -> bytes:
    assert followed.problem is not None
    return _event(b"problem", msgspec.json.encode(followed.call.id), followed.problem.encoded())


def _event(kind: bytes, call: bytes, line: bytes) -> bytes:
    return b'event: %b\ndata: {"call":%b,%b\n\n' % (kind, call, line[1:])
