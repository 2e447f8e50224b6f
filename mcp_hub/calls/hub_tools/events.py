"""`hub_events`: events of servers for models whose clients do not know them. A caller's mistake is a result.

A wait begins behind a cursor, which each answer has: nothing is missed. Another hub continues a task's wait from where
it began.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import anyio
import msgspec
from msgspec import Raw

from mcp_hub.call import Call, CallChannel, CallHandler
from mcp_hub.clock import wall_time
from mcp_hub.errors import InvalidParams, RpcError, StoreError
from mcp_hub.events import Completed, Progressed
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, one_line
from mcp_hub.protocol.shape.occurrences import EventParams, delivered, event_params
from mcp_hub.types import RawJson, RawObject, plural

if TYPE_CHECKING:
    from mcp_hub.calls.feeds.reading import FeedReader

EVENTS: Final = "hub_events"

_MOST_SUBSCRIPTIONS: Final = 16
"""Subscriptions of one session."""
_MOST: Final = 50
_MOST_BYTES: Final = 64 << 10
"""Occurrences of an answer, and their bytes; the first one is there in any case."""
_REASON: Final = 300
"""Characters of a server's reason."""


class _Source(NamedTuple):
    types: Callable[[str | None], Awaitable[str]]
    check: Callable[[str, "FeedReader"], object]
    open: Callable[[EventParams], Awaitable["FeedReader"]]
    public: Callable[[RpcError], RpcError]


class _Arguments(msgspec.Struct):
    action: Literal["list", "subscribe", "wait"] | None = None
    name: str | None = None
    arguments: Raw = Raw(b"{}")
    after: str | None = None


class _Wait(msgspec.Struct, frozen=True):
    """A wait that another hub continues: `until` in Unix seconds, and its `seconds` in all."""

    events: tuple[EventParams, ...]
    until: float
    seconds: float


class _Subscription:
    """One of a session: its open reader keeps the feed running, `params` have the cursor behind what was answered."""

    def __init__(self, params: EventParams, reader: "FeedReader") -> None:
        self.params = params
        self.reader = reader


Subscriptions = dict[str, dict[bytes, _Subscription]]
"""Subscriptions by session, until its end."""


class _Session(NamedTuple):
    """`subscriptions` None: the session ends with its request."""

    id: str
    subscriptions: Subscriptions | None

    @property
    def present(self) -> dict[bytes, _Subscription]:
        return {} if self.subscriptions is None else self.subscriptions.get(self.id, {})


def handler(
    session: str, subscriptions: Subscriptions | None, patience: float, *,
    types: Callable[[str | None], Awaitable[str]], check: Callable[[str, "FeedReader"], object],
    open: Callable[[EventParams], Awaitable["FeedReader"]], public: Callable[[RpcError], RpcError],
    state: RawJson | None = None,
) -> CallHandler:  # fmt: skip
    """For a session, which may end with its request (`subscriptions` None); a wait takes at most `patience` seconds.

    `state`: another hub's wait, which is continued. Raises `msgspec.DecodeError` if it cannot be read.

    `types` returns the text of the list, or of one type; `check` raises `RpcError` for a reader that the session may
    not have any more; `open` raises as `EventPort.open`; `public` returns an error as the caller may see it.
    """
    wait = None if state is None else msgspec.json.decode(state, type=_Wait)
    return partial(_answered, _Source(types, check, open, public), _Session(session, subscriptions), patience, wait)


def end(session: str, subscriptions: Subscriptions) -> None:
    """Ends the subscriptions of a session. Idempotent."""
    for subscription in subscriptions.pop(session, {}).values():
        subscription.reader.close()


async def _answered(
    source: _Source, session: _Session, patience: float, wait: _Wait | None, call: Call, channel: CallChannel
) -> Completed:
    try:
        arguments = _arguments(call)
        action = arguments.action or ("list" if arguments.name is None else "wait")
        if action == "list":
            return Completed.of(await source.types(arguments.name))
        if action == "subscribe":
            return await _subscribed(source, session, _params(arguments))
        if wait is None:
            wait = _Wait(tuple(_chosen(session, arguments)), wall_time() + patience, patience)
        follower = _Follower(source, wait)
        await follower.follow(channel)
        for params in follower.positions:  # behind which waits without a cursor continue
            if (subscription := session.present.get(_key(params))) is not None:
                subscription.params = params
        return Completed.of(follower.text())
    except (StoreError, RpcError) as problem:
        return _failed(problem)


def _failed(problem: StoreError | RpcError) -> Completed:
    reason = problem.public if isinstance(problem, StoreError) else hide_head(problem.message, _REASON)
    return Completed.of(f"{EVENTS}: {reason}", is_error=True)


async def _subscribed(source: _Source, session: _Session, params: EventParams) -> Completed:
    subscriptions: dict[bytes, _Subscription] = {}
    if session.subscriptions is not None:
        subscriptions = session.subscriptions.setdefault(session.id, subscriptions)
    key, reader = _key(params), await source.open(params)
    params = msgspec.structs.replace(params, cursor=reader.cursor)
    if session.present is not subscriptions:  # it ends with its request, or has ended meanwhile
        reader.close()
    elif key not in subscriptions and len(subscriptions) >= _MOST_SUBSCRIPTIONS:
        reader.close()
        raise InvalidParams(f"this session has {_MOST_SUBSCRIPTIONS} subscriptions, the most that one may have")
    else:
        if (earlier := subscriptions.pop(key, None)) is not None:
            earlier.reader.close()
        subscriptions[key] = _Subscription(params, reader)
    return Completed.of(f"Subscribed to {params.name}. {_next(params)}")


