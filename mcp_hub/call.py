"""The seam between calls and tool sources: a `Call` goes down, events go up through the channel it was handed."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol

import msgspec

from mcp_hub.errors import HubError, RpcError
from mcp_hub.events import CallEvent, Completed, Ending
from mcp_hub.protocol.capabilities import SUPERSET
from mcp_hub.protocol.shape.questions import ELICIT, can_answer
from mcp_hub.types import (
    HANDSHAKE,
    CallId,
    Era,
    JsonObject,
    Kind,
    PartialForm,
    RawJson,
    RawObject,
    Snapshot,
    Status,
    UpstreamStatus,
)

OF_REST: Final = "rest#"
"""The sessions of REST requests begin with it."""


class People(Protocol):
    """People at the hub who answer elicitations in place of clients that cannot be asked."""

    @property
    def are_there(self) -> bool:
        """Whether somebody is there to answer."""


class CallingClient(msgspec.Struct, eq=False):
    """A client, as far as its calls know it."""

    name: str

    def ended(self, at: float) -> None:
        """A call of it has ended, at this time in Unix seconds."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """One upstream request: `tools/call`, `prompts/get`, `resources/read` or `completion/complete`.

    `params` carry the upstream's own name or URI and everything else as the client sent it, without `_meta`;
    `meta` is the client's `_meta` without the reserved keys. `era`, `version` and `capabilities` are the caller's.
    `input_responses` and `request_state` belong to a retry that a modern server asked for.
    `is_program`: the caller is a program that can be asked anything, in whatever era it is put.
    `exported_uri`: the URI that the client read, where the upstream knows it by another. `exported_name`: the name or
    URI as the client sent it. `takes_events`: its caller reads events, not messages. `result_tokens`: the result is
    cut above this number, never for 0. `partials`: the form in which its client gets partial content as progress
    messages, if it does. `must_read`: it must not reach a tool that is not read-only. `people`
    answer in place of its client, whose working directory is `directory`. `roots_changes` counts the changes of its
    client's roots, of which its server hears before the call. `shows_paths`: its errors may name files of the hub's
    machine. `client` is the client that made it, which outlives the session; None for programs.
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
    takes_events: bool = False
    log_level: str | None = None
    exported_name: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="asked")
    input_responses: RawObject | None = None
    request_state: str | None = None
    result_tokens: int = 0
    partials: PartialForm | None = None
    is_program: bool = False
    must_read: bool = False
    people: People | None = None
    directory: str | None = None
    roots_changes: int = 0
    shows_paths: bool = False
    client: CallingClient | None = None

    @property
    def client_name(self) -> str:
        """The name that its client gives itself; empty if that is not known."""
        return self.client.name if self.client else "REST" if self.session.startswith(OF_REST) else ""

    def asks_client(self, method: str, params: RawJson) -> bool:
        """Whether a question of the call goes to its client; others are for `people`."""
        return self.people is None or can_answer(self.capabilities, self.version, method, params) is None

    def lack(self, method: str, params: RawJson) -> str | None:
        """Why nobody can be asked this; None if the client can be, or people who are there."""
        lack = can_answer(self.capabilities, self.version, method, params)
        is_for_people = method == ELICIT and self.people is not None and self.people.are_there
        return None if is_for_people else lack

    @property
    def answered(self) -> JsonObject:
        """The capabilities of whoever answers questions of a modern server: of the client, and of people.

        What it asks in a result reaches a modern client as it is, and so nobody else.
        """
        if self.era is not HANDSHAKE or self.people is None or not self.people.are_there:
            return self.capabilities
        return {**self.capabilities, "elicitation": SUPERSET["elicitation"]}

    @property
    def server_era(self) -> Era:
        """The era of the connection that the call goes to, if its server speaks both."""
        return HANDSHAKE if self.is_program else self.era


class CallEnded(RpcError):
    """The call on which a question was asked has ended before the answer."""


class Question(msgspec.Struct, frozen=True):
    """A question of an upstream to its caller, params as sent. `late` takes an answer that comes after its call."""

    method: str
    params: RawJson
    answered: Callable[[RawJson | RpcError], None]
    late: Callable[[RawJson | RpcError], None] | None = None


