"""The seam between calls and tool sources: a `Call` goes down, events come back through its channel."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec

from mcp_hub.errors import HubError, RpcError, method_not_found
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

LOCAL_PRINCIPAL: Final = "local"
"""The principal of all clients without a token."""
OF_REST: Final = "rest#"
"""Begins the sessions of REST requests."""


People = Callable[[], bool]
"""Whether somebody is there to answer elicitations for clients that cannot."""


class CallingClient(msgspec.Struct, eq=False):
    """The client of a call."""

    name: str

    def ended(self, at: float) -> None:
        """Notes the end of a call, in Unix seconds."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """One upstream request: `tools/call`, `prompts/get`, `resources/read`, `completion/complete`, one passed through.

    `params` have the upstream's own name or URI and no `_meta`; `meta` is the client's, without reserved keys.
    `exported_name` and `exported_uri` are the client's. `input_responses` and `request_state` belong to a retry for a
    modern server. `result_tokens` bounds the result; 0: no bound. `path` projects it. `must_read`: only read-only tools
    are allowed. `roots_changes` counts changes of the client's roots. `shows_paths`: errors may name local files.
    `client` outlives the session. `parent`: the call of the script that makes this one. `profile` is the caller's.
    `claims`: those of its token that rules name, as JSON. `seen_hash`: that of the definition that a person allowed.
    `people_only`: people answer for the client.
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
    path: str | None = None
    partials: PartialForm | None = None
    is_program: bool = False
    must_read: bool = False
    people: People | None = None
    directory: str | None = None
    roots_changes: int = 0
    shows_paths: bool = False
    client: CallingClient | None = None
    parent: CallId | None = None
    profile: str | None = None
    claims: str = ""
    seen_hash: str | None = None
    people_only: bool = False
    is_notice: bool = False  # a notification

    @property
    def client_name(self) -> str:
        return self.client.name if self.client else "REST" if self.session.startswith(OF_REST) else ""

    def asks_client(self, method: str, params: RawJson) -> bool:
        return self.people is None or can_answer(self.capabilities, self.version, method, params) is None

    def lack(self, method: str, params: RawJson) -> str | None:
        """Why nobody can answer this question, or None."""
        is_for_people = method == ELICIT and self.people is not None and self.people()
        return None if is_for_people else can_answer(self.capabilities, self.version, method, params)

    @property
    def answered(self) -> JsonObject:
        """Capabilities for a modern server: the client's, and a handshake client's `people`."""
        if self.era is not HANDSHAKE or self.people is None or not self.people():
            return self.capabilities
        return {**self.capabilities, "elicitation": SUPERSET["elicitation"]}

    @property
    def server_era(self) -> Era:
        """The era for a server that speaks both."""
        return HANDSHAKE if self.is_program else self.era


class CallEnded(RpcError):
    """The call ended before its question was answered."""


class Question(msgspec.Struct, frozen=True):
    """An upstream's question, params as sent. `late` takes an answer after the call's end."""

    method: str
    params: RawJson
    answered: Callable[[RawJson | RpcError], None]
    late: Callable[[RawJson | RpcError], None] | None = None


WaitReason = str | Callable[[], Collection[str]]
"""A reason such as `server "a" to start`, or the sessions whose calls have to end first."""
Heard = Callable[[str, RawObject], None]


class Times(Protocol):
    """Takes a call's waits, one at a time, and its upstream's signs."""

    @property
    def has_lapsed(self) -> bool:
        """Whether the upstream was silent for too long, so that this attempt of the call is cancelled."""

    def begin_wait(self, reason: WaitReason) -> None:
        """Begins a wait before the call is sent."""

    def end_wait(self) -> None:
        """Ends the wait. Idempotent."""

    def put_off(self, seconds: float) -> AbstractContextManager[None]: ...
    def touch(self) -> None:
        """The upstream works on the call. Ignored while the caller is asked."""

    def suspect(self) -> None:
        """The upstream answered no call, perhaps this one."""


class Questions(Protocol):
    """The open questions of a call."""

    @property
    def count(self) -> int:
        """All that were asked, answered ones included."""

    def withdraw(self, key: str) -> None:
        """Withdraws a question. Unknown keys are ignored."""


class CallChannel(Protocol):
    """Takes the events of one call from its upstream. Endings are returned or raised, never sent.

    `stopping`: the ending already chosen for a call whose handler still runs.
    """

    stopping: Ending | None = None

    @property
    def times(self) -> Times: ...
    @property
    def questions(self) -> Questions: ...

    def send(self, event: CallEvent) -> None:
        """Appends an event; never blocks or raises. Dropped after the end."""

    def ask(self, question: Question) -> str:
        """Asks the caller; returns the key. `answered` is called exactly once, with the result or an `RpcError`."""

    def continuable(self, state: RawJson | None, *, is_firm: bool = False, is_quiet: bool = False) -> None:
        """Another hub can continue by `Upstream.resume` with this state; None: no longer.

        `is_firm`: stored as surely as an ending. `is_quiet`: stored once something else makes the call durable.
        """

    @property
    def survives(self) -> bool:
        """Whether another hub continues the call: do not cancel its work."""

    async def until_stored(self, *, whole: bool) -> None:
        """Waits until events so far are stored, if durable; `whole`: also the ending."""

    async def drained(self) -> None:
        """Waits until readers can take more."""


