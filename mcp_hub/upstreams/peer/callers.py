"""The calls in flight at one server, and the attribution of messages that name no call.

Such a message belongs to the only call in flight, or the only session. An abandoned call counts until its response, or
until the server has logged nothing for a while. With `logs: shared`, log messages go to all sessions that asked for the
level, if one principal has all calls. Over HTTP, one within a second after the last call belongs to its session.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, Log
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head, shown
from mcp_hub.methods import is_foreign
from mcp_hub.protocol.definitions.messages import repaired_result
from mcp_hub.protocol.definitions.models import SHORT, are_long_texts, is_readable, short_texts
from mcp_hub.protocol.eras import LOG_LEVELS, level_admits
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, Unset, read_as
from mcp_hub.protocol.jsonrpc.framing import foreign
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST, METHOD_NOT_FOUND
from mcp_hub.protocol.meta import has_mark, without_mark
from mcp_hub.protocol.shape.produced import Numbered
from mcp_hub.types import LAST_LINE, Era, RawJson, RawObject
from mcp_hub.upstreams.peer.questions import PARKABLE, Asker
from mcp_hub.upstreams.peer.state import ServerLogs, SignsOfLife
from mcp_hub.upstreams.peer.tasks import ServerTasks
from mcp_hub.wire.base import Pending

log = get_logger(__name__)

_LINES: Final = 20
_HEAD: Final = 4096
"""Bytes of a line that are looked at."""
_NO_METHOD: Final = b"%d" % METHOD_NOT_FOUND
_GRAVE: Final = frozenset(LOG_LEVELS[LOG_LEVELS.index("warning") :])
_MOST: Final = {True: 20, False: 200}
"""Messages of one connection within a minute that are logged, by whether they are grave."""
_MINUTE: Final = 60.0
_SHOWN: Final = 500
_STRAY: Final = 200
"""Characters of a line that are kept."""
_ECHO: Final = 5.0
"""Seconds of silence after which no more messages of a call that was given up are expected."""


class _StrayMessages:
    """The last unreadable `lines`, their `count`, and log messages without a call.

    `framing`: their form if not one message per line. Logs 20 grave and 200 other messages a minute.
    """

    def __init__(self, server: str) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.framing: str | None = None
        self._server = server
        self._logged = {True: 0, False: 0}
        self._until = 0.0

    def unreadable(self, bad: BadMessage, line: bytes) -> bool:
        head = line[:_HEAD]
        self.framing = self.framing or foreign(line)
        is_message = b'"jsonrpc"' in head or b'"result"' in head  # its content is for one caller, stray text is for all
        self._keep(f"a message ({bad.reason})" if is_message else hide_head(line, _STRAY))
        return is_message and b'"method"' not in head and _NO_METHOD not in head

    def take_form(self, form: str) -> None:
        self.framing = self.framing or form

    def nameless(self, method: str) -> RpcError | None:
        """The error for an unusable id (JSON-RPC 2.0 §5); None for a notification."""
        refusal = RpcError("The id of a request is neither a string nor an integer.", code=INVALID_REQUEST)
        self._keep(f"a message ({refusal.message})")
        return None if method.startswith("notifications/") else refusal

    def _keep(self, text: str) -> None:
        self.lines.append(f"stdout: {text}")
        del self.lines[:-_LINES]
        self.count += 1
        if self.count == 1:  # the status has the lines
            log.info("upstream_noise", upstream=self._server)

    @property
    def summary(self) -> str | None:
        """For people; None without any."""
        if not self.count:
            return None
        return f"lines of its output that are not messages: {self.count}{LAST_LINE}{self.lines[-1]}"

    def log(self, severity: str, params: RawObject) -> None:
        now = anyio.current_time()
        if now >= self._until:
            self._logged, self._until = {True: 0, False: 0}, now + _MINUTE
        is_grave = severity in _GRAVE
        self._logged[is_grave] += 1
        write = log.info if is_grave else log.debug
        if self._logged[is_grave] <= _MOST[is_grave]:
            members = {name: _text(params[name]) for name in ("logger", "data") if name in params}
            write("upstream_log", upstream=self._server, severity=hide_head(severity, 20), **members)
        elif self._logged[is_grave] == _MOST[is_grave] + 1:
            write("upstream_log_floods", upstream=self._server, severity=hide_head(severity, 20))


def _text(raw: msgspec.Raw) -> str:
    whole = memoryview(raw)
    text = read_as(raw, str) if len(whole) <= 8 * _SHOWN else None
    return shown(hide_head(whole if text is None else text, _SHOWN))[:_SHOWN]


class _Abandoned(msgspec.Struct):
    call: Call
    logs_until: float
    asks_until: float
    since: float
    is_read: bool = False

    def is_over(self, asked_at: float, principals: Collection[str]) -> bool:
        return self.is_read and self.since <= asked_at and {self.call.principal} == set(principals)


class _AbandonedCalls:
    """Unanswered calls that were given up: the server may still log and ask for them."""

    def __init__(self) -> None:
        self._calls: dict[int, _Abandoned] = {}

    def add(self, id_: int, call: Call, now: float) -> None:
        self._drop_old(now)
        self._calls[id_] = _Abandoned(call, now + _ECHO, now + _ECHO, now)

    def answered(self, id_: int) -> None:
        self._calls.pop(id_, None)

    def read(self, id_: int) -> None:
        if id_ in self._calls:
            self._calls[id_].is_read = True

    def logging(self, now: float) -> list[Call]:
        """The calls that may log now; extends the wait for all."""
        self._drop_old(now)
        for entry in self._calls.values():
            entry.logs_until = now + _ECHO
        return [entry.call for entry in self._calls.values()]

    def asking(self, now: float, asked_at: float, principals: Collection[str]) -> list[Call]:
        """The calls that may have asked at `asked_at`, beside calls of these principals.

        None that was cancelled before and whose cancellation was read, if one principal has all calls.
        """
        self._drop_old(now)  # sessions have waited for as long before their turn (`Turns`)
        return [
            entry.call
            for entry in self._calls.values()
            if entry.asks_until > now and not entry.is_over(asked_at, principals)
        ]

    def any_after(self, moment: float) -> bool:
        return any(entry.since > moment for entry in self._calls.values())

    def _drop_old(self, now: float) -> None:
        self._calls = {id_: entry for id_, entry in self._calls.items() if entry.logs_until > now}


_MOST_LOGGED: Final = 64
"""Log events whose message may follow; the oldest is dropped."""

_MOST_ROOTS: Final = 1024
"""Sessions whose changes of roots are stored, the most recent."""

_LATE: Final = 1.0
"""Seconds after a response in which log messages of its call may come, over another stream."""
_MOST_LATE: Final = 32
"""Log messages after one call that are passed on."""


class Callers:
    """The calls in flight: `requests` with a call, and `tasks`. `strays` are messages without a call.

    `is_ordered`: log messages precede their call's response; over HTTP they may follow it.
    """

    def __init__(
        self, requests: Callable[[], Iterable[Pending]], tasks: ServerTasks, signs: SignsOfLife, logs: ServerLogs, *,
        server: str, is_ordered: bool,
    ) -> None:  # fmt: skip
        self.strays = _StrayMessages(server)
        self.is_ordered = is_ordered
        self._signs = signs
        self._late: tuple[Call | None, int] = None, 0  # log messages that came after a call
        self._requests = requests
        self.tasks = tasks
        self.abandoned = _AbandonedCalls()
        self._logs = logs
        self._logged: deque[tuple[int, object]] = deque(maxlen=_MOST_LOGGED)
        self._roots: OrderedDict[str, int] = OrderedDict()

    def any_in_flight(self) -> bool:
        return any(pending.context is not None for pending in self._requests())

    def may_ask(self, asked_at: float) -> list[Call]:
        """The calls that may have asked at `asked_at`: those in flight, and cancelled ones until the server reads that.

        None if only cancelled calls are left, or one was cancelled after that moment: it will not become clear.
        """
        calls = [call for call, _ in self._in_flight(with_tasks=False) if call.method in PARKABLE]
        if not calls or self.abandoned.any_after(asked_at):
            return []
        return calls + self.abandoned.asking(anyio.current_time(), asked_at, {call.principal for call in calls})

    def other_asker(self, call: Call) -> Asker | None:
        """The session's newest other call that may ask."""
        askers = [
            asker
            for asker in self._in_flight(with_tasks=False)
            if asker[0] is not call and asker[0].session == call.session and asker[0].method in PARKABLE
        ]
        return askers[-1] if askers else None

    def abandon(self, call: Call, id_: int) -> None:
        self.abandoned.add(id_, call, anyio.current_time())

    def has_new_roots(self, call: Call) -> bool:
        """Whether they changed since the session's last call here."""
        is_new = self._roots.pop(call.session, 0) != call.roots_changes
        self._roots[call.session] = call.roots_changes
        if len(self._roots) > _MOST_ROOTS:
            self._roots.popitem(last=False)
        return is_new

    def late_listener(self, level: str) -> str | None:
        """The handshake session for a log message just after a call; None if uncertain."""
        call, now = self._signs.last, anyio.current_time()
        count = self._late[1] if self._late[0] is call else 0
        if self.is_ordered or call is None or call.era is not Era.HANDSHAKE or count >= _MOST_LATE:
            return None
        if len(self._just_answered(now)) != 1 or any(self._in_flight(with_tasks=True)):
            return None
        sessions = {given_up.session for given_up in self.abandoned.logging(now)}
        if sessions - {call.session} or not (call.log_level is None or level_admits(call.log_level, level)):
            return None
        self._late = call, count + 1
        self._logs.count(is_sent=True, is_counted=True)
        return call.session

    def suspect(self, requests: Iterable[Pending] | None = None) -> None:
        """Marks calls whose response may have been unreadable."""
        for pending in self._requests() if requests is None else requests:
            if pending.context is not None:
                context(pending)[1].times.suspect()

    def asker(self, message: Envelope, source: Pending | None = None) -> Asker | None:
        """The call that a message belongs to, if known."""
        if isinstance(message.params, msgspec.Raw) and (asker := self.tasks.asker(message.params)) is not None:
            return asker
        if source is None:
            return self._sole_asker(is_question=message.kind == "request")
        return context(source) if source.context is not None else None

    def logged(self, id_: int, events: Iterable[Numbered]) -> None:
        """Notes log events; the same messages may follow."""
        for _, event in events:
            if type(event) is Log:
                self._logged.append((id_, msgspec.json.decode(event.params)))
                self._logs.count(is_sent=True)

    def _was_event(self, params: bytes) -> bool:
        if not self._logged:
            return False
        content = msgspec.json.decode(params)
        in_flight = {pending.id for pending in self._requests()}
        match = next((entry for entry in self._logged if entry[1] == content and entry[0] in in_flight), None)
        if match is not None:
            self._logged.remove(match)
        return match is not None

    def log(self, level: str, message: Envelope, source: Pending | None) -> bool:
        """False if no caller gets the message. One that came as an event is not repeated (docs/specification/streams.md
        §4).
        """
        assert isinstance(message.params, msgspec.Raw)
        if self._was_event(message.params):
            return True
        asker = self.asker(message, source)
        listeners = [asker] if asker is not None else self._listeners(level) if source is None else []
        for _, channel in listeners:
            channel.send(Log(level, message.params))
        self._logs.count(is_sent=bool(listeners))
        return bool(listeners)

    def passed(self, message: Envelope, source: Pending | None) -> None:
        """Sends a notification that `passthrough` allows to its call, if known."""
        if (asker := self.asker(message, source)) is not None:
            params = message.params if isinstance(message.params, msgspec.Raw) else msgspec.Raw(b"{}")
            asker[1].send(Log("info", params, message.method))

    def _sole_asker(self, *, is_question: bool) -> Asker | None:
        """The newest call, if all are one session's."""
        now, in_flight = anyio.current_time(), list(self._in_flight(with_tasks=not is_question))
        principals = {call.principal for call, _ in in_flight}
        gone = self.abandoned.asking(now, now, principals) if is_question else self.abandoned.logging(now)
        sessions = {call.session for call in gone}
        if not (is_question or self.is_ordered):
            sessions |= self._just_answered(now)
        newest: Asker | None = None
        for asker in in_flight:
            sessions.add(asker[0].session)
            if len(sessions) > 1:
                return None
            if newest is None or asker[0].method in PARKABLE:
                newest = asker
        return newest

    def _just_answered(self, now: float) -> set[str]:
        signs = self._signs
        if signs.last is None or now - signs.last_at > _LATE:
            return set()
        return {signs.last.session} if now - signs.other_at > _LATE else {signs.last.session, ""}

    def _listeners(self, level: str) -> Iterable[Asker]:
        if self._logs.rule != "shared":
            return []
        principals = {call.principal for call in self.abandoned.logging(anyio.current_time())}
        by_session: dict[str, Asker] = {}
        for asker in self._in_flight(with_tasks=True):
            call = asker[0]
            principals.add(call.principal)
            if len(principals) > 1:
                return []
            if call.log_level is not None and level_admits(call.log_level, level):
                by_session[call.session] = asker
        return by_session.values()

    def _in_flight(self, *, with_tasks: bool) -> Iterable[Asker]:
        if with_tasks:
            yield from self.tasks.askers()
        for pending in self._requests():
            if pending.context is not None:
                yield context(pending)


def context(pending: Pending) -> Asker:
    """The request's call and channel."""
    asker = pending.context
    assert isinstance(asker, tuple)
    return asker


def completed(call: Call, result: RawJson, era: Era) -> Completed:
    """A result for clients, without the server's mark."""
    if call.method == "tools/call" and len(result) < SHORT:  # most are texts without `_meta`, which every client reads
        try:
            texts = short_texts(result)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            has_more = texts.is_error is True or texts.result_type is not Unset or texts.structured_content is not Unset
            return Completed(result, era, not has_more)
    elif call.method == "tools/call" and are_long_texts(result, era):
        return Completed(result, era, is_plain=True)
    unmarked = result if has_mark(result) is None else without_mark(result)
    if is_foreign(call.method):
        return Completed(unmarked, era)
    if not is_readable(call.method, unmarked, era):
        is_modern = call.era is Era.MODERN
        unmarked = repaired_result(call.method, unmarked, era, call.params, is_modern_caller=is_modern)
    return Completed(unmarked, era)