WaitReason = str | Callable[[], Collection[str]]
"""The reason of a wait, such as `server "a" to start`, or the sessions at the server whose calls have to end first."""


class Waits(Protocol):
    """Notes for people that a call waits, and for which reason; at most one wait at a time."""

    def begin_wait(self, reason: WaitReason) -> None:
        """From now on it waits."""

    def end_wait(self) -> None:
        """It does not wait any more. Idempotent."""


class CallChannel(Protocol):
    """Where an upstream puts what happens to one call. Endings are returned or raised, never sent.

    `stopping` is the ending that somebody else has chosen for the call, while its handler still runs.
    """

    stopping: Ending | None = None

    @property
    def times(self) -> Waits:
        """Where an upstream notes that the call waits, before it is sent."""

    def send(self, event: CallEvent) -> None:
        """Append an event; never blocks, never raises. After the call has ended it is counted and dropped."""

    def ask(self, question: Question) -> str:
        """Put a question to the caller; returns the key under which it can be withdrawn.

        `question.answered` is called exactly once: with the caller's result, or with the `RpcError` that stands for
        it (the caller's own error answer, nobody there to ask, the call ended, the question withdrawn).
        """

    def withdraw(self, key: str) -> None:
        """The upstream no longer wants the answer. Unknown keys are ignored."""

    def touch(self) -> None:
        """The upstream is at work on the call, though it has nothing to say. No news while the caller is asked."""

    def suspect(self) -> None:
        """An answer of the upstream belongs to no call. If it was meant for this one, nothing more will come for it."""

    def continuable(self, state: RawJson | None) -> None:
        """From now on another hub could continue the call by `Upstream.resume(…, state)`; None: no longer."""

    @property
    def survives(self) -> bool:
        """Whether the hub stops and another one can continue the call: then its upstream's work is not cancelled."""

    @property
    def is_overdue(self) -> bool:
        """Whether the call is being ended because it ran out of time: its upstream may hang."""

    async def until_stored(self, *, whole: bool) -> None:
        """Wait until what was sent so far is stored, if the call is kept at all; if `whole`, also how it ended."""

    async def drained(self) -> None:
        """Wait until readers have caught up enough to take more (a producer that can pause, does)."""


CallHandler = Callable[[Call, CallChannel], Awaitable[Completed]]
"""Runs one call to its result. Raises `RpcError` for an error answer; cancellation of the task cancels the call."""


Gate = Callable[[Call, Snapshot, Snapshot], None]
"""Looks at a call that is about to be sent. Raises `RpcError` if it must not be.

The first list is that in which changes are looked for; the second one is what the process that gets the call lists.
"""


class SentCall(Protocol):
    """A call whose request is written: it ends in place, or `finish` does the rest in a task."""

    def then(self, callback: Callable[[], object]) -> None:
        """Calls `callback` once, in place, when there is an answer or there will be none."""

    def result(self) -> Completed | None:
        """The result, if it is there and needs nothing else; None: use `finish`."""

    def leave(self) -> None:
        """The call ends in place with its result: its turn at the source is free."""

    def abandon(self) -> None:
        """Cancels the request at the source, and leaves."""

    async def finish(self) -> Completed:
        """The rest of `Upstream.call`. Raises as that does."""


class CallerConnection(msgspec.Struct, frozen=True):
    """The connection to a server that runs a caller's calls, where another one is listed for everybody.

    Updates of resources are noted under `topic` in place of the server's name. `lists` are what this caller is to see,
    None for the lists of everybody.
    """

    topic: str
    lists: Snapshot | None = None


