"""The seam between calls and tool sources: a `Call` goes down, events go up through the channel it was handed."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, Completed
from mcp_hub.types import CallId, Era, JsonObject, RawJson, RawObject, Snapshot, UpstreamStatus

__all__ = ["Call", "CallChannel", "CallHandler", "Gate", "Question", "Upstream"]


class Call(msgspec.Struct, frozen=True, gc=False):
    """One upstream request: `tools/call`, `prompts/get`, `resources/read` or `completion/complete`.

    `params` carry the upstream's own name or URI and everything else as the client sent it, without `_meta`;
    `meta` is the client's `_meta` without the reserved keys. `era`, `version` and `capabilities` are the caller's.
    `input_responses` and `request_state` belong to a retry that a modern server asked for.
    `exported_uri` is the URI that the client read, where the upstream knows it by another; `asked` is the name or URI
    as the client sent it. `result_tokens` are those above which its result is cut, 0 for never.
    """

    id: CallId
    upstream: str
    method: str
    params: RawObject
    meta: RawObject
    session: str
    principal: str
    era: Era
    capabilities: JsonObject
    version: str = ""
    exported_uri: str | None = None
    wants_progress: bool = False
    log_level: str | None = None
    asked: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    input_responses: RawObject | None = None
    request_state: str | None = None
    result_tokens: int = 0


class Question(msgspec.Struct, frozen=True):
    """What an upstream asks its caller, params as sent."""

    method: str
    params: RawJson
    answered: Callable[[RawJson | RpcError], None]


class CallChannel(Protocol):
    """Where an upstream puts what happens to one call. Endings are returned or raised, never sent."""

    def send(self, event: CallEvent) -> None:
        """Append an event; never blocks, never raises. After the call has ended it is counted and dropped."""
        ...

    def ask(self, question: Question) -> str:
        """Put a question to the caller; returns the key under which it can be withdrawn.

        `question.answered` is called exactly once: with the caller's result, or with the `RpcError` that stands for
        it (the caller's own error answer, nobody there to ask, the call ended, the question withdrawn).
        """
        ...

    def withdraw(self, key: str) -> None:
        """The upstream no longer wants the answer. Unknown keys are ignored."""
        ...

    def heard(self) -> None:
        """The upstream is at work on the call, though it has nothing to say. No news while the caller is asked."""
        ...

    def doubt(self) -> None:
        """The upstream has answered nobody: it may have meant the call, which is given little time to be heard of."""
        ...

    def continuable(self, how: RawJson | None) -> None:
        """From now on another hub could go on with the call by `Upstream.resume(…, how)`; None: no longer."""
        ...

    @property
    def is_left(self) -> bool:
        """Whether the hub stops and another one can go on with the call: then its upstream's work is not cancelled."""
        ...

    @property
    def is_overdue(self) -> bool:
        """Whether the call is being ended because it ran out of time: its upstream may hang."""
        ...

    async def kept(self, *, whole: bool) -> None:
        """Wait until what was sent so far is stored, if the call is kept at all; if `whole`, also how it ended."""
        ...

    async def drained(self) -> None:
        """Wait until readers have caught up enough to take more (a producer that can pause, does)."""
        ...


CallHandler = Callable[[Call, CallChannel], Awaitable[Completed]]
"""Runs one call to its result. Raises `RpcError` for an error answer; cancellation of the task cancels the call."""


Gate = Callable[[Call, Snapshot], None]
"""Looks at a call that is about to be sent to a process that lists this. Raises `RpcError` if it must not be."""


class Upstream(Protocol):
    """Any tool source: a child process, a remote server, Python functions."""

    name: str

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """A `CallHandler`."""
        ...

    async def resume(self, call: Call, channel: CallChannel, how: RawJson) -> Completed:
        """Goes on with a call that an earlier hub started and left, `how` being what its channel was told last.

        Raises `RpcError`, as `call` does; `HubRestarted` where nothing can be gone on with.
        """
        ...

    def status(self) -> UpstreamStatus: ...

    def snapshot(self) -> Snapshot | None:
        """What was last listed; None if it never was."""
        ...

    def set_log_level(self, level: str) -> None:
        """Some client wants messages of `level` and above; a source that cannot be told ignores it."""
        ...

    def session_ended(self, session: str) -> None:
        """A handshake session is over; what was kept for it alone can go. Unknown ones are ignored."""
        ...

    async def subscribe(self, uri: str) -> None:
        """Takes a reference at once, then waits until updates of the resource are noted in `Changes`.

        `uri` is the source's own. Each call, also one that fails or is cancelled, is made up for by an `unsubscribe`.
        Raises `RpcError`: the source's error, `MethodNotFound` if it has no subscriptions, `UpstreamUnavailable`.
        """
        ...

    def unsubscribe(self, uri: str) -> None:
        """Gives a reference back; after the last one the source is told when it can be."""
        ...
