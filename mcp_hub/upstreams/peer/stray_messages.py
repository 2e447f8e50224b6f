"""Messages of a server that belong to no call in flight."""

from collections.abc import Collection
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call
from mcp_hub.errors import RpcError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head, shown
from mcp_hub.protocol.eras import LOG_LEVELS
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, read_as
from mcp_hub.protocol.jsonrpc.framing import foreign
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST, METHOD_NOT_FOUND
from mcp_hub.types import LAST_LINE, RawObject

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


class StrayMessages:
    """The last unreadable `lines`, their `count`, and log messages without a call.

    `framing` is their form if not one message per line. Logs 20 grave and 200 other messages a minute.
    """

    def __init__(self, server: str) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.framing: str | None = None
        self._server = server
        self._logged = {True: 0, False: 0}
        self._until = 0.0

    def unreadable(self, bad: BadMessage, line: bytes) -> bool:
        """Whether the stored line may be a response."""
        head = line[:_HEAD]
        self.framing = self.framing or foreign(line)
        is_message = b'"jsonrpc"' in head or b'"result"' in head  # its content is for one caller, stray text is for all
        self._keep(f"a message ({bad.reason})" if is_message else hide_head(line, _STRAY))
        return is_message and b'"method"' not in head and _NO_METHOD not in head

    def take_form(self, form: str) -> None:
        self.framing = self.framing or form

    def nameless(self, method: str) -> RpcError | None:
        """The error response for an unusable id (JSON-RPC 2.0 §5); None for a notification with one."""
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
    read_at: float | None = None

    def is_over(self, since: float, principals: Collection[str]) -> bool:
        return self.read_at is not None and self.read_at <= since and {self.call.principal} == set(principals)


class AbandonedCalls:
    """Unanswered calls that were given up: the server may still log and ask for them."""

    def __init__(self) -> None:
        self._calls: dict[int, _Abandoned] = {}

    def add(self, id_: int, call: Call, now: float) -> None:
        self._drop_old(now)
        self._calls[id_] = _Abandoned(call, now + _ECHO, now + _ECHO)

    def answered(self, id_: int) -> None:
        self._calls.pop(id_, None)

    def read(self, id_: int, now: float) -> None:
        if id_ in self._calls:
            self._calls[id_].read_at = now

    def logging(self, now: float) -> list[Call]:
        """The calls that may log now; extends the wait for all."""
        self._drop_old(now)
        for entry in self._calls.values():
            entry.logs_until = now + _ECHO
        return [entry.call for entry in self._calls.values()]

    def asking(self, now: float, since: float, principals: Collection[str]) -> list[Call]:
        """The calls that may have asked at `since`, beside calls of these principals.

        None whose cancellation was read, if one principal has all calls.
        """
        self._drop_old(now)  # sessions have waited for as long before their turn (`Turns`)
        return [
            entry.call
            for entry in self._calls.values()
            if entry.asks_until > now and not entry.is_over(since, principals)
        ]

    def _drop_old(self, now: float) -> None:
        self._calls = {id_: entry for id_, entry in self._calls.items() if entry.logs_until > now}