def _chosen(session: _Session, arguments: _Arguments) -> Sequence[EventParams]:
    """The session's continue: all without a name, one without a cursor."""
    if arguments.name is None:
        if not session.present:
            raise InvalidParams("there is no subscription of this session: give a name, and `after` to continue")
        return [subscription.params for subscription in session.present.values()]
    params = _params(arguments)
    continued = session.present.get(_key(params))
    return [params if continued is None or params.cursor is not None else continued.params]


class _Follower:
    """Reads several subscriptions until one of them has something."""

    def __init__(self, source: _Source, wait: _Wait) -> None:
        self._source = source
        self._wait = wait
        self._subscribed = wait.events
        self._readers: list[FeedReader] = []
        self._lines: list[str] = []
        self._count = 0
        self._size = 0

    async def follow(self, channel: CallChannel) -> None:
        """Until the wait is over. Raises `RpcError` if a subscription is over or cannot be opened, `StoreError`."""
        try:
            with anyio.move_on_after(max(0.0, self._wait.until - wall_time())):
                await self._follow(channel)
        finally:
            for reader in self._readers:
                reader.close()

    async def _follow(self, channel: CallChannel) -> None:
        for params in self._subscribed:
            self._readers.append(await self._source.open(params))
        state = msgspec.json.encode(msgspec.structs.replace(self._wait, events=tuple(self.positions)))
        channel.continuable(Raw(state), is_quiet=True)
        names = ", ".join(dict.fromkeys(params.name for params in self._subscribed))
        message = Raw(object_bytes(f"waiting for {hide_head(names, _REASON)}"))
        channel.send(Progressed(0, members={"message": message}))
        while not self._lines:
            for params, reader in zip(self._subscribed, self._readers, strict=True):
                self._source.check(params.name, reader)
                await self._read(params, reader)
                if reader.ended is not None and not self._lines:
                    raise reader.ended
            if not self._lines:
                await self._news()

    async def _read(self, params: EventParams, reader: "FeedReader") -> None:
        while self._count < _MOST and self._size < _MOST_BYTES:
            occurrences, is_truncated = await reader.read(1)
            if is_truncated:
                self._lines.append(f"({params.name}: events may be missing here.)")
            if not occurrences:
                break
            line = _line(occurrences[0][0], params.name)
            self._lines.append(line)
            self._count += 1
            self._size += len(line.encode())

    async def _news(self) -> None:
        async with anyio.create_task_group() as tasks:
            for reader in self._readers:
                tasks.start_soon(_woken, reader, tasks.cancel_scope)

    @property
    def positions(self) -> list[EventParams]:
        cursors = [reader.cursor for reader in self._readers]
        cursors += [params.cursor or "" for params in self._subscribed[len(cursors) :]]
        return [
            msgspec.structs.replace(params, cursor=cursor or None)
            for params, cursor in zip(self._subscribed, cursors, strict=True)
        ]

    def text(self) -> str:
        """The way to continue comes first: a long answer is cut at its end."""
        head = plural(self._count, "event") if self._lines else f"No event yet, after {self._wait.seconds:.0f} s"
        lines = [f"{head}.", *map(_next, self.positions)]
        problems = [self._source.public(reader.problem) for reader in self._readers if reader.problem is not None]
        lines += [f"The server does not deliver at present: {hide_head(each.message, _REASON)}" for each in problems]
        return "\n".join([*lines, "", *self._lines] if self._lines else lines)


async def _woken(reader: "FeedReader", scope: anyio.CancelScope) -> None:
    await reader.wait()
    scope.cancel()


def _line(occurrence: RawObject, name: str) -> str:
    return object_bytes(delivered(occurrence, name)).decode(errors="replace")


def _next(params: EventParams) -> str:
    arguments: dict[str, object] = {"action": "wait", "name": params.name}
    if bytes(params.arguments) != b"{}":
        arguments["arguments"] = Raw(one_line(bytes(params.arguments)))
    if params.cursor is not None:
        arguments["after"] = params.cursor
    return f"To wait for what comes next: {EVENTS} with {object_bytes(arguments).decode(errors='replace')}"


def _arguments(call: Call) -> _Arguments:
    try:
        return msgspec.json.decode(call.params.get("arguments", b"{}"), type=_Arguments)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidParams(f"wrong arguments: {problem}") from None


def _params(arguments: _Arguments) -> EventParams:
    if not arguments.name:
        raise InvalidParams("wrong arguments: the name of an event type is missing")
    members = {"name": Raw(object_bytes(arguments.name)), "arguments": arguments.arguments}
    params = event_params(members, "wrong arguments")
    return msgspec.structs.replace(params, cursor=arguments.after or None)


def _key(params: EventParams) -> bytes:
    """Equal for equal subscriptions. Raises `InvalidParams`."""
    try:
        return msgspec.json.encode([params.name, msgspec.json.decode(params.arguments)], order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise InvalidParams(f"wrong arguments: {problem}") from None