CallHandler = Callable[[Call, CallChannel], Awaitable[Completed]]
"""Runs one call. Raises `RpcError`; cancelling the task cancels the call."""


class Gate(Protocol):
    """Checks calls before they are sent.

    `approved` has, by server, the list whose tools may all be called; calls that must only read are checked anyway.
    """

    @property
    def approved(self) -> Mapping[str, Snapshot]: ...

    def __call__(self, call: Call, compared: Snapshot, listed: Snapshot) -> None:
        """Raises `RpcError`. `compared` is searched for changes, `listed` is the process's own."""


class SentCall(Protocol):
    """A call whose request is written."""

    def then(self, callback: Callable[[], object]) -> None:
        """Calls `callback` once, in place, at the answer or its loss."""

    def result(self) -> Completed | None:
        """A result that needs no more work; None: use `finish`."""

    def leave(self) -> None:
        """Frees the call's turn after `result`."""

    def abandon(self) -> None:
        """Cancels the request and frees its turn."""

    async def finish(self) -> Completed:
        """Completes the call. Raises as `Upstream.call`."""


class CallerConnection(msgspec.Struct, frozen=True):
    """A caller's own connection to a server.

    Resource updates are noted under `topic`. `lists` None: the shared ones. `arrival` waits for lists on their way.
    Unless it `is_open`, changes of the account at other hubs are not seen.
    """

    topic: str
    lists: Snapshot | None = None
    arrival: Callable[[], Awaitable[None]] | None = None
    is_open: bool = True


class Upstream(Protocol):
    """A tool source: a child process, a remote server, Python functions."""

    name: str

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        """Writes the request in place if possible; None: use `call`. Raises `RpcError`."""

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """A `CallHandler`."""

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        """Continues a call from `state`. Raises as `call`, and `HubRestarted` if it cannot."""

    def status(self) -> UpstreamStatus: ...

    def snapshot(self) -> Snapshot | None:
        """The newest lists; None before the first."""

    def apart(self, call: Call) -> CallerConnection | None:
        """The connection of this caller's own; None: the shared one."""
        return None

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        """A function that reads an outdated list again; None: nothing to wait for.

        `is_new`: a client's first list of the kind.
        """
        return None

    def set_log_level(self, level: str) -> None:
        """Some client wants log messages from `level` on."""

    def session_ended(self, session: str) -> None:
        """Frees what belongs to a handshake session."""

    async def subscribe(self, uri: str, call: Call) -> None:
        """Adds a reference at once, waits until the source watches the resource.

        Each call, even a failed one, needs an `unsubscribe` from its session. Raises `RpcError`, `method_not_found`
        without subscriptions, `UpstreamUnavailable`.
        """

    def unsubscribe(self, uri: str, call: Call) -> None:
        """Removes a reference; the last one unsubscribes at the source."""

    async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
        """Sends a request about events; `heard` gets its notifications. Raises `RpcError`."""
        raise method_not_found(f'server "{self.name}" does not have events.')


MakeInfo = Callable[[Call], bytes | None]
"""Makes a front's part of the durable stream (`StreamInfo.info`)."""


class StreamInfo(msgspec.Struct, frozen=True, gc=False):
    """A durable stream without its events. Times are Unix seconds.

    `owner` is the appending process. Events `first` to `last` are stored; `last` 0: none yet. `name` is the called tool
    or URI. `continuation` lets another hub continue the call, `info` is the front's (both JSON). `key` is the
    idempotency key of the request `digest`.
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
    """Reads a call's events behind event `cursor`, without a queue.

    `has_more`: `take` has events; `is_behind`: stored ones follow; `at_end`: none follow. `failed`: why no more come.
    After `EventsGone`, use `skip`.
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
        """The next events, at most `limit`."""

    def take_entries(self, limit: int | None = None) -> Sequence[StoredEvent]:
        """The next events with lines, empty if not stored."""

    def skip(self) -> int:
        """Skips events that are gone; their number."""

    def close(self) -> None:
        """Stops following. Idempotent."""


class Early(msgspec.Struct, frozen=True):
    """An earlier answer after so many seconds: a task, or the output so far."""

    after: float
    is_task: bool


EarlyOutput = tuple[StreamInfo, int, str | None]
"""A continuing call's stream, a cursor, and the output up to it; None for a task."""
