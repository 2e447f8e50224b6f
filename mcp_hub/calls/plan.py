"""Settings of calls and durable streams; decisions before a call starts, and its states."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, Protocol

import msgspec

from mcp_hub.call import Call, CallChannel, CallHandler, MakeInfo, People, SentCall
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, Progressed
from mcp_hub.methods import may_write
from mcp_hub.types import RawJson

RetryClass = Literal["not_sent", "rate_limited", "unavailable", "lost", "timeout"]
"""`not_sent`; `rate_limited`: HTTP 429; `unavailable`: 503 with `Retry-After`; `lost`: broken connection or another
5xx; `timeout`: a silent server. After the last two the server may have acted."""

_PAUSES: Final[Mapping[RetryClass, tuple[float, ...]]] = MappingProxyType(
    {"not_sent": (0.25, 0.5), "rate_limited": (0.25, 0.5), "unavailable": (0.25, 0.5), "lost": (0.25, 0.5)}
)


class CallRules(msgspec.Struct, frozen=True):
    """One tool's rules. `task`: modern clients get a task if the call is slow, always, as the only way, or never.

    `orphan`: a call without client is cancelled, finished, or continued for so many seconds; None: as suits the tool.
    `idempotent`: equal calls may be joined and retried, by configuration, not by the tool's claim. `pauses`: seconds
    before the second and each further attempt, by class of failure; `has_chosen`: the classes were listed, `lost` for
    any call, `timeout` for safe ones. `keeps_state`: a `requestState` needs its present process. `by_session`: each
    session has a process.
    """

    task: Literal["auto", "always", "required", "never"] = "auto"
    orphan: Literal["cancel", "finish"] | float | None = None
    idempotent: bool = False
    pauses: Mapping[RetryClass, tuple[float, ...]] = _PAUSES
    has_chosen: bool = False
    keeps_state: bool = False
    by_session: bool = False


class StreamLimits(msgspec.Struct, frozen=True):
    """`detached` calls per principal, `followers` per stream, `retention` in seconds after the end."""

    detached: int = 64
    followers: int = 16
    retention: float = 86400.0


class TimeLimits(msgspec.Struct, frozen=True):
    """Seconds: `silence` of an upstream, `total` of a call, `answer` to a question. `setting` is the key of silence.

    `retries_silence`: a silent attempt may be followed by another one.
    """

    silence: float
    total: float
    setting: str = "timeout"
    answer: float = 600.0
    retries_silence: bool = False


class SessionRules:
    """Settings of all sessions; a new `epoch` renews what they derive. `task_after` in seconds."""

    __slots__ = ("epoch", "page_size", "people", "task_after")

    def __init__(self, page_size: int, task_after: float = 5.0, people: People | None = None) -> None:
        self.people = people
        self.page_size = page_size
        self.task_after = task_after
        self.epoch = 0

    def use(self, page_size: int, task_after: float, *, look_again: bool) -> None:
        """Changes settings; sessions derive theirs again if `look_again`."""
        self.page_size, self.task_after = page_size, task_after
        self.epoch += look_again


Truncate = Callable[[Call, Completed], Awaitable[Completed]]
"""Shortens a long result."""


CallState = Literal["waiting", "sent", "starting", "task", "ended"]
"""It waits for its turn in the registry; its answer is taken in place; its task is about to run; a handler runs."""


class ResumePoint(msgspec.Struct, frozen=True, gc=False):
    """Data for another hub to continue a call; `revoked`: its cancellation's reason.

    `is_firm`: stored as surely as an ending.
    """

    state: RawJson
    revoked: str | None = None
    is_firm: bool = False


class _Retries(Protocol):
    """`calls.attempts.Retries`."""

    def covers(self, call: Call, error: RpcError) -> bool: ...
    def pause(self, call: Call, error: RpcError, attempt: int, due: float, end: float) -> float | None: ...


class Sender(Protocol):
    """Sends calls, as an `Upstream`."""

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        """Writes the request in place if possible; None: use `call`. Raises `RpcError`."""

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """A `CallHandler`."""


class CallPlan(msgspec.Struct, frozen=True):
    """Decisions about a call before its start.

    `upstream` may begin it in place. `layers` wrap the finish of such a call, unless its result `passes`. `may_last`:
    it may become durable; `info` is for its stream. `resumption`, `progressed` and `events` belong to a call of another
    hub. `digest` is the stream's.
    """

    upstream: Sender | None = None
    layers: Callable[[CallHandler], CallHandler] | None = None
    passes: Callable[[Completed], bool] | None = None
    truncate: Truncate | None = None
    may_last: bool = True
    reads_only: Callable[[Call], bool] | None = None
    retries: _Retries | None = None
    info: MakeInfo | None = None
    resumption: ResumePoint | None = None
    progressed: Progressed | None = None
    events: int = 0
    digest: str = ""

    def is_read_only(self, call: Call) -> bool:
        return not may_write(call.method) or (self.reads_only is not None and self.reads_only(call))


WITHOUT_PLAN: Final = CallPlan()