class Upstream(Protocol):
    """Any tool source: a child process, a remote server, Python functions."""

    name: str

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        """Writes the request in place if the source is up, free and needs nothing else; None: use `call`.

        Raises `RpcError`: the call must not be sent.
        """

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """A `CallHandler`."""

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        """Continues a call by `state` from its last `continuable`. Raises as `call`; `HubRestarted` if it cannot be."""

    def status(self) -> UpstreamStatus: ...

    def snapshot(self) -> Snapshot | None:
        """The newest list; None if there never was one."""

    def apart(self, call: Call) -> CallerConnection | None:
        """The connection that runs calls of this caller, which it reads, lists and subscribes at, too.

        None for the listed one.
        """
        return None

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        """Reads the list of a kind again; None if its source announces changes, or lets it be kept for longer.

        A client is listed the kind, for the first time if it `is_new`. A list that is old, though its source could
        announce changes, is read again behind that.
        """
        return None

    def set_log_level(self, level: str) -> None:
        """Some client wants messages of `level` and above; a source without log levels ignores it."""

    def session_ended(self, session: str) -> None:
        """A handshake session is over; what was kept for it alone can go. Unknown ones are ignored."""

    async def subscribe(self, uri: str, call: Call) -> None:
        """Takes a reference at once, then waits until updates of the resource are noted in `Notices`.

        `uri` is the source's own, `call` is any one of the caller. Each of these, also one that fails or is cancelled,
        needs an `unsubscribe` with a call of the same session.
        Raises `RpcError`: the source's error, `MethodNotFound` if it has no subscriptions, `UpstreamUnavailable`.
        """

    def unsubscribe(self, uri: str, call: Call) -> None:
        """Gives a reference back; after the last one the source is unsubscribed as soon as possible."""


class StreamInfo(msgspec.Struct, frozen=True, gc=False):
    """A durable stream without its events. Times are Unix seconds.

    `owner` is the instance id of the hub process that appends; `first` and `last` number the events that are kept
    (`first` > 1: older ones were let go; `last` 0: none yet). `name` is what the client called: exported tool name or
    URI. `session` is the handshake session that started it, else "". `message` is the last progress message.
    `continuation` is what another hub needs to continue the call (JSON), `info` what the front wants to keep (JSON).
    `key` is the idempotency key and `digest` stands for the request that it was used for. `expires` is set at the end.
    """

    id: CallId
    principal: str
    owner: str
    server: str
    method: str
    name: str
    created: float
    updated: float
    epoch: int = 1
    status: Status = "working"
    first: int = 1
    last: int = 0
    session: str = ""
    ttl: float = 86400.0
    message: str | None = None
    continuation: bytes | None = None
    info: bytes | None = None
    key: str | None = None
    digest: str = ""
    expires: float | None = None

    @property
    def has_ended(self) -> bool:
        return self.status not in ("working", "input_required")


class StoredEvent(Protocol):
    """An event with its encoded line."""

    @property
    def line(self) -> bytes: ...
    @property
    def read(self) -> CallEvent: ...


class Reader(Protocol):
    """A place in the events of a call, behind event `cursor`. It holds no events, so being slow costs no queue.

    The events are those of the call's log, or those of its durable stream (`is_stored`); both have the same numbers.
    `has_more` can be taken now; what is stored and was not taken may come later (`is_behind`); nothing comes `at_end`.
    `failed` says why nothing more will come before the end. Behind `EventsGone` a reader can `skip`.
    """

    @property
    def cursor(self) -> int: ...
    @property
    def is_stored(self) -> bool: ...
    @property
    def failed(self) -> HubError | None: ...
    @property
    def has_more(self) -> bool: ...
    @property
    def is_behind(self) -> bool: ...
    @property
    def at_end(self) -> bool: ...

    def take(self, limit: int | None = None) -> list[CallEvent]:
        """The next events, `limit` of them."""

    def take_entries(self, limit: int | None = None) -> Sequence[StoredEvent]:
        """The same with their lines, which are empty where events are not stored."""

    def skip(self) -> int:
        """Continues behind events that are no longer kept; how many those were."""

    def close(self) -> None:
        """Stops following. Idempotent."""


class Early(msgspec.Struct, frozen=True):
    """The client gets another answer after so many seconds if the call still runs: a task, or the output so far."""

    after: float
    is_task: bool


class EarlyOutput(msgspec.Struct, frozen=True):
    """The stream of a call that continues without its request, up to event `cursor`; `text` is None for a task."""

    info: StreamInfo
    cursor: int = 0
    text: str | None = None


class Post(msgspec.Struct, frozen=True):
    """A post of a worker that executes a tool, for one call, as it came.

    A post without `epoch` and `seq` is the next one. `content` is short for one text delta; without it and `events` it
    is a sign of life. `result` and `error`, at most one of them, belong to `complete`.
    """

    epoch: int | None
    seq: int | None
    events: Sequence[RawJson] = ()
    content: str | None = None
    complete: bool = False
    result: RawJson | None = None
    error: RawJson | None = None
